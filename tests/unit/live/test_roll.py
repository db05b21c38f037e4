"""Rolling ahead from a live state: closed forms, the same draws for all policies, the engine unchanged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.live import STARTED, TASK, Engine
from wattflow.live.roll import roll
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import registry

CURVE = PowerProfile((0.0, 1.0, 2.0), (10.0, 30.0, 40.0))


def engine(policy: str = "fifo", nodes: int = 1) -> Engine:
    return Engine(policy, Cluster("c", tuple(Node(f"n{i}", 2, 2**36, power=CURVE) for i in range(nodes))))


def test_what_runs_has_its_estimate_less_what_it_has_run() -> None:
    live = engine()
    shape = live.shape((Variant(cores=1),))
    live.put(TASK, shape, estimate_s=10.0, deadline_s=9.0)
    live.put(TASK, shape, estimate_s=4.0, release_s=0.0)
    for placement in live.step(0.0).placements:
        live.put(STARTED, placement.attempt)
    live.step(0.0)
    live.put(TASK, shape, estimate_s=3.0, release_s=3.0)
    live.step(3.0)
    before = {name: getattr(live.state, name).tobytes() for name in live.state.NAMES}
    (seen,) = roll(live, ["fifo"], until_s=20.0)
    # From 3: both cores until 4, then the third task until 7 beside the first, which ends at 10; idle until 20.
    assert seen.energy_j.mean == pytest.approx(4 * 40.0 + 3 * 30.0 + 10 * 10.0)
    assert seen.response_s.mean == pytest.approx((10.0 + 4.0 + 4.0) / 3)
    assert (seen.late.mean, seen.ended.mean, seen.open.mean) == (1.0, 3.0, 0.0)
    assert {name: getattr(live.state, name).tobytes() for name in live.state.NAMES} == before
    (short,) = roll(live, ["fifo"], until_s=5.0)
    assert short.energy_j.mean == pytest.approx(2 * 40.0)
    assert (short.ended.mean, short.open.mean) == (1.0, 2.0)


def test_policies_differ_by_their_order_under_the_same_draws() -> None:
    live = engine()
    shape = live.shape((Variant(cores=2),))
    rng = np.random.default_rng(1)
    for _ in range(12):
        live.put(TASK, shape, estimate_s=float(rng.uniform(1, 20)))
    live.step(0.0)
    fifo, sjf, again = roll(live, ["fifo", "sjf", "fifo"], math.inf, seeds=(1, 2, 3), interval=0.3)
    assert again == fifo
    assert sjf.response_s.mean < fifo.response_s.mean
    assert sjf.energy_j.mean == pytest.approx(fifo.energy_j.mean)  # the same work, one after the other
    assert fifo.energy_j.low < fifo.energy_j.mean < fifo.energy_j.high


def test_a_policy_that_is_only_rolled_has_its_notes_of_the_cluster() -> None:
    live = engine(nodes=2)
    shape = live.shape((Variant(cores=1),))
    live.step(0.0)
    for _ in range(4):
        live.put(TASK, shape, estimate_s=10.0, release_s=1.0)
    live.step(0.5)
    capped = registry.load("power-cap").with_params(share=0.6)  # 48 W: two idle nodes take 20, a task adds 20
    free, held = roll(live, ["least-loaded", capped], until_s=15.0)
    assert (free.ended.mean, held.ended.mean) == (4.0, 1.0)


def test_draws_come_from_the_predictors_interval_and_respect_what_has_run() -> None:
    live = engine(nodes=40)
    shape = live.shape((Variant(cores=2),))
    for tag in range(40):
        live.put(TASK, shape, estimate_s=10.0, tag=tag)
    for placement in live.step(0.0).placements:
        live.put(STARTED, placement.attempt)
    live.step(0.0)
    live.step(9.0)
    (seen,) = roll(live, ["fifo"], math.inf, seeds=range(5), interval=lambda tag: (5.0, 20.0))
    assert seen.ended.mean == 40.0
    assert seen.response_s.low > 9.0  # nothing ends before now
    assert seen.response_s.high < 20.0
    (sure,) = roll(live, ["fifo"], math.inf, interval=lambda tag: (12.0, 12.0))
    assert sure.response_s.mean == pytest.approx(12.0)


def test_bad_calls_are_answered() -> None:
    live = engine()
    live.step(5.0)
    with pytest.raises(InvalidInput, match="not after now"):
        roll(live, ["fifo"], until_s=5.0)
    with pytest.raises(InvalidInput, match="at least one"):
        roll(live, ["fifo"], until_s=9.0, seeds=())
