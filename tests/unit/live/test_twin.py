"""Simulate before commit: the reference is never beaten by a worse choice, and drivers take the choice over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.live import TASK, Engine
from wattflow.live.roll import roll
from wattflow.live.twin import WAIT, WORTH, Twin, lead
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Variant

MEMBERS = ("wattflow", "wattflow:wait=3", "scp-eft:sleep=120", "least-energy:sleep=30")


def loaded(seed: int, tasks: int = 60, policy: str = "wattflow") -> Engine:
    """An engine with open tasks, some of them placed and running."""
    engine, rng = Engine(policy, load_cluster("mixed")), np.random.default_rng(seed)
    shapes = [engine.shape((Variant(cores=c, memory_bytes=2**30),)) for c in (1, 4)]
    for _ in range(tasks):
        engine.put(TASK, shapes[int(rng.integers(2))], estimate_s=float(rng.lognormal(4, 1)))
    engine.step(0.0)
    return engine


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_no_worse_than_the_reference_under_other_draws(seed: int) -> None:
    engine = loaded(seed)
    chosen = Twin(MEMBERS, seeds=(0, 1, 2), spread=0.2).choose(engine)
    reference, taken = roll(engine, ["wattflow", chosen.policy], math.inf, seeds=range(100, 106), interval=0.2)
    # Other draws than those it was chosen by: what remains is the error of the model.
    assert taken.energy_j.mean <= reference.energy_j.mean * 1.02
    assert taken.response_s.mean <= reference.response_s.mean * (1 + WAIT + 0.02)


def test_a_member_that_makes_people_wait_is_not_taken_however_frugal() -> None:
    engine = loaded(1)
    choice = Twin(("eft", "wattflow:wait=inf")).choose(engine)
    frugal = choice.forecasts[1]
    if frugal.response_s.mean > choice.forecasts[0].response_s.mean * (1 + WAIT):
        assert choice.policy.name == "eft"


def test_planning_points_come_at_intervals_and_only_with_open_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(("fifo", "eft"), every_s=30.0)
    assert twin.consider(Engine("fifo", load_cluster("mixed")), 0.0) is None
    engine = loaded(2, policy="fifo")
    seen: list[int] = []

    def choose(engine: Engine) -> object:
        seen.append(1)
        return Twin(("eft",)).choose(engine)

    monkeypatch.setattr(twin, "choose", choose)
    assert [twin.consider(engine, at) is not None for at in (0.0, 10.0, 31.0)] == [True, False, True]
    assert len(seen) == 2


def test_looking_ahead_changes_nothing() -> None:
    engine = loaded(3)
    before = {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES}
    Twin(MEMBERS, seeds=(0,)).choose(engine)
    assert {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES} == before


def test_an_empty_portfolio_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one policy"):
        Twin(())


def test_a_lead_needs_a_saving_that_the_draws_agree_on() -> None:
    assert lead([100.0, 110.0, 90.0], [90.0, 99.0, 81.0]) == pytest.approx(-math.log(0.9) - WORTH)
    assert lead([100.0, 100.0, 100.0], [99.0, 99.0, 99.0]) < 0.0  # not worth a change
    assert lead([100.0, 100.0, 100.0], [60.0, 100.0, 115.0]) < 0.0  # one lucky draw
    assert lead([100.0], [90.0]) > 0.0
    assert lead([0.0, 1.0], [1.0, 1.0]) == -math.inf
