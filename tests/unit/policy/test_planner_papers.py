"""The worked examples of the papers: costs by task and processor, makespans as printed."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.engine.settings import PolicySettings
from wattflow.engine.tables import UNKNOWN_COST
from wattflow.model.cluster import Cluster, Frequency, Network, Node, Sleep, Zone
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import cpop, peft, planning
from wattflow.policy.planning import timeline

# Topcuoglu et al. 2002, table 1 and figure 2.
HEFT_COSTS = (
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
)  # fmt: skip
HEFT_EDGES = (
    (1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23),
    (4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13),
)  # fmt: skip
# Arabnejad and Barbosa 2014, figure 1.
PEFT_COSTS = (
    (22, 21, 36), (22, 18, 18), (32, 27, 43), (7, 10, 4), (29, 27, 35),
    (26, 17, 24), (14, 25, 30), (29, 23, 36), (15, 21, 8), (13, 16, 33),
)  # fmt: skip
PEFT_EDGES = (
    (1, 2, 17), (1, 3, 31), (1, 4, 29), (1, 5, 13), (1, 6, 7), (2, 8, 3), (2, 9, 30), (3, 7, 16),
    (4, 8, 11), (4, 9, 7), (5, 9, 57), (6, 8, 5), (7, 10, 9), (8, 10, 42), (9, 10, 7),
)  # fmt: skip


def example(costs, edges) -> planning.PlanningProblem:
    """Each task its own function, each processor a node of one core with links of one byte a second."""
    count = len(costs)
    nodes = tuple(
        Node(
            f"p{p}",
            cores=1,
            memory_bytes=0,
            function_speed={f"f{t}": 1 / costs[t][p] for t in range(count)},
            network=Network(bandwidth_bytes_per_s=1.0),
        )
        for p in range(3)
    )
    workload = Workload.of_columns(
        "example",
        release_s=np.zeros(count),
        runtime_s=np.ones(count),
        functions=[Function(f"f{t}") for t in range(count)],
        shapes=[Shape(t, (Variant(),)) for t in range(count)],
        shape=np.arange(count),
        edges=(np.array([e[0] - 1 for e in edges]), np.array([e[1] - 1 for e in edges])),
        edge_bytes=np.array([e[2] for e in edges], np.float64),
    )
    return planning.problem(workload, Cluster("three", nodes), {"overlap": 1.0})


def test_heft_upward_ranks_are_those_of_its_table():
    rank = planning.upward_rank(example(HEFT_COSTS, HEFT_EDGES))
    printed = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert rank == pytest.approx(printed, abs=1e-3)


@pytest.mark.parametrize(("costs", "edges", "printed"), [(HEFT_COSTS, HEFT_EDGES, 80), (PEFT_COSTS, PEFT_EDGES, 133)])
def test_heft_makespan(costs, edges, printed):
    problem = example(costs, edges)
    slots = planning.schedule(problem, planning.upward_rank(problem))
    assert planning.makespan_s(problem, slots) == pytest.approx(printed)


def test_cpop_makespan_and_critical_path():
    problem = example(HEFT_COSTS, HEFT_EDGES)
    length = cpop.priority(problem)
    only = cpop.path_nodes(problem, length)
    assert np.flatnonzero(only == 1).tolist() == [0, 1, 8, 9], "the paper's path is n1, n2, n9, n10, on P2"
    assert planning.makespan_s(problem, planning.schedule(problem, length, only=only)) == pytest.approx(86)


def test_the_critical_path_stays_on_its_processor_whichever_is_the_first():
    """The same example with P2 in front: ties aside nothing else moves, and the path does not leave node 0."""
    problem = example([(row[1], row[0], row[2]) for row in HEFT_COSTS], HEFT_EDGES)
    length = cpop.priority(problem)
    only = cpop.path_nodes(problem, length)
    assert np.flatnonzero(only == 0).tolist() == [0, 1, 8, 9]
    slots = planning.schedule(problem, length, only=only)
    assert slots.node[[0, 1, 8, 9]].tolist() == [0, 0, 0, 0]
    assert planning.makespan_s(problem, slots) == pytest.approx(86)


def test_only_bytes_from_another_zone_wait_for_the_zones_latency():
    link = Network(bandwidth_bytes_per_s=1.0, latency_s=0.5, zone_latency_s=7.0)
    nodes = [Node(f"n{n}", 1, 0, zone=zone, network=link) for n, zone in enumerate("aab")]
    workload = Workload.of_columns(
        "pair", release_s=np.zeros(2), runtime_s=np.ones(2), edges=(np.array([0]), np.array([1])),
        edge_bytes=np.array([3.0]),
    )  # fmt: skip
    problem = planning.problem(workload, Cluster("zones", tuple(nodes), (Zone("a"), Zone("b"))), {"overlap": 1.0})
    seconds = [timeline.message_s(problem.facts.handle(), source, 1, 3.0) for source in (0, 2, -1)]
    assert seconds == [3.5, 10.5, 3.5]


def test_peft_table_and_makespan():
    problem = example(PEFT_COSTS, PEFT_EDGES)
    table = peft.optimistic_costs(problem)
    printed = [
        (64, 68, 86), (42, 39, 42), (27, 41, 43), (42, 39, 50), (28, 37, 28),
        (42, 39, 44), (13, 16, 22), (13, 16, 33), (13, 16, 20), (0, 0, 0),
    ]  # fmt: skip
    assert table == pytest.approx(np.array(printed))
    rank = table @ problem.weight
    assert rank == pytest.approx([72.7, 41, 37, 43.7, 31, 41.7, 17, 20.7, 16.3, 0], abs=0.05)
    slots = planning.schedule(problem, rank, bias=table)
    assert planning.makespan_s(problem, slots) == pytest.approx(122)


def test_watts_of_a_planned_core_by_hand():
    # Four cores draw 180 − 100 W, so 20 W each; the node could sleep at 10 W, so each core also answers for a quarter
    # of 90 W. At the second level the watts above idle are a quarter, the idle ones stay. A node without a curve loses.
    watts = PowerProfile((0.0, 4.0, 8.0), (100.0, 180.0, 200.0))
    levels = (Frequency(), Frequency(0.5, 0.25))
    nodes = (
        Node("sleeps", 4, 0, threads_per_core=2, power=watts, sleep=Sleep(10.0, 5.0), frequencies=levels),
        Node("stays", 4, 0, threads_per_core=2, power=watts, frequencies=levels),
        Node("dark", 4, 0, threads_per_core=2, frequencies=levels),
    )
    workload = Workload.of_columns(
        "two cores", release_s=np.zeros(1), runtime_s=np.ones(1), shapes=[Shape(0, (Variant(cores=2),))]
    )
    found = planning.problem(workload, Cluster("by hand", nodes), {}, PolicySettings(frequencies=(0, 1))).facts
    assert found.watts[:, found.cls[0]].tolist() == pytest.approx([2 * (20 + 22.5), 2 * (5 + 22.5)])
    assert found.watts[:, found.cls[1]].tolist() == pytest.approx([2 * 20, 2 * 5])
    assert (found.watts[:, found.cls[2]] == UNKNOWN_COST).all()
