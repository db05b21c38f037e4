"""A simulation that begins anew with other numbers is the simulation that is set up with them."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.model.run import Run
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.portfolio import PORTFOLIO
from wattflow.sim import SimOptions, simulate
from wattflow.sim.repeated import Prepared, Repeated

CLUSTER = load_cluster("mixed")
DIALS: tuple[dict[str, float], ...] = (
    {}, {"idle": 0.4, "merit": 0.0}, {"second": 60.0, "margin": -0.2}, {"late": 1000.0, "spare": 0.05}, {}
)  # fmt: skip


def test_every_run_is_as_if_it_were_the_first() -> None:
    one = generate.workload("montage", 25, 1)
    stream = joining.joined([one] * 9, np.arange(0.0, 900.0, 100.0), CLUSTER, 4.0, "stream")
    flagship, options = registry.load("wattflow"), SimOptions(runtime_error=0.2, power_error=0.1)
    again = Repeated(stream, CLUSTER, flagship, seed=3, options=options)
    found = []
    for dials in DIALS:
        policy = flagship.with_params(**dials)
        alone, repeated = simulate(stream, CLUSTER, policy, seed=3, options=options), again.again(policy)
        assert repeated.energy_j.tolist() == alone.energy_j.tolist()
        assert np.array_equal(repeated.attempts, alone.attempts)
        assert repeated.makespan_s == alone.makespan_s and repeated.manifest == alone.manifest
        found.append(alone.total_j)
    assert found[0] == found[-1] and len(set(found)) > 2  # the dials matter, and the first ones come again


def test_what_a_policy_has_prepared_serves_other_streams_of_the_cluster() -> None:
    one = generate.workload("montage", 25, 1)
    streams = [
        joining.joined([one] * 9, np.arange(0.0, 9.0 * gap_s, gap_s), CLUSTER, 4.0, "stream") for gap_s in (90.0, 40.0)
    ]
    shared: Prepared = {}
    for stream in streams:
        again = Repeated(stream, CLUSTER, PORTFOLIO, prepared=shared)
        for dials in ({"rule": 1.0, "after_s": 30.0}, {"rule": 0.0}, {"rule": 2.0, "reserve": 0.3}):
            policy = PORTFOLIO.with_params(**dials)
            alone, repeated = simulate(stream, CLUSTER, policy), again.again(policy)
            assert repeated.energy_j.tolist() == alone.energy_j.tolist()
            assert np.array_equal(repeated.attempts, alone.attempts)
    assert len(shared) == 3, "the second stream was prepared anew"


def test_tables_that_grew_in_a_run_are_small_again_in_the_next() -> None:
    again = Repeated(generate.workload("montage", 25, 1), CLUSTER, registry.load("wattflow"))
    first = again.again(again.policy)
    again.state.replace(timers=np.concatenate([again.state.timers, again.state.timers]).view(type(again.state.timers)))
    second = again.again(again.policy)
    assert np.array_equal(first.attempts, second.attempts) and len(again.state.timers) == len(
        again._before[0].tables["timers"]
    )


def test_starts_and_ends_by_task_are_the_same_by_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate(generate.workload("montage", 25, 1), CLUSTER, "kubernetes")
    assert run._went_well
    short = run.start_s_by_task(), run.end_s_by_task()
    monkeypatch.setattr(Run, "_went_well", False)
    assert np.array_equal(short, (run.start_s_by_task(), run.end_s_by_task()))


def test_a_run_with_a_task_that_failed_first_goes_the_long_way() -> None:
    again = SimOptions(task_faults=((3, 0, 0.5),))
    run = simulate(generate.workload("montage", 25, 1), CLUSTER, "kubernetes", options=again)
    assert not run._went_well and np.isfinite(run.end_s_by_task()).all()
