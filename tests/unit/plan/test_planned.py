"""Plans made at arrivals: within the portfolio's time, without looking ahead, and the flagship where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.engine.tables import WAKING
from wattflow.live import TASK, Engine
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.plan import following, joining, planned, rehearsal
from wattflow.policy import registry, wattflow
from wattflow.sim import SimOptions, simulate
from wattflow.sim.outlook import Outlook
from wattflow.sim.simulate import Simulation

GIB = 1 << 30

CLUSTER = load_cluster("mixed")
POLICY = planned.PLANNED.with_params(search=1500.0, spread=0.0)
USUAL = wattflow.WATTFLOW.with_params(**rehearsal.reference(rehearsal.LOAD))
SAME = ("task", "node", "variant", "placed_s", "start_s")


def stream(*seeds: int, apart_s: float = 5.0) -> Workload:
    """Small workflows, one after the other."""
    parts = [generate.workload("montage", 30, seed) for seed in seeds]
    return joining.joined(parts, apart_s * np.arange(len(parts), dtype=np.float64), CLUSTER, 4.0, "stream")


@pytest.fixture(scope="module")
def batch() -> tuple[Workload, Run, Run]:
    """Two workflows at once, under the portfolio's setting and planned."""
    workload = stream(1, 2, apart_s=0.0)
    return workload, simulate(workload, CLUSTER, USUAL), simulate(workload, CLUSTER, POLICY)


def test_a_plan_saves_joules_and_ends_no_later_than_the_portfolio(batch: tuple[Workload, Run, Run]) -> None:
    _, theirs, ours = batch
    assert np.isfinite(ours.end_s_by_task()).all()
    assert ours.total_j < 0.97 * theirs.total_j
    assert ours.makespan_s <= theirs.makespan_s * (1 + 1e-6)


def test_same_workflows_same_plan(batch: tuple[Workload, Run, Run]) -> None:
    workload, _, ours = batch
    again = simulate(workload, CLUSTER, POLICY)
    assert again.attempts.tobytes() == ours.attempts.tobytes()


def test_nothing_is_known_of_a_workflow_before_it_arrives() -> None:
    def before(workload: Workload) -> list[bytes]:
        rows = simulate(workload, CLUSTER, POLICY).attempts
        rows = rows[rows["placed_s"] < 5.0]
        rows = rows[np.argsort(rows["task"])]
        return [rows[name].tobytes() for name in SAME]

    one, other = before(stream(1, 2)), before(stream(1, 3))
    assert len(one[0]) > 0 and one == other


def test_a_look_ahead_from_the_start_is_the_run() -> None:
    workload = stream(1)
    begun = Simulation(workload, CLUSTER, planned.PLANNED)
    fresh, rows = begun.state.classes.sleep_after_s.copy(), np.arange(len(workload))
    fresh[:] = np.inf
    outlook = Outlook(begun.state, CLUSTER, rows, planned.PLANNED, 0.0)
    course = following.by_settings(rehearsal.reference(rehearsal.LOAD))
    look = outlook.look(lambda state: following.put(state, CLUSTER, rows, course, fresh), outlook.left(0.0, 0))
    run = simulate(workload, CLUSTER, USUAL)
    assert look.energy_j == pytest.approx(run.total_j)
    assert look.end_s == pytest.approx(run.end_s_by_task())


def test_a_look_ahead_from_the_middle_ends_as_the_run_does() -> None:
    workload = stream(1)
    run = simulate(workload, CLUSTER, USUAL)
    half = Simulation(workload, CLUSTER, USUAL)
    half.advance(0.5 * run.makespan_s)
    rows = np.arange(len(workload))
    outlook = Outlook(half.state, CLUSTER, rows, USUAL, float(half.state.clock.now[0]))
    look = outlook.look(lambda state: None, outlook.left(0.0, 0))
    open_then = look.end_s > half.state.clock.now[0]
    assert 0 < open_then.sum() < len(workload)
    assert look.end_s[open_then] == pytest.approx(run.end_s_by_task()[open_then], rel=0.02)


def test_a_plan_is_followed_to_its_end_when_estimates_are_wrong() -> None:
    run = simulate(stream(1, 2), CLUSTER, POLICY, seed=3, options=SimOptions(runtime_error=0.4))
    assert np.isfinite(run.end_s_by_task()).all()


def test_without_estimates_it_is_the_portfolio() -> None:
    workload = stream(1)
    unknown = replace(workload, estimate_s=np.where(np.arange(len(workload)) == 0, np.nan, workload.estimate_s))
    ours, theirs = (simulate(unknown, CLUSTER, policy) for policy in (POLICY, USUAL))
    assert [ours.attempts[name].tobytes() for name in SAME] == [theirs.attempts[name].tobytes() for name in SAME]


def test_nodes_sleep_when_a_plan_does_not_need_them() -> None:
    number = next(i for i, node in enumerate(CLUSTER.nodes) if node.name == "fast-0")
    node = CLUSTER.nodes[number]
    assert node.sleep is not None
    spans = {number: np.array([[0.0, 10.0], [500.0, 510.0]])}
    found = following.orders(spans, CLUSTER, 0.0, frozenset())
    assert [row for row in found if row[1] == number][:2] == [(10.0, number, 0), (500.0 - node.sleep.wake_s, number, 1)]
    others = {row[1]: row for row in found if row[1] != number}
    assert len(others) == len(CLUSTER.nodes) - 1 and all(row[::2] == (0.0, 0) for row in others.values())
    asleep = following.orders(spans, CLUSTER, 0.0, frozenset({0, number}))
    assert not [row for row in asleep if row[1] == 0]
    late = following.orders({number: np.array([[60.0, 70.0]])}, CLUSTER, 0.0, frozenset({number}))
    assert late[0][:2] != (0.0, number) and (60.0 - node.sleep.wake_s, number, 1) in late


def live_node(name: str, cores: int = 4, threads: int = 1) -> Node:
    return Node(
        name, cores, 16 * GIB, threads_per_core=threads, sleep=Sleep(watts=5.0, enter_s=2.0, wake_s=60.0),
        power=PowerProfile.from_form("linear", cores * threads, 50.0, 150.0),
    )  # fmt: skip


def flow(name: str, tasks: int, cores: float = 1.0) -> Workflow:
    some = [Task(f"t{i}", f"t{i}", "f", runtime_s=30.0, variants=(Variant(cores=cores),)) for i in range(tasks)]
    return Workflow(name, tuple(some))


def test_a_live_engine_keeps_its_pins_and_its_dials() -> None:
    engine = Engine("planned:late=777", Cluster("c", (live_node("a"), live_node("b"))))
    shape, b = engine.shape((Variant(cores=4.0, memory_bytes=GIB),)), engine.nodes["b"]
    engine.put(TASK, shape, estimate_s=100.0, node=b)
    (first,) = engine.step(0.0).placements
    engine.put(TASK, shape, estimate_s=100.0, node=b)
    assert first.node == b and not engine.step(1.0).placements  # it waits for b, though a is free
    engine.node(live_node("new"))
    assert not engine.step(2.0).placements
    assert engine.state.params[list(planned.PLANNED.params).index("late")] == 777.0


def test_what_no_plan_can_place_runs_as_the_portfolio_would() -> None:
    work = Workload.of([flow("w", 1, cores=6.0)])
    run = simulate(work, Cluster("c", (live_node("a", threads=2),)), planned.PLANNED)
    assert run.attempts["outcome"].tolist() == [0]


@pytest.mark.parametrize("dial", ["search=0", "search=inf", "spread=-1", "load=2"])
def test_its_own_dials_have_limits(dial: str) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        registry.load(f"planned:{dial}")


def test_a_look_knows_that_a_node_is_waking() -> None:
    cluster = Cluster("c", (live_node("a"), live_node("b")))
    work = Workload.of([flow("one", 8), replace(flow("two", 8), submit_s=300.0)])
    policy = wattflow.WATTFLOW
    end_s = simulate(work, cluster, policy).end_s_by_task()
    simulation = Simulation(work, cluster, policy)
    simulation.advance(330.0)
    assert (np.asarray(simulation.state.nodes["power_state"]) == WAKING).any()
    outlook = Outlook(simulation.state, cluster, np.arange(16), policy, 330.0)
    seen = outlook.look(lambda _: None, outlook.left(0.0, 0))
    assert seen.end_s[8:] == pytest.approx(end_s[8:])
