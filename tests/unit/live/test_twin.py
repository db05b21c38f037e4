"""Simulate before commit: the reference is never beaten by a worse choice, and drivers take the choice over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.live import FINISHED, GONE, STARTED, TASK, Engine
from wattflow.live import twin as twins
from wattflow.live.looking import USUAL, Look, Rule
from wattflow.live.roll import roll
from wattflow.live.twin import AtOnce, Twin
from wattflow.model.cluster import Cluster
from wattflow.model.errors import BrokenPolicy, InvalidInput
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy

MEMBERS = ("wattflow", "wattflow:wait=3", "scp-eft:sleep=120", "least-energy:sleep=30")


def loaded(seed: int, tasks: int = 60, policy: str = "wattflow") -> Engine:
    """An engine with open tasks, some of them placed and running."""
    engine = Engine(policy, load_cluster("mixed"))
    fill(engine, seed, tasks)
    engine.step(0.0)
    return engine


def fill(engine: Engine, seed: int, tasks: int = 60) -> None:
    rng = np.random.default_rng(seed)
    shapes = [engine.shape((Variant(cores=c, memory_bytes=2**30),)) for c in (1, 4)]
    for _ in range(tasks):
        engine.put(TASK, shapes[int(rng.integers(2))], estimate_s=float(rng.lognormal(4, 1)))


def ended(engine: Engine, twin: Twin, count: int, at_s: float = 0.0, seconds: float = 20.0) -> float:
    """Tasks without a workflow come and end one after the other, the twin beside it; returns the time."""
    shape = engine.shape((Variant(cores=1, memory_bytes=2**30),))
    for _ in range(count):
        engine.put(TASK, shape, estimate_s=10.0)
        (placement,) = engine.step(at_s).placements
        twin.arrived.note(engine, at_s)
        for kind in (STARTED, FINISHED):
            engine.put(kind, placement.attempt)
            engine.step(at_s)
            twin.arrived.note(engine, at_s)
            at_s += seconds
    return at_s


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_no_worse_than_the_reference_under_other_draws(seed: int) -> None:
    engine = loaded(seed)
    twin = Twin(MEMBERS, seeds=(0, 1, 2), spread=0.2, rule=Rule(learnt=0))
    twin.arrived.note(engine, 0.0)
    chosen = twin.choose(engine)
    reference, taken = roll(engine, ["wattflow", chosen.policy], math.inf, seeds=range(100, 106), interval=0.2)
    # Other draws than those it was chosen by: what remains is the error of the model.
    assert taken.energy_j.mean <= reference.energy_j.mean * 1.02
    assert taken.looks[0].response_s <= reference.looks[0].response_s * 1.04


def test_until_enough_workflows_have_ended_the_reference_stays() -> None:
    engine, twin = Engine("fifo", load_cluster("mixed")), Twin(("fifo", "wattflow"), every_s=0.0, executor=AtOnce())
    now = ended(engine, twin, 1)
    fill(engine, 1)
    engine.step(now)
    assert twin.arrived.ended == 1 and twin.consider(engine, now) is None
    engine.use("wattflow")  # as one of before had chosen; what is known of it now says nothing
    twin._used = twins._mark(engine.policy)
    found = twin.consider(engine, now)
    assert found is not None and found.name == "fifo"
    engine.use(found)
    twin.arrived.ended = USUAL.learnt
    assert twin._ask(engine).result() in (0, 1) and len(twin.choose(engine).forecasts) == 2


def test_who_is_wanted_must_be_borne_out_by_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded(2, policy="fifo")
    twin = Twin(("fifo", "eft", "wattflow"), rule=Rule(learnt=0, worth=-1.0, wait=10.0), executor=AtOnce())
    twin.arrived.note(engine, 0.0)
    asked: list[str] = []
    worse = {"fifo": 100.0, "eft": 101.0, "wattflow": 99.0}

    def replayed(workload: Workload, cluster: Cluster, policy: Policy) -> Look:
        asked.append(policy.name)
        assert len(workload) == 60
        return Look(worse[policy.name], 1.0, 0.0)

    monkeypatch.setattr(twins, "hindsight", replayed)
    assert twin.choose(engine).policy.name == "wattflow"
    assert asked[0] == "fifo"
    worse["wattflow"] = 101.0
    assert twin.choose(engine).policy.name == "fifo"
    engine.use("wattflow")
    assert twin.choose(engine).policy.name == "fifo"  # it would have been worse until now: its place goes back


def test_a_look_back_that_cannot_be_held_leaves_the_reference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Look:
        raise BrokenPolicy("leaves tasks waiting")

    engine = loaded(2, policy="fifo")
    twin = Twin(("fifo", "wattflow"), rule=Rule(learnt=0, worth=-1.0, wait=10.0), executor=AtOnce())
    twin.arrived.note(engine, 0.0)
    monkeypatch.setattr(twins, "hindsight", broken)
    assert twin.choose(engine).policy.name == "fifo"
    assert "the reference stays" in caplog.text


def test_planning_points_come_at_intervals_and_only_with_open_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(("fifo", "eft"), every_s=30.0, rule=Rule(learnt=0))
    assert twin.consider(Engine("fifo", load_cluster("mixed")), 0.0) is None
    engine = loaded(2, policy="fifo")
    seen: list[int] = []

    def ask(engine: Engine) -> Future[int]:
        seen.append(1)
        return AtOnce().submit(lambda: 1)

    monkeypatch.setattr(twin, "_ask", ask)
    twin._used = None
    answers = []
    for at in (0.0, 10.0, 31.0):
        answers.append(twin.consider(engine, at) is not None)
        twin._used = twins._mark(engine.policy)  # the driver of this test does not listen
    assert answers == [True, False, True]
    assert len(seen) == 2


def test_a_loop_does_not_wait_for_a_look_back() -> None:
    class Later(AtOnce):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            asked.append(fn)
            return waiting

    asked: list[Callable[..., Any]] = []
    waiting: Future[Any] = Future()
    engine = loaded(2, policy="fifo")
    twin = Twin(("fifo", "wattflow"), 0.0, rule=Rule(learnt=0, worth=-1.0, wait=10.0), executor=Later())
    assert [twin.consider(engine, t) for t in (0.0, 1.0)] == [None, None] and len(asked) == 1
    waiting.set_result(1)
    chosen = twin.consider(engine, 2.0)
    assert chosen is not None and chosen.name == "wattflow"
    twin.close()


def test_who_chooses_another_policy_says_which_one_is_the_reference() -> None:
    engine, twin = loaded(2, policy="fifo"), Twin(("fifo", "eft"), executor=AtOnce())
    assert twin.consider(engine, 0.0) is None
    engine.use("least-energy")  # an operator, or a learner with new weights
    assert twin.consider(engine, 1.0) is None
    assert [member.name for member in twin.members] == ["least-energy", "eft"]
    # At a start the engine may be where a twin of before left it.
    again = Twin(("least-energy", "fifo"), executor=AtOnce())
    engine.use("fifo")
    found = again.consider(engine, 2.0)
    assert found is not None and found.name == "least-energy"


def test_other_numbers_under_the_same_name_are_another_reference() -> None:
    engine, twin = loaded(2), Twin(("wattflow", "wattflow:wait=3"), executor=AtOnce())
    assert twin.consider(engine, 0.0) is None
    engine.use(registry.load("wattflow", wait=1.0))  # as a scheduler whose settings are read again
    twin.consider(engine, 1.0)
    assert twin.members[0].params["wait"] == 1.0 and len(twin.members) == 2


def test_what_goes_wrong_in_a_look_leaves_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, twin = loaded(2), Twin(("wattflow", "eft"), 0.0, rule=Rule(learnt=0), executor=AtOnce())

    def fails(*_: object) -> None:
        raise ValueError("a fault in looking")

    monkeypatch.setattr(twins, "roll", fails)
    assert [twin.consider(engine, t) for t in (0.0, 1.0)] == [None, None]


def test_nobody_looks_ahead_without_a_node() -> None:
    engine = loaded(2)
    twin = Twin(("wattflow", "eft"), 0.0, rule=Rule(learnt=0), executor=AtOnce())
    for node in engine.nodes.values():
        engine.put(GONE, node)
    engine.step(1.0)
    assert engine.counts["open"] and not twin._is_point(engine, 2.0)


def test_looking_ahead_changes_nothing() -> None:
    engine = loaded(3)
    before = {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES}
    Twin(MEMBERS, seeds=(0,)).choose(engine)
    assert {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES} == before


def test_an_empty_portfolio_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one policy"):
        Twin(())


def test_a_lead_needs_a_saving_that_the_draws_agree_on() -> None:
    def lead(present: Sequence[float], other: Sequence[float]) -> float:
        return USUAL.lead(*([Look(joules, 1.0, 0.0) for joules in some] for some in (present, other)))

    assert lead([100.0, 110.0, 90.0], [90.0, 99.0, 81.0]) == pytest.approx(-math.log(0.9) - USUAL.worth)
    assert lead([100.0, 100.0, 100.0], [99.0, 99.0, 99.0]) < 0.0  # not worth a change
    assert lead([100.0, 100.0, 100.0], [60.0, 100.0, 115.0]) < 0.0  # one lucky draw
    assert lead([100.0], [90.0]) > 0.0
    assert lead([0.0, 1.0], [1.0, 1.0]) == -math.inf


def test_who_waits_longer_ends_later_or_is_late_is_not_taken() -> None:
    reference = Look(100.0, 10.0, 1.0, 50.0, 8.0)
    assert USUAL.keeps(Look(1.0, 10.1, 1.0, 50.0, 8.0), reference)
    for other in (
        Look(1.0, 10.5, 1.0, 50.0, 8.0),
        Look(1.0, 10.0, 2.0, 50.0, 8.0),
        Look(1.0, 10.0, 1.0, 52.0, 8.0),
        Look(1.0, 10.0, 1.0, 50.0, 7.0),
    ):
        assert not USUAL.keeps(other, reference)
