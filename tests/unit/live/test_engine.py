"""The live engine by hand: one rule a test."""

from __future__ import annotations

import math
from typing import Any

import pytest

from wattflow.live import (
    CANCEL,
    EDGE,
    ESTIMATE,
    FAILED,
    FINISHED,
    GONE,
    LOAD,
    NODE,
    PLACEHOLDER,
    PREEMPT,
    REFUSED,
    RESIZE,
    SEAL,
    STARTED,
    TASK,
    Act,
    BadEvent,
    Constraint,
    Engine,
    Kind,
    Match,
    NotLive,
    Outcome,
    Power,
    Step,
    Taint,
    TimeWentBack,
    Toleration,
    UnknownId,
)
from wattflow.live.protocol import row_of
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.policy import registry

GIB = 1 << 30
CURVE = PowerProfile((0.0, 4.0), (50.0, 130.0))


def engine_with(*cores: int, policy: str = "least-loaded", **settings: Any) -> tuple[Engine, list[int]]:
    """An engine and its nodes, on since time 0."""
    engine = Engine(policy, **settings)
    nodes = [engine.node(Node(f"n{i}", c, 8 * GIB, power=CURVE)) for i, c in enumerate(cores)]
    engine.step(0.0)
    return engine, nodes


def one_core(engine: Engine, cores: float = 1.0, **more: object) -> int:
    return engine.shape([Variant(cores=cores, memory_bytes=GIB)], **more)  # type: ignore[arg-type]


def tags(step: Step) -> list[int]:
    return [placement.tag for placement in step.placements]


def test_a_task_is_placed_and_ends() -> None:
    engine, (node,) = engine_with(2)
    task = engine.put(TASK, one_core(engine), tag=7)
    (placement,) = engine.step(1.0).placements
    assert (placement.task, placement.node, placement.tag) == (task, node, 7)
    engine.put(STARTED, placement.attempt)
    engine.put(FINISHED, placement.attempt)
    step = engine.step(2.0)
    assert [(e.task, e.outcome) for e in step.ended] == [(task, Outcome.DONE)]
    assert engine.counts["open"] == engine.counts["running"] == 0


def test_a_placement_names_the_variant_that_was_chosen() -> None:
    """The tables of kept costs once wrote 0 over it, and a filter for an FPGA was sent to a CPU's variant."""
    engine = Engine("least-energy")
    power = PowerProfile((0, 2), (50, 80))
    engine.node(Node("n", cores=2, memory_bytes=1 << 33, devices=(Device("fpga"),), power=power))
    offers = [Variant(cores=1), Variant(cores=1, device="fpga", devices=1, runtime_factor=0.1)]
    shape = engine.shape(offers, "f")
    for tag in range(2):
        engine.put(TASK, shape, estimate_s=2.0, tag=tag)
    assert [(one.variant, one.devices) for one in engine.step(0.0).placements] == [(1, 1), (0, 0)]


def test_a_finish_that_comes_twice_counts_as_stale_and_changes_nothing() -> None:
    engine, _ = engine_with(2)
    shape = one_core(engine)
    engine.put(TASK, shape)
    (placement,) = engine.step(1.0).placements
    engine.put(FINISHED, placement.attempt)
    engine.step(2.0)
    engine.put(TASK, shape)
    (second,) = engine.step(3.0).placements
    assert second.attempt != placement.attempt
    engine.put(FINISHED, placement.attempt)
    engine.step(4.0)
    assert engine.counts["stale"] == 1 and engine.counts["running"] == 1


def test_edges_hold_a_child_back_and_late_ones_take_it_from_the_queue() -> None:
    engine, _ = engine_with(2)
    shape = one_core(engine, 2.0)
    flow = engine.workflow()
    first, second = engine.put(TASK, shape, workflow=flow, tag=1), engine.put(TASK, shape, workflow=flow, tag=2)
    (placement,) = engine.step(1.0).placements
    assert placement.task == first
    third = engine.put(TASK, shape, workflow=flow, tag=3)
    engine.put(EDGE, third, second)
    assert engine.step(2.0).placements == []
    engine.put(FINISHED, placement.attempt)
    (placement,) = engine.step(3.0).placements
    assert placement.tag == 3
    engine.put(FINISHED, placement.attempt)
    engine.put(SEAL, flow)
    (placement,) = engine.step(4.0).placements
    assert placement.tag == 2


def test_a_cycle_by_a_late_edge_is_rejected_with_its_reason() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine, 1.0), engine.workflow()
    engine.put(TASK, shape, tag=0)
    a, b = engine.put(TASK, shape, workflow=flow), engine.put(TASK, shape, workflow=flow)
    engine.put(EDGE, a, b)
    engine.put(EDGE, b, a)
    engine.put(EDGE, a, a)
    step = engine.step(1.0)
    assert [(r.kind, r.who, "cycle" in r.reason) for r in step.rejected] == [
        (Kind.EDGE, b, True), (Kind.EDGE, a, True)]  # fmt: skip


def test_edges_need_one_open_workflow() -> None:
    engine, _ = engine_with(4)
    shape, flow = one_core(engine), engine.workflow()
    a, b = engine.put(TASK, shape, workflow=flow), engine.put(TASK, shape)
    engine.put(EDGE, a, b)
    step = engine.step(1.0)
    assert "one workflow" in step.rejected[0].reason and len(step.placements) == 2


def test_a_placeholder_stands_for_unknown_work_until_it_is_sealed() -> None:
    engine, _ = engine_with(4)
    shape, flow = one_core(engine), engine.workflow()
    first = engine.put(TASK, shape, workflow=flow, tag=1)
    unknown = engine.put(TASK, PLACEHOLDER, workflow=flow)
    last = engine.put(TASK, shape, workflow=flow, tag=9)
    engine.put(EDGE, first, unknown)
    engine.put(EDGE, unknown, last)
    (placement,) = engine.step(1.0).placements
    engine.put(FINISHED, placement.attempt)
    assert engine.step(2.0).placements == []
    found = [engine.put(TASK, shape, workflow=flow, tag=2) for _ in range(2)]
    for task in found:
        engine.put(EDGE, task, last)
    engine.put(SEAL, unknown)
    step = engine.step(3.0)
    assert tags(step) == [2, 2]
    for placement in step.placements:
        engine.put(FINISHED, placement.attempt)
    assert tags(engine.step(4.0)) == [9]


def test_refused_gives_back_everything_and_the_old_place_in_the_queue() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    engine.put(TASK, shape, tag=1)
    (placement,) = engine.step(1.0).placements
    engine.put(TASK, shape, tag=2)
    engine.step(2.0)
    before = engine.state.nodes.copy(), engine.state.tasks.ready.copy()
    engine.put(REFUSED, placement.attempt)
    (again,) = engine.step(3.0).placements
    assert again.tag == 1 and again.attempt_no == 0 and again.attempt != placement.attempt
    assert (engine.state.nodes == before[0]).all() and (engine.state.tasks.ready == before[1]).all()


def test_refused_until_a_time_parks_the_task_and_says_when_to_come_back() -> None:
    engine, _ = engine_with(1)
    task = engine.put(TASK, one_core(engine), tag=1)
    (placement,) = engine.step(1.0).placements
    engine.put(REFUSED, placement.attempt, until_s=10.0)
    step = engine.step(2.0)
    assert step.placements == [] and step.wake_at == 10.0 and engine.why(task).state == "parked"
    assert tags(engine.step(10.0)) == [1]


@pytest.mark.parametrize("policy", ["least-loaded", "sjf", "wfp3"])
def test_cancelling_a_waiting_task_leaves_the_others_in_order(policy: str) -> None:
    engine, _ = engine_with(1, policy=policy)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=float(10 + t), tag=t) for t in range(6)]
    (placement,) = engine.step(1.0).placements
    assert placement.tag == 0
    for t in (2, 4):
        engine.put(CANCEL, tasks[t])
    step = engine.step(2.0)
    assert sorted((e.tag, e.outcome) for e in step.ended) == [(2, Outcome.CANCELLED), (4, Outcome.CANCELLED)]
    order = []
    for now in range(3, 6):
        engine.put(FINISHED, placement.attempt)
        (placement,) = engine.step(float(now)).placements
        order.append(placement.tag)
    assert order == [1, 3, 5]
    engine.put(FINISHED, placement.attempt)
    engine.step(6.0)
    assert engine.counts["waiting"] == engine.counts["open"] == 0
    assert (engine.state.tasks.state == 9).all()


def test_cancelling_a_running_task_asks_for_its_end_and_keeps_its_amounts_till_then() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    task = engine.put(TASK, shape, tag=1)
    (placement,) = engine.step(1.0).placements
    engine.put(TASK, shape, tag=2)
    engine.put(CANCEL, task)
    step = engine.step(2.0)
    assert [(a.kind, a.who) for a in step.actions] == [(Act.STOP, placement.attempt)] and step.placements == []
    engine.put(FAILED, placement.attempt)
    step = engine.step(3.0)
    assert tags(step) == [2] and step.ended[0].outcome == Outcome.CANCELLED


def test_preempted_goes_back_to_its_place_and_no_try_is_counted() -> None:
    engine, _ = engine_with(1)
    low, high = one_core(engine), one_core(engine, level=5)
    engine.put(TASK, low, tag=1)
    (placement,) = engine.step(1.0).placements
    engine.put(TASK, low, tag=2)
    engine.put(TASK, high, tag=3)
    engine.put(PREEMPT, placement.attempt)
    assert engine.step(2.0).actions[0].kind == Act.STOP
    engine.put(FAILED, placement.attempt)
    (placement,) = engine.step(3.0).placements
    assert placement.tag == 3  # the higher level goes first
    engine.put(FINISHED, placement.attempt)
    (placement,) = engine.step(4.0).placements
    assert placement.tag == 1 and placement.attempt_no == 0


def test_failures_are_tried_again_and_then_given_up_with_their_children() -> None:
    engine, _ = engine_with(1, max_retries=1)
    shape, flow = one_core(engine), engine.workflow()
    parent, child = engine.put(TASK, shape, workflow=flow, tag=1), engine.put(TASK, shape, workflow=flow, tag=2)
    engine.put(EDGE, parent, child)
    engine.put(SEAL, flow)
    (placement,) = engine.step(1.0).placements
    engine.put(FAILED, placement.attempt)
    (placement,) = engine.step(2.0).placements
    assert placement.attempt_no == 1
    engine.put(FAILED, placement.attempt)
    step = engine.step(3.0)
    assert [(e.tag, e.outcome) for e in step.ended] == [(1, Outcome.FAILED), (2, Outcome.CANCELLED)]
    assert engine.counts["open"] == 0


def test_a_gang_is_placed_whole_and_stopped_whole() -> None:
    engine, nodes = engine_with(2, 2)
    gang = one_core(engine, 2.0, parts=2)
    engine.put(TASK, gang, tag=1)
    step = engine.step(1.0)
    assert sorted(pl.node for pl in step.placements) == sorted(nodes)
    a, b = step.placements
    engine.put(FAILED, a.attempt)
    step = engine.step(2.0)
    assert [(x.kind, x.who) for x in step.actions] == [(Act.STOP, b.attempt)] and step.placements == []
    engine.put(FAILED, b.attempt)
    assert len(engine.step(3.0).placements) == 2


def test_a_lost_node_ends_what_ran_there_and_a_node_that_is_gone_is_forgotten() -> None:
    engine, _ = engine_with(1, 1)
    shape = one_core(engine)
    engine.put(TASK, shape, tag=1)
    (placement,) = engine.step(1.0).placements
    engine.put(NODE, placement.node, state=Power.DOWN)
    (again,) = engine.step(2.0).placements
    assert again.node != placement.node and again.attempt_no == 1
    engine.put(GONE, again.node)
    assert engine.step(3.0).placements == []
    engine.put(FINISHED, again.attempt)
    engine.put(NODE, again.node, state=Power.ON)
    engine.step(4.0)
    assert engine.counts["stale"] == 2 and again.node not in engine.nodes.values()
    engine.put(NODE, placement.node, state=Power.ON)
    assert tags(engine.step(5.0)) == [1]


def test_others_load_is_absolute_and_capacity_may_change() -> None:
    engine, (node,) = engine_with(4)
    shape = one_core(engine, 2.0)
    for _ in range(2):
        engine.put(LOAD, node, cores=3.0, memory_bytes=GIB)
    engine.put(TASK, shape, tag=1)
    assert engine.step(1.0).placements == []
    engine.put(LOAD, node, cores=1.0)
    (placement,) = engine.step(2.0).placements
    engine.put(TASK, shape, tag=2)
    engine.step(3.0)
    engine.put(RESIZE, placement.attempt, cores=1.0)
    assert tags(engine.step(4.0)) == [2]
    engine.put(NODE, node, cores=2.0)
    engine.put(TASK, one_core(engine, 1.0), tag=3)
    assert engine.step(5.0).placements == []


def test_countable_resources_are_counted_per_node() -> None:
    engine = Engine("least-loaded")
    node = engine.node(Node("n", 8, 8 * GIB), counts={"pods": 2})
    shape = engine.shape([Variant(cores=1)], counts={"pods": 1})
    for t in range(3):
        task = engine.put(TASK, shape, tag=t)
    step = engine.step(1.0)
    assert tags(step) == [0, 1] and str(engine.why(task)) == "0/1: 1 pods"
    engine.put(LOAD, node, counts={"pods": 1})
    engine.put(FINISHED, step.placements[0].attempt)
    assert engine.step(2.0).placements == []
    engine.node(Node("n", 8, 8 * GIB), counts={"pods": 3})
    assert tags(engine.step(3.0)) == [2]


def test_labels_taints_and_names_keep_tasks_where_they_belong() -> None:
    engine = Engine("least-loaded")
    a = engine.node(Node("a", 4, 8 * GIB), labels={"zone": "x"})
    b = engine.node(Node("b", 4, 8 * GIB), labels={"zone": "y"}, taints=(Taint("gpu-pool"),))
    plain = [Variant(cores=1)]
    in_y = Constraint(any_of=((Match("zone", "in", ("y",)),),))
    tolerant = Constraint(in_y.any_of, tolerates=(Toleration("gpu-pool"),))
    named = Constraint(nodes=("a",))
    wishes = {1: None, 2: in_y, 3: tolerant, 4: named}
    tasks = {}
    for tag, wish in wishes.items():
        rule = None if wish is None else engine.constraint(wish)
        tasks[tag] = engine.put(TASK, engine.shape(plain, constraint=rule), tag=tag)
    where = {pl.tag: pl.node for pl in engine.step(1.0).placements}
    assert where == {1: a, 3: b, 4: a}
    assert engine.why(tasks[2]).reasons == {"zone": 1, "gpu-pool": 1}
    engine.node(Node("b", 4, 8 * GIB), labels={"zone": "y"})
    assert {pl.tag: pl.node for pl in engine.step(2.0).placements} == {2: b}


@pytest.mark.parametrize("policy", ["heft", "peft"])
def test_planners_plan_only_where_tasks_may_go(policy: str) -> None:
    engine = Engine(policy)
    engine.node(Node("fast", 8, 8 * GIB, speed=4.0, power=CURVE), labels={"zone": "x"})
    slow = [engine.node(Node(f"slow{i}", 1, 8 * GIB, power=CURVE), labels={"zone": "y"}) for i in range(2)]
    engine.step(0.0)
    rule = engine.constraint(Constraint(any_of=((Match("zone", "in", ("y",)),),)))
    shape = engine.shape([Variant(cores=1)], constraint=rule)
    flow = engine.workflow()
    for tag in range(4):
        engine.put(TASK, shape, workflow=flow, estimate_s=10.0, tag=tag)
    engine.put(SEAL, flow)
    seen: list[tuple[int, int]] = []
    for turn in range(1, 4):
        placed = engine.step(10.0 * turn).placements
        seen += [(pl.tag, pl.node) for pl in placed]
        for pl in placed:
            engine.put(STARTED, pl.attempt)
            engine.put(FINISHED, pl.attempt)
    assert sorted(tag for tag, _ in seen) == [0, 1, 2, 3]
    assert sorted(node for _, node in seen) == sorted(slow * 2), "both of the nodes that may be used are used"


def test_a_plan_holds_a_task_to_its_node_though_that_is_the_first() -> None:
    engine = Engine("heft")
    fast = engine.node(Node("fast", 1, 8 * GIB, speed=4.0, power=CURVE))
    engine.node(Node("slow", 1, 8 * GIB, power=CURVE))
    flow = engine.workflow()
    first, second = (engine.put(TASK, one_core(engine), workflow=flow, estimate_s=10.0, tag=tag) for tag in range(2))
    engine.put(EDGE, first, second)
    engine.put(SEAL, flow)
    (placed,) = engine.step(1.0).placements
    assert placed.node == fast
    assert int(engine.state.tasks.pinned[row_of(second)]) == row_of(fast)


def test_planners_leave_a_task_free_where_no_node_takes_all() -> None:
    engine = Engine("heft")
    x = engine.node(Node("x", 2, 8 * GIB, power=CURVE), labels={"zone": "x"})
    y = engine.node(Node("y", 2, 8 * GIB, power=CURVE), labels={"zone": "y"})
    flow = engine.workflow()
    for tag, zone in enumerate("xy"):
        rule = engine.constraint(Constraint(any_of=((Match("zone", "in", (zone,)),),)))
        engine.put(TASK, engine.shape([Variant(cores=1)], constraint=rule), workflow=flow, estimate_s=10.0, tag=tag)
    engine.put(SEAL, flow)
    assert {pl.tag: pl.node for pl in engine.step(1.0).placements} == {0: x, 1: y}


def test_devices_are_taken_and_given_back() -> None:
    card = Device("gpu", "a100", 40 * GIB, power=DeviceProfile((0.0, 1.0), (30.0, 250.0)))
    engine = Engine("least-loaded")
    engine.node(Node("g", 8, 64 * GIB, devices=(card, card)))
    shape = engine.shape([Variant(cores=1, device="gpu", devices=1)])
    for t in range(3):
        task = engine.put(TASK, shape, tag=t)
    step = engine.step(1.0)
    assert sorted(pl.devices for pl in step.placements) == [1, 2] and str(engine.why(task)) == "0/1: 1 devices"
    engine.put(REFUSED, step.placements[1].attempt)
    assert tags(engine.step(2.0)) == [step.placements[1].tag]


def test_sleep_and_wake_are_asked_for() -> None:
    engine = Engine("least-energy:sleep=30")
    node = engine.node(Node("n", 4, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0, enter_s=1.0)))
    step = engine.step(0.0)
    assert step.wake_at < math.inf
    step = engine.step(step.wake_at)
    assert [(a.kind, a.who) for a in step.actions] == [(Act.SLEEP, node)]
    engine.put(NODE, node, state=Power.ASLEEP)
    later = step.wake_at if step.wake_at < math.inf else 1e4
    engine.step(later)
    engine.put(TASK, one_core(engine), tag=1)
    step = engine.step(later + 1)
    assert tags(step) == [1] and [(a.kind, a.who) for a in step.actions] == [(Act.WAKE, node)]


def test_a_node_that_cannot_sleep_has_no_time_out() -> None:
    engine = Engine("least-energy:sleep=30")
    engine.node(Node("n", 4, 8 * GIB, power=CURVE))
    assert engine.step(0.0).wake_at == math.inf
    assert engine.state.classes.sleep_after_s[0] == math.inf and not engine.step(1e4).actions


def test_a_warm_container_comes_back_with_a_refusal() -> None:
    engine = Engine("least-loaded")
    engine.node(Node("n", 4, 8 * GIB))
    shape = engine.shape([Variant(cores=1)], Function("f", cold_start_s=3.0))
    engine.put(TASK, shape)
    (placement,) = engine.step(1.0).placements
    engine.put(FINISHED, placement.attempt)
    engine.step(2.0)
    containers = engine.state.containers.idle_since[int(engine.state.nodes.first_container[0])]
    engine.put(TASK, shape)
    (placement,) = engine.step(3.0).placements
    assert engine.state.nodes.first_container[0] == -1
    engine.put(REFUSED, placement.attempt, until_s=9.0)
    engine.step(4.0)
    assert engine.state.containers.idle_since[int(engine.state.nodes.first_container[0])] == containers == 2.0


def test_a_cap_that_holds_one_task_of_a_shape_holds_all_without_a_look_at_each() -> None:
    engine, _ = engine_with(4, 4)
    engine.use(registry.load("power-cap", share=0.01))
    small, large = one_core(engine), one_core(engine, 2.0)
    for tag in range(500):
        engine.put(TASK, (small, large)[tag % 2], estimate_s=10.0, tag=tag)
    first = engine.step(1.0)
    assert tags(first) == [0], "where nothing runs one task may exceed the cap"
    before = engine.counts["scored"]
    engine.put(TASK, small, estimate_s=10.0, tag=500)
    assert not engine.step(2.0).placements
    assert engine.counts["scored"] - before <= 4, "one look for each shape, at two kinds of nodes"
    engine.put(FINISHED, first.placements[0].attempt)
    assert tags(engine.step(3.0)) == [1], "the next in the queue, of the other shape"


def test_another_policy_takes_the_queue_over() -> None:
    engine, _ = engine_with(1, policy="least-loaded")
    shape = one_core(engine)
    for t, estimate in enumerate((5.0, 9.0, 7.0, 3.0)):
        engine.put(TASK, shape, estimate_s=estimate, tag=t)
    (placement,) = engine.step(1.0).placements
    order = []
    for now, policy in enumerate(("sjf", "wattflow", "kubernetes"), 2):
        engine.use(policy)
        engine.put(FINISHED, placement.attempt)
        (placement,) = engine.step(float(now)).placements
        order.append(placement.tag)
    assert order[0] == 3 and sorted(order) == [1, 2, 3] and engine.counts["waiting"] == 0


def test_a_policy_that_knows_the_future_is_refused_with_the_reason() -> None:
    with pytest.raises(NotLive, match=r"nsga2.*whole workload"):
        Engine("nsga2")


def test_a_better_estimate_changes_the_order() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shape = one_core(engine)
    engine.put(TASK, shape, estimate_s=1.0)
    tasks = [engine.put(TASK, shape, estimate_s=10.0 * t, tag=t) for t in (1, 2, 3)]
    (placement,) = engine.step(1.0).placements
    engine.put(ESTIMATE, tasks[2], 2.0)
    engine.put(FINISHED, placement.attempt)
    assert tags(engine.step(2.0)) == [3]


def test_explain_lists_candidates_cheapest_first_and_changes_nothing() -> None:
    engine, nodes = engine_with(4, 8, policy="kubernetes")
    shape = one_core(engine)
    first = engine.put(TASK, shape, tag=1)
    engine.put(LOAD, nodes[0], cores=4.0)
    engine.put(LOAD, nodes[1], cores=8.0)
    engine.step(1.0)
    assert engine.explain(first) == []
    engine.put(LOAD, nodes[0], cores=1.0)
    engine.put(LOAD, nodes[1], cores=7.5)
    engine.put(TASK, one_core(engine, 20.0), tag=2)
    assert tags(engine.step(2.0)) == [1]
    assert str(engine.why(first)) == "placed"


def test_bad_calls_are_typed_errors_and_leave_the_engine_as_it_was() -> None:
    engine, (node,) = engine_with(1)
    shape = one_core(engine)
    task = engine.put(TASK, shape)
    engine.step(5.0)
    for bad in (0, 17, -3, node, shape, task + (1 << 32), task + 100_000):
        with pytest.raises(UnknownId):
            engine.put(FINISHED, bad)
    for now in (4.0, math.nan):
        with pytest.raises(TimeWentBack):
            engine.step(now)
    with pytest.raises(BadEvent, match="LOAD"):
        engine.put(LOAD, node, cars=3)
    with pytest.raises(BadEvent, match="negative"):
        engine.put(LOAD, node, cores=-1.0)
    with pytest.raises(BadEvent, match="no state"):
        engine.put(NODE, node, state=77)
    with pytest.raises(BadEvent, match="no kind"):
        engine.put("finished")  # type: ignore[arg-type]
    with pytest.raises(BadEvent, match="at least one variant"):
        engine.shape([])
    assert engine.step(5.0).placements == [] and engine.counts["running"] == 1


def test_a_shape_that_fits_no_node_is_told_by_why_and_placed_when_one_comes() -> None:
    engine, _ = engine_with(2)
    task = engine.put(TASK, one_core(engine, 16.0), tag=1)
    engine.step(1.0)
    assert str(engine.why(task)) == "0/1: 1 cores"
    big = engine.node(Node("big", 32, 64 * GIB))
    (placement,) = engine.step(2.0).placements
    assert placement.node == big


def test_tables_double_and_rows_are_used_again() -> None:
    engine, _ = engine_with(*[4] * 3)
    shape = engine.shape([Variant(cores=0.001)])
    for round_ in range(3):
        for t in range(3000):
            engine.put(TASK, shape, tag=t)
        step = engine.step(float(round_))
        assert len(step.placements) == 3000
        for placement in step.placements:
            engine.put(FINISHED, placement.attempt)
    engine.step(9.0)
    assert engine.counts["open"] == 0 and len(engine.state.tasks) == 8192 and len(engine.state.attempts) == 4096


def test_thousands_of_nodes_and_shapes_come_and_go_without_a_trace() -> None:
    engine, _ = engine_with(4)
    sizes = None
    for turn in range(40):
        nodes = [engine.node(Node(f"x{i}", 2 + i % 7, GIB * (1 + i), speed=1 + i % 3 / 10)) for i in range(50)]
        shapes = [engine.shape([Variant(cores=0.1 + i / 1000)]) for i in range(turn, turn + 50)]
        for shape in shapes:
            engine.put(TASK, shape)
        step = engine.step(float(2 * turn + 1))
        for placement in step.placements:
            engine.put(FINISHED, placement.attempt)
        for node in nodes:
            engine.put(GONE, node)
        for shape in shapes:
            engine.drop(shape)
        engine.step(float(2 * turn + 2))
        now = {name: getattr(engine.state, name).shape for name in engine.state.NAMES}
        if turn == 1:
            sizes = now
    assert now == sizes and len(engine.nodes) == 1 and engine.counts["open"] == 0


def test_a_cancelled_child_stays_cancelled_when_its_parent_ends() -> None:
    engine = Engine("fifo", seed=1)
    engine.node(Node("a", cores=4, memory_bytes=1 << 30))
    shape = engine.shape([Variant(cores=1)])
    flow = engine.workflow()
    parent, child = (engine.put(TASK, shape, workflow=flow, estimate_s=1.0) for _ in range(2))
    engine.put(EDGE, parent, child)
    (placement,) = engine.step(0.0).placements
    engine.put(CANCEL, child)
    assert [end.task for end in engine.step(1.0).ended] == [child]
    engine.put(FINISHED, placement.attempt)
    assert not engine.step(2.0).placements


def test_the_flagship_runs_on_after_nodes_have_come_and_gone() -> None:
    engine = Engine("wattflow", seed=1)
    nodes = [engine.node(Node(f"n{i}", cores=2, memory_bytes=1 << 30)) for i in range(3)]
    shape = engine.shape([Variant(cores=1)])
    engine.step(0.0)
    for node in nodes[:2]:
        engine.put(GONE, node)
    engine.step(1.0)
    engine.put(TASK, shape, estimate_s=1.0)
    assert [placement.node for placement in engine.step(2.0).placements] == [nodes[2]]


@pytest.mark.parametrize("limit", [0, 2, 512])
def test_a_limit_of_scored_nodes_does_not_hide_those_that_are_on_from_who_may_wake_others(limit: int) -> None:
    """While others sleep, a task goes to the node that is on, whether all candidates are scored or only some."""
    engine = Engine("eft:sleep=120", score_limit=limit)
    nodes = [
        engine.node(Node(f"n{i}", 4, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=50.0, after_s=1e9)))
        for i in range(5)
    ]
    shape = engine.shape([Variant(cores=1.0)])
    engine.step(0.0)
    for node in (*nodes[:2], *nodes[3:]):
        engine.put(NODE, node, state=Power.ASLEEP)
    engine.put(TASK, shape, estimate_s=10.0)
    step = engine.step(1.0)
    assert [one.node for one in step.placements] == [nodes[2]] and not step.actions
