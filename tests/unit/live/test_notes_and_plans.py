"""Notes of workflows for a policy, and what is kept of those that arrived: numbers by hand, played planners."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattflow.engine.settings import PolicySettings
from wattflow.live import (
    EDGE,
    FINISHED,
    GONE,
    LOOSE,
    NODE,
    PLACEHOLDER,
    REFUSED,
    SEAL,
    STARTED,
    TASK,
    Constraint,
    Engine,
    NotLive,
    Power,
    Taint,
)
from wattflow.live.protocol import row_of
from wattflow.live.recent_workflows import Arrived, ArrivedWindow
from wattflow.live.workflow_notes import live_policy, needs_places, open_flows, tasks_of
from wattflow.model.cluster import Cluster, Node, Zone
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Variant
from wattflow.policy.base import HOLD, Committed, Plan, Policy

from .test_engine import CURVE, GIB, engine_with, one_core

SLACK = Policy("slack", slack=True, settings=PolicySettings())


def one_node(policy: str | Policy, cores: int = 1, nodes: int = 1) -> Engine:
    engine = Engine(policy)
    for i in range(nodes):
        engine.node(Node(f"n{i}", cores, 8 * GIB, power=CURVE))
    engine.step(0.0)
    return engine


# Which policies look at workflows


def test_a_policy_sees_workflows_for_its_rank_its_plan_or_slack() -> None:
    assert not needs_places(Policy("plain")) and needs_places(SLACK)
    assert needs_places(Policy("rank", rank=lambda workload, cluster: np.zeros(1)))
    assert needs_places(Policy("plan", plan=lambda workload, cluster, committed: Plan(np.zeros(1), np.zeros(1))))  # type: ignore[arg-type]


def test_a_policy_is_asked_whether_it_is_ready_and_must_not_know_the_future() -> None:
    asked = []
    assert live_policy(Policy("p", ready=lambda: asked.append(1))).name == "p" and asked == [1]

    def missing() -> None:
        raise InvalidInput("weights", "not there")

    with pytest.raises(InvalidInput, match="not there"):
        Engine(Policy("p", ready=missing))
    with pytest.raises(NotLive, match="policy 'seer' plans the whole workload before the first arrival"):
        Engine(Policy("seer", knows_future=True))


# Slack and rank


def test_slack_is_what_the_deadline_leaves_beside_the_path() -> None:
    engine = one_node(SLACK, 4)
    shape = one_core(engine)
    flow = engine.workflow(submit_s=10.0, deadline_s=100.0)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=s) for s in (5.0, 20.0, 1.0, 2.0)]
    for one, other in ((0, 1), (0, 2), (1, 3), (2, 3)):
        engine.put(EDGE, tasks[one], tasks[other])
    engine.step(10.0)
    rows = [row_of(task) for task in tasks]
    extra = engine.state.extra
    assert extra.typical[rows].tolist() == [5.0, 20.0, 1.0, 2.0] and extra.path[rows].tolist() == [27.0] * 4
    assert extra.start_at[rows].tolist() == [100.0 - 27.0, 100.0 - 22.0, 100.0 - 3.0, 100.0 - 2.0]
    assert extra.slack[rows].tolist() == [63.0, 63.0, 82.0, 63.0]


def test_without_a_deadline_what_lies_beside_the_path_has_slack_and_the_path_none() -> None:
    engine = one_node(SLACK, 4)
    shape, flow = one_core(engine), engine.workflow(submit_s=3.0)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=s) for s in (5.0, 20.0, 1.0)]
    engine.put(EDGE, tasks[0], tasks[1])
    engine.put(EDGE, tasks[0], tasks[2])
    engine.step(4.0)
    rows = [row_of(task) for task in tasks]
    assert engine.state.extra.start_at[rows].tolist() == [3.0, 8.0, 27.0]
    assert engine.state.extra.slack[rows].tolist() == [0.0, 0.0, 19.0]


def test_a_deadline_that_cannot_be_met_leaves_no_slack_and_not_less() -> None:
    engine = one_node(SLACK, 4)
    task = engine.put(TASK, one_core(engine), estimate_s=50.0, deadline_s=20.0)
    engine.step(5.0)
    row = row_of(task)
    assert (engine.state.extra.start_at[row], engine.state.extra.slack[row]) == (5.0, 0.0)


def test_what_comes_after_others_begins_after_them_also_where_the_deadline_cannot_be_met() -> None:
    engine = one_node(SLACK, 4)
    shape, flow = one_core(engine), engine.workflow(submit_s=10.0, deadline_s=12.0)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=s) for s in (5.0, 20.0)]
    engine.put(EDGE, *tasks)
    engine.step(10.0)
    rows = [row_of(task) for task in tasks]
    assert engine.state.extra.start_at[rows].tolist() == [10.0, 15.0]
    assert engine.state.extra.slack[rows].tolist() == [0.0, 0.0]


def test_a_rank_is_asked_for_each_change_and_told_all_that_is_open() -> None:
    seen: list[tuple[list[float], int]] = []

    def rank(workload: Any, cluster: Any) -> Any:
        seen.append((workload.estimate_s.tolist(), len(cluster.nodes)))
        return np.arange(len(workload.estimate_s))[::-1].astype(np.float64)

    engine = one_node(Policy("rank", rank=rank, settings=PolicySettings()), 1, 2)
    shape, flow = one_core(engine, 9.0), engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=s) for s in (1.0, 2.0)]
    engine.step(1.0)
    engine.step(2.0)
    assert seen == [([1.0, 2.0], 2)] and engine.state.extra.rank[[row_of(t) for t in tasks]].tolist() == [1.0, 0.0]
    loose = engine.put(TASK, shape, estimate_s=7.0)
    engine.step(3.0)
    assert seen[1:] == [([7.0], 2)] and engine.state.extra.rank[row_of(loose)] == 0.0
    engine.put(TASK, shape, workflow=flow, estimate_s=3.0)
    engine.step(4.0)
    assert seen[2:] == [([1.0, 2.0, 3.0], 2)]


def test_open_flows_are_those_with_open_tasks_and_tasks_alone() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    flows = [engine.workflow(), engine.workflow(), engine.workflow()]
    engine.put(TASK, shape, workflow=flows[1])
    engine.put(TASK, PLACEHOLDER, workflow=flows[2])
    parked = engine.put(TASK, shape)
    waiting = engine.put(TASK, shape)
    placed = engine.step(1.0).placements
    assert open_flows(engine.state) == ([row_of(flows[2])], [row_of(parked), row_of(waiting)])
    engine.put(FINISHED, placed[0].attempt)
    (one,) = engine.step(2.0).placements
    engine.put(REFUSED, one.attempt, until_s=50.0)
    (other,) = engine.step(3.0).placements
    assert other.task == waiting and open_flows(engine.state) == ([row_of(flows[2])], [row_of(parked)])
    assert tasks_of(engine.state, row_of(flows[0])) == []


# Workflows as they are known


def test_a_known_workflow_has_its_times_edges_and_deadlines() -> None:
    engine = one_node("fifo")
    shape = one_core(engine, 9.0)
    flow = engine.workflow(submit_s=2.0, deadline_s=40.0)
    a = engine.put(TASK, shape, workflow=flow, estimate_s=5.0, release_s=1.0, input_bytes=3.0)
    b = engine.put(TASK, shape, workflow=flow, release_s=9.0, deadline_s=30.0)
    c = engine.put(TASK, PLACEHOLDER, workflow=flow, deadline_s=90.0)
    engine.put(EDGE, a, c, size_bytes=4.0)
    engine.put(EDGE, b, c, size_bytes=6.0)
    alone = engine.put(TASK, shape, estimate_s=1.0)
    later = engine.put(TASK, shape, estimate_s=1.0, release_s=50.0)
    engine.step(7.0)
    found = engine.known([row_of(flow)], [row_of(alone), row_of(later)])
    assert found is not None and found.name == "live"
    assert found.workflow.tolist() == [0, 0, 0, 1, 2] and found.workflow_names == ("0", "1", "2")
    assert found.workflow_submit_s.tolist() == [2.0, 7.0, 50.0]
    assert found.release_s.tolist() == [2.0, 9.0, 2.0, 7.0, 50.0]
    assert found.estimate_s.tolist() == found.runtime_s.tolist() == [5.0, 0.0, 0.0, 1.0, 1.0]
    assert found.deadline_s.tolist() == [40.0, 30.0, 40.0, math.inf, math.inf]
    assert found.input_bytes.tolist() == [3.0, 0.0, 0.0, 0.0, 0.0] and not found.output_bytes.any()
    assert found.parent_start.tolist() == [0, 0, 0, 2, 2, 2] and sorted(found.parent.tolist()) == [0, 1]
    assert dict(zip(found.parent.tolist(), found.parent_bytes.tolist(), strict=True)) == {0: 4.0, 1: 6.0}
    assert found.shape.tolist() == [1, 1, 0, 1, 1] and found.shapes[0].variants == (Variant(),)
    assert found.shapes[1].variants[0].cores == 9.0 and found.shapes[1].parts == 1
    assert engine.known([], []) is None and engine.known([row_of(engine.workflow())]) is None


def test_a_parent_that_is_not_asked_about_is_left_out() -> None:
    engine = one_node("fifo")
    shape, flow = one_core(engine), engine.workflow()
    a, b = (engine.put(TASK, shape, workflow=flow, estimate_s=1.0) for _ in range(2))
    engine.put(EDGE, a, b, size_bytes=4.0)
    engine.step(1.0)
    found = engine.known([], [row_of(b)])
    assert (
        found is not None
        and found.parent_start.tolist() == [0, 0]
        and len(found.parent) == len(found.parent_bytes) == 0
    )


# The cluster as it is


def test_the_cluster_has_the_zones_of_its_base_and_those_that_came() -> None:
    base = Cluster("base", (Node("a", 1, GIB, zone="z0"),), (Zone("z0", pue=1.5), Zone("z1")))
    engine = Engine("fifo", base)
    engine.node(Node("b", 1, GIB, zone="z2"))
    engine.step(0.0)
    assert engine.cluster.name == "base" and [zone.name for zone in engine.cluster.zones] == ["z0", "z1", "z2"]
    assert engine.cluster.zones[0].pue == 1.5 and [node.name for node in engine.cluster.nodes] == ["a", "b"]
    bare = Engine("fifo")
    bare.node(Node("x", 1, GIB))
    bare.step(0.0)
    assert bare.cluster.name == "live" and len(bare.cluster.zones) == 1 and bare.cluster is bare.cluster


def test_a_node_that_leaves_while_its_name_comes_again_goes_by_its_row() -> None:
    engine = one_node("fifo", 1, 2)
    engine.put(GONE, engine.nodes["n0"])
    engine.node(Node("n0", 4, 8 * GIB))
    engine._places.nodes_changed()
    assert [node.name for node in engine.cluster.nodes] == ["n0 (0, leaving)", "n1", "n0"]
    engine.step(1.0)
    engine.step(2.0)
    assert [node.name for node in engine.cluster.nodes] == ["n1", "n0"]


# Plans


class Planner:
    """Plans each workflow as it is told to, and keeps what it was given."""

    def __init__(self, **plan: Any) -> None:
        self.plan_, self.seen = plan, list[tuple[list[float], list[str], Committed]]()
        self.error: Exception | None = None

    def __call__(self, workload: Any, cluster: Any, committed: Committed) -> Plan:
        known = replace(committed, holds=committed.holds.copy())
        self.seen.append((workload.estimate_s.tolist(), [node.name for node in cluster.nodes], known))
        if self.error is not None:
            raise self.error
        count = len(workload.estimate_s)
        usual = {"node": np.zeros(count, np.int32), "order": np.arange(count, dtype=np.float64)}
        return Plan(**usual | {name: make(count) for name, make in self.plan_.items()})  # type: ignore[arg-type]


def planned(planner: Planner, cores: int = 1, nodes: int = 2) -> Engine:
    return one_node(Policy("planned", plan=planner, settings=PolicySettings(), params={"x": 3.0}), cores, nodes)


def holds(count: int, node: int = 0, start_s: float = 0.0, end_s: float = 50.0) -> Any:
    made = np.zeros(count, HOLD)
    made["task"], made["node"], made["start_s"], made["end_s"] = np.arange(count), node, start_s, end_s
    return made


def test_a_plan_pins_orders_and_names_variants() -> None:
    planner = Planner(node=lambda n: np.array([1, -1, 0][:n], np.int32), order=lambda n: np.array([5.0, 6.0, 7.0][:n]),
                      variant=lambda n: np.array([0, 1, 0][:n], np.int32))  # fmt: skip
    engine = planned(planner, 4)
    shape = engine.shape([Variant(cores=1), Variant(cores=2)])
    flow = engine.workflow(submit_s=2.0)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=s, tag=int(s)) for s in (1.0, 2.0, 3.0)]
    placed = {one.tag: one for one in engine.step(4.0).placements}
    rows = [row_of(task) for task in tasks]
    assert engine.state.extra.rank[rows].tolist() == [5.0, 6.0, 7.0]
    assert engine.state.tasks.pinned[rows].tolist() == [1, -1, 0]
    assert engine.state.tasks.pinned_variant[rows].tolist() == [0, 1, 0]
    assert row_of(placed[1].node) == 1 and row_of(placed[3].node) == 0 and placed[2].variant == 1
    (seen,) = planner.seen
    assert (
        seen[0] == [1.0, 2.0, 3.0] and seen[1] == ["n0", "n1"] and seen[2].now_s == 2.0 and seen[2].params == {"x": 3.0}
    )


def test_lanes_of_a_plan_are_edges_and_those_across_workflows_are_not() -> None:
    after = (np.array([2, 0], np.int32), np.array([3, 2], np.int32))
    planner = Planner(holds=holds)
    engine = planned(planner, 8, 1)
    shape = one_core(engine)
    first = engine.workflow()
    for tag in range(2):
        engine.put(TASK, shape, workflow=first, estimate_s=9.0, tag=tag)
    assert len(engine.step(1.0).placements) == 2
    planner.plan_["after"] = lambda n: after
    second = engine.workflow()
    a, b = (engine.put(TASK, shape, workflow=second, estimate_s=9.0, tag=10 + tag) for tag in range(2))
    (one,) = engine.step(2.0).placements
    assert one.task == a and engine.describe(b)["parents_open"] == 1 and engine.describe(a)["parents_open"] == 0
    held = planner.seen[1][2].holds
    assert held["task"].tolist() == [0, 1] and held["node"].tolist() == [0, 0] and len(planner.seen[0][2].holds) == 0
    engine.put(FINISHED, one.attempt)
    (two,) = engine.step(3.0).placements
    assert two.task == b


def test_what_is_committed_ends_with_its_time_and_is_not_held_against_its_own_tasks() -> None:
    planner = Planner(holds=lambda n: holds(n, end_s=20.0))
    engine = planned(planner)
    shape = one_core(engine, 9.0)
    flows = [engine.workflow(submit_s=0.0) for _ in range(2)]
    first = engine.put(TASK, shape, workflow=flows[0], estimate_s=1.0)
    engine.step(1.0)
    engine.put(TASK, shape, workflow=flows[0], estimate_s=2.0)
    engine.step(2.0)
    assert len(planner.seen[1][2].holds) == 0, "its own"
    engine.put(TASK, shape, workflow=flows[1], estimate_s=3.0)
    engine.step(3.0)
    assert planner.seen[2][2].holds["task"].tolist() == [row_of(first), row_of(first) + 1]
    late = engine.workflow(submit_s=20.0)
    engine.put(TASK, shape, workflow=late, estimate_s=4.0)
    engine.step(20.0)
    assert len(planner.seen[3][2].holds) == 0, "they end at 20"


def test_a_workflow_that_has_begun_is_planned_on_from_now_and_without_what_is_placed() -> None:
    planner = Planner()
    engine = planned(planner)
    shape, flow = one_core(engine), engine.workflow(submit_s=0.0)
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    engine.step(5.0)
    engine.put(TASK, shape, workflow=flow, estimate_s=2.0)
    engine.step(7.0)
    assert [(one[0], one[2].now_s) for one in planner.seen] == [([1.0], 0.0), ([2.0], 7.0)]
    engine.put(TASK, shape, estimate_s=3.0)
    engine.step(8.0)
    assert (planner.seen[2][0], planner.seen[2][2].now_s) == ([3.0], 8.0)


def test_a_planner_sees_the_nodes_that_all_of_its_tasks_may_use_by_their_number_among_them() -> None:
    planner = Planner(holds=lambda n: holds(n, node=0))
    engine = planned(planner, 1, 3)
    rule = engine.constraint(Constraint(nodes=("n1", "n2")))
    bound, free = one_core(engine, 9.0, constraint=rule), one_core(engine, 9.0)
    flow = engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0) for shape in (bound, free)]
    engine.step(1.0)
    assert planner.seen[0][1] == ["n1", "n2"]
    assert engine.state.tasks.pinned[[row_of(t) for t in tasks]].tolist() == [1, 1]
    assert engine._places.committed.holds["node"].tolist() == [1, 1]
    engine.put(TASK, bound, workflow=engine.workflow(), estimate_s=2.0)
    engine.step(2.0)
    assert planner.seen[1][2].holds["node"].tolist() == [0, 0], "their number among those that it is shown"
    engine.put(TASK, free, workflow=engine.workflow(), estimate_s=2.0)
    engine.step(3.0)
    assert planner.seen[2][1] == ["n0", "n1", "n2"] and planner.seen[2][2].holds["node"].tolist() == [1, 1, 1]
    other = engine.constraint(Constraint(nodes=("n0",)))
    engine.put(TASK, one_core(engine, 9.0, constraint=other), workflow=engine.workflow(), estimate_s=2.0)
    engine.step(4.0)
    assert planner.seen[3][1] == ["n0"] and planner.seen[3][2].holds["node"].tolist() == [0]


def test_tasks_that_no_node_takes_together_are_planned_over_all_and_pinned_where_they_may_go() -> None:
    planner = Planner(node=lambda n: np.array([0, 0], np.int32))
    engine = planned(planner, 1, 2)
    shapes = [one_core(engine, 9.0, constraint=engine.constraint(Constraint(nodes=(name,)))) for name in ("n0", "n1")]
    flow = engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0) for shape in shapes]
    engine.step(1.0)
    assert planner.seen[0][1] == ["n0", "n1"]
    assert engine.state.tasks.pinned[[row_of(t) for t in tasks]].tolist() == [0, -1]


def test_a_tainted_node_is_not_planned_on() -> None:
    planner = Planner()
    engine = planned(planner, 1, 2)
    engine.node(Node("n0", 1, 8 * GIB, power=CURVE), taints=(Taint("t"),))
    engine.put(TASK, one_core(engine), workflow=engine.workflow(), estimate_s=1.0)
    engine.step(1.0)
    assert planner.seen[0][1] == ["n1"]


def test_holds_move_with_their_nodes_and_go_with_them() -> None:
    planner = Planner(holds=lambda n: np.concatenate([holds(n, node=0, end_s=99.0), holds(n, node=2, end_s=99.0)]))
    engine = planned(planner, 1, 3)
    engine.put(TASK, one_core(engine, 9.0), workflow=engine.workflow(), estimate_s=1.0)
    engine.step(1.0)
    assert engine._places.committed.holds["node"].tolist() == [0, 2]
    engine.put(GONE, engine.nodes["n0"])
    engine.step(2.0)
    engine.put(TASK, one_core(engine, 9.0), workflow=engine.workflow(), estimate_s=1.0)
    planner.plan_ = {}
    engine.step(3.0)
    assert planner.seen[1][1] == ["n1", "n2"] and planner.seen[1][2].holds["node"].tolist() == [1]


def test_a_planner_that_raises_leaves_its_tasks_to_the_policy_and_says_why() -> None:
    planner = Planner()
    engine = planned(planner)
    planner.error = ValueError("no way")
    shape, flow = one_core(engine), engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0) for _ in range(3)]
    assert len(engine.step(1.0).placements) == 2
    assert engine.why(tasks[2]).unplanned == "planned cannot plan it: ValueError: no way"
    assert str(engine.why(tasks[2])).endswith("; planned cannot plan it: ValueError: no way")
    planner.error = InvalidInput("task", "fits no node")
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    engine.step(2.0)
    assert engine.why(tasks[2]).unplanned == f"planned cannot plan it: {planner.error}"
    planner.error = None
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    engine.step(3.0)
    assert engine.why(tasks[2]).unplanned == "" and not str(engine.why(tasks[2])).endswith("; ")
    planner.error = ValueError("again")
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    engine.step(4.0)
    engine.use("fifo")
    assert engine.why(tasks[2]).unplanned == ""


# What arrived of late


def step(engine: Engine, arrived: Arrived, now_s: float) -> list[int]:
    made = engine.step(now_s)
    arrived.note(engine, now_s, made)
    arrived.read(engine)
    return [one.attempt for one in made.placements]


def test_seconds_are_those_of_a_node_of_speed_one_and_never_nought() -> None:
    engine = Engine("fifo")
    engine.node(Node("fast", 2, 8 * GIB, speed=4.0, power=CURVE))
    arrived = Arrived()
    step(engine, arrived, 0.0)
    shape = one_core(engine)
    for estimate in (10.0, None):
        engine.put(TASK, shape, estimate_s=estimate)
    first, second = step(engine, arrived, 1.0)
    for attempt in (first, second):
        engine.put(STARTED, attempt)
    step(engine, arrived, 2.0)
    engine.put(FINISHED, first)
    engine.put(FINISHED, second)
    step(engine, arrived, 5.0)
    seen = ArrivedWindow().take(arrived.told(anew=True))
    assert seen.runtime_s[0].tolist() == [12.0], "three seconds at speed 4"
    assert seen.runtime_s[1].tolist() == [3.0], "nothing was expected, so nothing is known of its node"
    engine.put(TASK, shape, estimate_s=10.0)
    (third,) = step(engine, arrived, 6.0)
    engine.put(STARTED, third)
    engine.put(FINISHED, third)
    step(engine, arrived, 7.0)
    assert ArrivedWindow().take(arrived.told(anew=True)).runtime_s[2].tolist() == [1e-3] and arrived.ended == 3


def test_of_a_gang_the_longest_part_counts() -> None:
    engine = one_node("fifo", 2)
    arrived = Arrived()
    step(engine, arrived, 0.5)
    engine.put(TASK, one_core(engine, parts=2), estimate_s=10.0)
    first, second = step(engine, arrived, 1.0)
    for attempt in (first, second):
        engine.put(STARTED, attempt)
    step(engine, arrived, 1.0)
    engine.put(FINISHED, first)
    step(engine, arrived, 9.0)
    engine.put(FINISHED, second)
    step(engine, arrived, 4.0 + 5.0)
    assert ArrivedWindow().take(arrived.told(anew=True)).runtime_s[0].tolist() == [8.0]


@pytest.mark.parametrize(
    ("flows", "tasks", "kept", "forgotten"),
    [(3, 100, 3, 2), (5, 100, 5, 0), (100, 6, 3, 2), (100, 7, 3, 2), (100, 1, 1, 4), (100, 10, 5, 0)],
)
def test_as_many_workflows_and_tasks_are_kept_as_asked_for_and_one_at_least(
    flows: int, tasks: int, kept: int, forgotten: int
) -> None:
    engine = one_node("fifo")
    arrived = Arrived(most_flows=flows, most_tasks=tasks)
    step(engine, arrived, 0.5)
    shape = one_core(engine, 9.0)
    for number in range(5):
        flow = engine.workflow()
        for _ in range(2):
            engine.put(TASK, shape, workflow=flow, estimate_s=1.0 + number)
        step(engine, arrived, 1.0 + number)
    assert (len(arrived), arrived.forgotten, arrived.arrived) == (kept, forgotten, 5)
    seen = ArrivedWindow().take(arrived.told(anew=True))
    assert seen.number == forgotten and [one.estimate_s[0] for one in seen.flows] == [
        1.0 + n for n in range(5 - kept, 5)
    ]
    assert len(arrived._of_task) == 2 * kept and len(arrived._of_flow) == kept


@pytest.mark.parametrize(("tasks", "reads"), [(9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_a_workflow_that_grows_is_read_when_a_tenth_has_changed(tasks: int, reads: int) -> None:
    engine = one_node("fifo")
    arrived = Arrived()
    step(engine, arrived, 0.5)
    shape, flow = one_core(engine, 9.0), engine.workflow()
    for _ in range(tasks):
        engine.put(TASK, shape, workflow=flow)
    step(engine, arrived, 1.0)
    for number in range(1, reads + 1):
        assert len(arrived._parts[0].tasks) == tasks
        assert arrived._parts[0].changes == number - 1
        engine.put(TASK, shape, workflow=flow)
        step(engine, arrived, 1.0 + number)
    assert len(arrived._parts[0].tasks) == tasks + reads and arrived._parts[0].changes == 0


def test_an_edge_alone_is_a_change_too() -> None:
    engine = one_node("fifo")
    arrived = Arrived()
    step(engine, arrived, 0.5)
    shape, flow = one_core(engine, 9.0), engine.workflow()
    a, b = (engine.put(TASK, shape, workflow=flow) for _ in range(2))
    step(engine, arrived, 1.0)
    assert len(ArrivedWindow().take(arrived.told(anew=True)).flows[0].parent) == 0
    engine.put(EDGE, a, b)
    step(engine, arrived, 2.0)
    assert ArrivedWindow().take(arrived.told(anew=True)).flows[0].parent.tolist() == [0]


def test_runtimes_that_are_known_stay_when_a_workflow_is_read_again() -> None:
    engine = one_node("fifo", 2)
    arrived = Arrived()
    step(engine, arrived, 0.5)
    shape, flow = one_core(engine), engine.workflow()
    for _ in range(2):
        engine.put(TASK, shape, workflow=flow, estimate_s=4.0)
    first, _ = step(engine, arrived, 1.0)
    engine.put(STARTED, first)
    step(engine, arrived, 2.0)
    engine.put(FINISHED, first)
    step(engine, arrived, 5.0)
    engine.put(TASK, shape, workflow=flow, estimate_s=4.0)
    step(engine, arrived, 6.0)
    (found,) = ArrivedWindow().take(arrived.told(anew=True)).runtime_s
    assert found[0] == 3.0 and np.isnan(found[1:]).all() and len(found) == 3


def test_a_workflow_ends_when_it_is_sealed_and_over_and_once() -> None:
    engine = one_node("fifo", 2)
    arrived = Arrived()
    step(engine, arrived, 0.5)
    shape = one_core(engine)
    flows = [engine.workflow(), engine.workflow()]
    for flow in flows:
        engine.put(TASK, shape, workflow=flow, estimate_s=4.0)
    first, second = step(engine, arrived, 1.0)
    engine.put(FINISHED, first)
    step(engine, arrived, 2.0)
    assert arrived.ended == 0 and np.isnan(ArrivedWindow().take(arrived.told(anew=True)).end_s).all()
    engine.put(SEAL, flows[0])
    step(engine, arrived, 3.0)
    assert (
        arrived.ended == 1
        and ArrivedWindow().take(arrived.told(anew=True)).end_s[0] == 3.0
        and np.isnan(ArrivedWindow().take(arrived.told(anew=True)).end_s[1])
    )
    engine.put(SEAL, flows[1])
    engine.put(FINISHED, second)
    step(engine, arrived, 4.0)
    step(engine, arrived, 5.0)
    assert arrived.ended == 2 and ArrivedWindow().take(arrived.told(anew=True)).end_s.tolist() == [3.0, 4.0]
    assert arrived._parts[0].gone.tolist() == [True] and arrived._of_flow == {}


@pytest.mark.parametrize(
    ("lost", "running", "kept"), [(64, 0, 64), (65, 0, 0), (67, 3, 70), (68, 3, 3), (60, 3, 63), (1, 40, 41)]
)
def test_attempts_of_which_no_end_was_told_are_dropped_when_they_are_many(lost: int, running: int, kept: int) -> None:
    engine = Engine("fifo")
    nodes = [engine.node(Node(name, 100, 8 * GIB, power=CURVE)) for name in ("lost", "stays")]
    arrived = Arrived()
    step(engine, arrived, 0.0)
    shape = engine.shape([Variant(cores=1)])
    for node, count in zip(nodes, (lost, running), strict=True):
        for _ in range(count):
            engine.put(TASK, shape, node=node)
    assert len(step(engine, arrived, 1.0)) == len(arrived._running) == lost + running
    engine.put(NODE, nodes[0], state=Power.DOWN)
    step(engine, arrived, 2.0)
    assert len(arrived._running) == kept and engine.counts["running"] == running


def test_loose_tasks_are_workflows_of_their_own_and_end_alone() -> None:
    engine = one_node("fifo", 2)
    arrived = Arrived()
    shape = one_core(engine)
    engine.put(TASK, shape, LOOSE, estimate_s=2.0)
    engine.put(TASK, shape, estimate_s=3.0)
    first, second = step(engine, arrived, 1.0)
    assert len(arrived) == 1 and arrived.arrived == 2, "kept together, counted one by one"
    engine.put(FINISHED, first)
    step(engine, arrived, 2.0)
    assert arrived.ended == 1 and arrived._parts[0].gone.tolist() == [True, False]
    engine.put(FINISHED, second)
    step(engine, arrived, 3.0)
    assert arrived.ended == 2 and ArrivedWindow().take(arrived.told(anew=True)).end_s.tolist() == [2.0, 3.0]
