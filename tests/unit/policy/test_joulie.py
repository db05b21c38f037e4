"""Joulie's score against the published formula by hand, its caps, and the engine's `cap` action."""

from __future__ import annotations

import numpy as np
import pytest

from research.papers import experiment, joulie_paper
from wattflow.model.cluster import Cluster, Frequency, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy.joulie import JOULIE, JOULIE_CAPS
from wattflow.sim import simulate


def machine(name: str, idle_w: float, full_w: float) -> Node:
    levels = (Frequency(), Frequency(0.8, 0.6), Frequency(0.5, 0.3))
    return Node(name, 10, 1 << 30, power=PowerProfile((0, 10), (idle_w, full_w)), frequencies=levels)


def jobs(count: int, cores: float, runtime_s: float, every_s: float = 0.0, deadline_s: float = np.inf) -> Workload:
    return Workload.of_columns(
        "jobs", release_s=np.arange(count, dtype=np.float64) * every_s, runtime_s=np.full(count, runtime_s),
        shapes=[Shape(0, (Variant(cores=cores),), 1)], functions=(Function("job"),),
        deadline_s=np.full(count, deadline_s), one_each=True,
    )  # fmt: skip


def by_hand(now_w: float, added_w: float, full_w: float) -> float:
    """The published formula without a trend."""
    headroom = max(0.0, 100 * (full_w - now_w - added_w) / full_w)
    return 0.7 * headroom + 0.15 * (100 - min(100.0, 100 * now_w / full_w))


def test_it_goes_where_the_formula_says() -> None:
    cluster = Cluster("two", (machine("lean", 50, 150), machine("large", 100, 400)))
    run = simulate(jobs(6, 2.0, 30.0), cluster, JOULIE)
    place = [int(row["node"]) for row in np.sort(run.attempts, order="task")]
    watts, full, added = [50.0, 100.0], [150.0, 400.0], [20.0, 60.0]
    for chosen in place:
        points = [by_hand(watts[n], added[n], full[n]) for n in (0, 1)]
        assert chosen == int(np.argmax(points))
        watts[chosen] += added[chosen]


def test_a_rising_node_is_avoided_for_a_while() -> None:
    # Two equal nodes: at 70 s the first has risen by 30 W a minute, the second by less; the trend outweighs headroom.
    cluster = Cluster("two", (machine("a", 50, 350), machine("b", 50, 350)))
    run = simulate(jobs(3, 1.0, 500.0, every_s=70.0), cluster, JOULIE)
    place = [int(row["node"]) for row in np.sort(run.attempts, order="task")]
    assert place[:2] == [0, 1]


def test_caps_slow_down_by_the_frequency_table_and_keep_deadlines_away() -> None:
    cluster = Cluster("two", (machine("free", 100, 200), machine("eco", 100, 200)))
    policy = JOULIE_CAPS.with_params(performance=0.5, eco=0.85)
    run = simulate(jobs(2, 10.0, 100.0, every_s=1.0), cluster, policy)
    rows = np.sort(run.attempts, order="task")
    times = {int(row["node"]): float(row["end_s"] - row["start_s"]) for row in rows}
    # 170 W: the level of 0.6 × 100 W above idle is the fastest that keeps it, at 0.8 of the speed
    assert times[0] == pytest.approx(100.0) and times[1] == pytest.approx(125.0)
    urgent = simulate(jobs(2, 10.0, 100.0, every_s=1.0, deadline_s=1e6), cluster, policy)
    assert {int(row["node"]) for row in urgent.attempts} == {0}, "pods of class performance wait for an uncapped node"


def test_nodes_that_all_differ_share_the_uncapped_part_and_nobody_waits_for_ever() -> None:
    cluster = Cluster("unlike", tuple(machine(f"n{k}", 100, 200 + k) for k in range(5)))
    urgent = jobs(8, 10.0, 100.0, deadline_s=1e6)
    two = simulate(urgent, cluster, JOULIE_CAPS.with_params(performance=0.4))
    assert len({int(row["node"]) for row in two.attempts}) == 2
    none = simulate(urgent, cluster, JOULIE_CAPS.with_params(performance=0.0))
    assert len(none.attempts) == 8, "where every node is capped, a task with a deadline runs on a capped one"


@pytest.mark.slow
def test_the_replay_runs_and_prints_all_of_its_figures() -> None:
    found = experiment.load("joulie").settings
    assert isinstance(found, joulie_paper.JoulieSettings)
    from dataclasses import replace

    outcome = joulie_paper.run(replace(found, scale=0.002, hours=0.5, jobs_per_s=20.0), lambda share, text: None)
    assert len(outcome.sheets) == 2 and len(outcome.figures) == 8
    for sheet in outcome.sheets:
        assert sheet.rows[0][0] == "most-allocated"
    names = {figure.name for figure in outcome.figures}
    assert "joulie_caps_our_saving" in names and "joulie_scheduling_our_p95_over_its" in names


def test_the_load_is_what_was_asked_for() -> None:
    found = experiment.load("joulie").settings
    assert isinstance(found, joulie_paper.JoulieSettings)
    machines = joulie_paper.cluster(joulie_paper.MIXED, found)
    assert len(machines.nodes) == 41
    made = joulie_paper.workload(machines, found, 0.5, 0.25)
    wants = np.array([shape.variants[0].cores for shape in made.shapes])[made.shape]
    gpu = np.array(["gpu" in shape.variants[0].features for shape in made.shapes])[made.shape]
    for kind in (False, True):
        room = sum(one.cores for one in machines.nodes if ("gpu" in one.features) == kind) * found.hours * 3600
        assert float((made.runtime_s * wants)[gpu == kind].sum()) / room == pytest.approx(found.load)
    assert 0.2 < np.isfinite(made.deadline_s).mean() < 0.3
    assert (np.diff(made.release_s) >= 0).all()
