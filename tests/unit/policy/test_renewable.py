"""Following a renewable supply with a battery, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from research.grid_energy import grid_j
from wattflow.model.cluster import Cluster, Node, Series
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.policy import renewable
from wattflow.sim import SimOptions, simulate

ONE = Cluster("one", (Node("a", 1, 0, power=PowerProfile((0.0, 1.0), (0.0, 10.0))),))
WATCHED = SimOptions(record_power=True)


def job(release_s: float, deadline_s: float = np.inf) -> Workload:
    """50 s of 10 W."""
    return Workload.of_columns(
        "job", release_s=np.array([release_s]), runtime_s=np.array([50.0]), deadline_s=np.array([deadline_s])
    )


def test_a_task_waits_for_the_supply_but_not_past_its_deadline() -> None:
    supply = Series(100.0, (0.0, 20.0))
    patient = simulate(job(0.0), ONE, renewable.following(supply), options=WATCHED)
    assert patient.start_s_by_task().tolist() == [100.0]
    assert grid_j(patient, supply) == pytest.approx(0.0)
    late = simulate(job(0.0, deadline_s=60.0), ONE, renewable.following(supply), options=WATCHED)
    assert late.start_s_by_task().tolist() == [10.0]
    assert grid_j(late, supply) == pytest.approx(500.0)


def test_a_battery_carries_the_supply_into_the_night() -> None:
    # 100 s of 20 W leave 1,800 J in the battery, a tenth lost; at 150 s the sun is down until 300 s.
    supply = Series(100.0, (20.0, 0.0, 0.0))
    stored = simulate(job(150.0), ONE, renewable.following(supply, 5_000.0))
    assert stored.start_s_by_task().tolist() == [150.0]
    # A battery for 400 J is too small for the 500 J of the run, and the task waits for the next day.
    small = simulate(job(150.0), ONE, renewable.following(supply, 400.0))
    assert small.start_s_by_task().tolist() == [300.0]


def test_what_the_grid_gives_is_what_supply_and_battery_lack() -> None:
    # Without patience the job runs from 150 to 200 s: 500 J, of which a battery charged with 400 J gives all it has.
    supply = Series(100.0, (20.0, 0.0, 0.0))
    two = Workload.of_columns("two", release_s=np.array([0.0, 150.0]), runtime_s=np.array([1.0, 50.0]))
    run = simulate(two, ONE, "fifo", options=WATCHED)
    assert grid_j(run, supply, 400.0) == pytest.approx(100.0)
    assert grid_j(run, supply) == pytest.approx(500.0)
