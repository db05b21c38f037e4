"""docs/driving.md, "The calls" and "Events": each call and event alone, with what it changes and what it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from wattflow.live import (
    CANCEL,
    COLD,
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
    Action,
    BadEvent,
    Constraint,
    Engine,
    Event,
    Match,
    Outcome,
    Placement,
    Power,
    Taint,
    UnknownId,
)
from wattflow.live.loop import run
from wattflow.model.cluster import Node, Serverless, Sleep
from wattflow.model.errors import BrokenPolicy
from wattflow.model.workflow import Function, Variant
from wattflow.policy import registry
from wattflow.policy.base import Policy

from .test_engine import CURVE, GIB, engine_with, one_core, tags

SLEEP = Sleep(2.0, wake_s=5.0, enter_s=1.0)


def finish(engine: Engine, placed: Sequence[Placement], now_s: float) -> Sequence[Placement]:
    for one in placed:
        engine.put(FINISHED, one.attempt)
    return engine.step(now_s).placements


# Tasks, edges, estimates


def test_a_task_released_now_arrives_now_and_a_later_one_at_its_time_in_the_order_of_the_puts() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    engine.put(TASK, shape, tag=1, release_s=8.0)
    engine.put(TASK, shape, tag=2, release_s=5.0)
    engine.put(TASK, shape, tag=3)
    step = engine.step(5.0)
    assert tags(step) == [2] and step.wake_at == 8.0, "released at this very time, and put before the other"
    engine.put(FINISHED, step.placements[0].attempt)
    step = engine.step(8.0)
    assert tags(step) == [3], "released tasks come behind those that wait"
    assert [one.tag for one in finish(engine, step.placements, 9.0)] == [1]


def test_a_task_cancelled_before_its_release_never_arrives_though_its_row_is_anothers() -> None:
    engine, _ = engine_with(4)
    shape = one_core(engine)
    gone = engine.put(TASK, shape, tag=1, release_s=50.0)
    engine.step(1.0)
    engine.put(CANCEL, gone)
    step = engine.step(2.0)
    assert [(one.tag, one.outcome) for one in step.ended] == [(1, Outcome.CANCELLED)]
    other = engine.put(TASK, shape, tag=2, release_s=90.0)
    assert other & 0xFFFFFFFF == gone & 0xFFFFFFFF, "the same row"
    engine.step(3.0)
    assert engine.step(50.0).placements == [] and tags(engine.step(90.0)) == [2]


def test_an_edge_to_a_parent_that_has_ended_well_holds_nobody() -> None:
    engine, _ = engine_with(2)
    shape, flow = one_core(engine), engine.workflow()
    first = engine.put(TASK, shape, workflow=flow, tag=1)
    assert finish(engine, engine.step(1.0).placements, 2.0) == []
    second = engine.put(TASK, shape, workflow=flow, tag=2)
    engine.put(EDGE, first, second)
    step = engine.step(3.0)
    assert tags(step) == [2] and not step.rejected


def test_an_edge_from_a_parent_that_was_given_up_cancels_the_child_and_says_so() -> None:
    engine, _ = engine_with(1, max_retries=0)
    shape, flow = one_core(engine), engine.workflow()
    first = engine.put(TASK, shape, workflow=flow, tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(FAILED, one.attempt)
    engine.step(2.0)
    child = engine.put(TASK, shape, workflow=flow, tag=2)
    engine.put(EDGE, first, child)
    step = engine.step(3.0)
    assert [(one.kind, one.who) for one in step.rejected] == [(EDGE, first)]
    assert "will not end well" in step.rejected[0].reason
    assert [(one.tag, one.outcome) for one in step.ended] == [(2, Outcome.CANCELLED)] and step.placements == []


def test_rejected_edges_leave_the_rest_of_the_step_as_it_is() -> None:
    engine, _ = engine_with(4)
    shape, flow, other = one_core(engine), engine.workflow(), engine.workflow()
    a, b = (engine.put(TASK, shape, workflow=flow, tag=t) for t in (1, 2))
    stranger = engine.put(TASK, shape, workflow=other, tag=3)
    engine.put(EDGE, a, b)
    engine.put(EDGE, b, a)
    engine.put(EDGE, a, stranger)
    engine.put(EDGE, b, b)
    step = engine.step(1.0)
    assert tags(step) == [1, 3]
    assert [one.reason.split()[0] for one in step.rejected] == ["the", "parent", "the"]
    assert engine.step(2.0).rejected == []


def test_a_better_estimate_re_keys_a_waiting_task_and_no_other() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=s, tag=t) for t, s in enumerate((1.0, 20.0, 30.0, 40.0))]
    placed = engine.step(1.0).placements
    engine.put(ESTIMATE, tasks[3], 10.0)
    engine.put(ESTIMATE, tasks[0], 99.0)
    engine.step(2.0)
    assert engine.describe(tasks[0])["estimate_s"] == 99.0
    order = []
    for now in (3.0, 4.0, 5.0):
        placed = finish(engine, placed, now)
        order += [one.tag for one in placed]
    assert order == [3, 1, 2]


def test_a_pinned_task_waits_for_its_node_alone() -> None:
    engine, (a, b) = engine_with(1, 4)
    shape = one_core(engine)
    for tag in (1, 2, 3):
        engine.put(TASK, shape, node=a, tag=tag)
    engine.put(TASK, shape, node=b, tag=4)
    placed = engine.step(1.0).placements
    assert {one.tag: one.node for one in placed} == {1: a, 4: b}
    assert [(one.tag, one.node) for one in finish(engine, placed[:1], 2.0)] == [(2, a)]


def test_prefer_puts_waiting_tasks_before_their_equals_and_not_before_a_higher_level() -> None:
    engine, _ = engine_with(1)
    low, high = one_core(engine), one_core(engine, level=3)
    tasks = [engine.put(TASK, low, tag=t) for t in range(4)]
    placed = engine.step(1.0).placements
    engine.put(TASK, high, tag=9)
    engine.step(2.0)
    engine.prefer([tasks[3], tasks[0], tasks[2]])
    order = []
    for now in range(3, 7):
        placed = finish(engine, placed, float(now))
        order += [one.tag for one in placed]
    assert order == [9, 2, 3, 1], "those preferred keep their own order"


# Attempts


def test_a_refused_attempt_gives_everything_back_at_once_and_the_time_it_waited_counts_on() -> None:
    engine, (node,) = engine_with(2)
    task = engine.put(TASK, one_core(engine, 2.0), tag=1)
    before = engine.describe(node)
    (one,) = engine.step(1.0).placements
    arrived = float(engine.state.tasks.arrived[task & 0xFFFFFFFF])
    assert engine.describe(node)["cores_used"] == 2.0 and engine.describe(node)["memory_used_bytes"] == GIB
    engine.put(REFUSED, one.attempt, until_s=30.0)
    engine.step(4.0)
    assert engine.describe(node) == before
    (two,) = engine.step(30.0).placements
    assert two.attempt_no == 0 and two.attempt != one.attempt
    assert float(engine.state.tasks.arrived[task & 0xFFFFFFFF]) == arrived


def test_resize_changes_what_a_running_attempt_holds_and_its_end_gives_that_back() -> None:
    engine, (node,) = engine_with(4)
    engine.put(TASK, one_core(engine, 2.0), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(RESIZE, one.attempt, memory_bytes=3 * GIB)
    engine.step(2.0)
    told = engine.describe(one.attempt)
    assert (told["cores"], told["memory_bytes"]) == (2.0, 3 * GIB)
    engine.put(RESIZE, one.attempt, cores=3.5)
    engine.step(3.0)
    told, there = engine.describe(one.attempt), engine.describe(node)
    assert (told["cores"], told["memory_bytes"]) == (3.5, 3 * GIB)
    assert (there["cores_used"], there["memory_used_bytes"]) == (3.5, 3 * GIB)
    finish(engine, [one], 4.0)
    there = engine.describe(node)
    assert (there["cores_used"], there["memory_used_bytes"], there["running"]) == (0.0, 0, 0)


def test_a_gang_that_loses_one_part_is_asked_to_stop_and_tried_again_once() -> None:
    engine, nodes = engine_with(1, 1, 1, max_retries=1)
    engine.put(TASK, one_core(engine, parts=3), tag=1)
    parts = engine.step(1.0).placements
    assert [one.part for one in parts] == [0, 1, 2] and sorted(one.node for one in parts) == sorted(nodes)
    engine.put(NODE, parts[1].node, state=Power.DOWN)
    step = engine.step(2.0)
    assert sorted(a.who for a in step.actions) == sorted(one.attempt for one in (parts[0], parts[2]))
    engine.put(FINISHED, parts[0].attempt)
    engine.put(NODE, parts[1].node, state=Power.ON)
    assert engine.step(3.0).placements == [], "one part holds on"
    engine.put(FAILED, parts[2].attempt)
    again = engine.step(4.0).placements
    assert len(again) == 3 and {one.attempt_no for one in again} == {1}
    for one in again:
        engine.put(FINISHED, one.attempt)
    assert [one.outcome for one in engine.step(5.0).ended] == [Outcome.DONE]


def test_all_parts_of_a_gang_must_finish_and_the_last_one_ends_the_task() -> None:
    engine, _ = engine_with(4)
    engine.put(TASK, one_core(engine, parts=2), tag=1)
    first, second = engine.step(1.0).placements
    engine.put(FINISHED, first.attempt)
    assert engine.step(2.0).ended == [] and engine.counts["running"] == 1
    engine.put(FINISHED, second.attempt)
    assert [one.tag for one in engine.step(3.0).ended] == [1]


def test_a_stop_is_asked_for_once_whoever_asks_and_not_for_one_that_ends_in_the_same_step() -> None:
    engine, _ = engine_with(2)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, tag=t) for t in (1, 2)]
    one, two = engine.step(1.0).placements
    engine.put(PREEMPT, one.attempt)
    engine.put(CANCEL, tasks[0])
    engine.put(CANCEL, tasks[1])
    engine.put(FINISHED, two.attempt)
    step = engine.step(2.0)
    assert [(a.kind, a.who, a.value) for a in step.actions] == [(Act.STOP, one.attempt, 0)]
    assert [(e.tag, e.outcome) for e in step.ended] == [(2, Outcome.DONE)]
    engine.put(FAILED, one.attempt)
    step = engine.step(3.0)
    assert [(e.tag, e.outcome) for e in step.ended] == [(1, Outcome.CANCELLED)] and step.placements == []


def test_cancel_of_a_workflow_cancels_what_waits_and_stops_what_runs() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    for tag in (1, 2):
        engine.put(TASK, shape, workflow=flow, tag=tag)
    stays = engine.put(TASK, shape, tag=3)
    (one,) = engine.step(1.0).placements
    engine.put(CANCEL, flow)
    step = engine.step(2.0)
    assert [a.who for a in step.actions] == [one.attempt] and [e.tag for e in step.ended] == [2]
    engine.put(FAILED, one.attempt)
    step = engine.step(3.0)
    assert [(e.tag, e.outcome) for e in step.ended] == [(1, Outcome.CANCELLED)] and tags(step) == [3]
    engine.put(CANCEL, flow)
    engine.put(CANCEL, stays)
    engine.step(4.0)
    assert engine.counts["stale"] == 0 or engine.describe(flow)


def test_what_is_cancelled_twice_or_after_its_end_is_stale() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    task = engine.put(TASK, shape, workflow=flow)
    finish(engine, engine.step(1.0).placements, 2.0)
    engine.put(CANCEL, task)
    engine.step(3.0)
    assert engine.counts["stale"] == 1, "it has ended, its workflow is open still"


# Nodes


def test_a_node_that_joins_takes_work_from_the_next_step_on_and_one_that_drains_takes_none() -> None:
    engine, (node,) = engine_with(2)
    shape = one_core(engine)
    engine.put(TASK, shape, tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(NODE, node, state=Power.DRAINING)
    engine.put(TASK, shape, tag=2)
    assert engine.step(2.0).placements == [] and engine.describe(one.attempt)["stage"] == "assumed"
    assert engine.describe(node)["state"] == "DRAINING"
    late = engine.node(Node("late", 1, GIB))
    (two,) = engine.step(3.0).placements
    assert two.node == late
    engine.put(NODE, node, state=Power.ON)
    engine.put(TASK, shape, tag=3)
    (three,) = engine.step(4.0).placements
    assert three.node == node


def test_what_a_node_offers_changes_by_what_is_told_alone() -> None:
    engine, (node,) = engine_with(2)
    engine.put(NODE, node, cores=5.0)
    engine.step(1.0)
    told = engine.describe(node)
    assert (told["cores"], told["memory_bytes"], told["state"]) == (5.0, 8 * GIB, "ON")
    engine.put(NODE, node, memory_bytes=GIB)
    engine.step(2.0)
    told = engine.describe(node)
    assert (told["cores"], told["memory_bytes"]) == (5.0, GIB)
    engine.put(TASK, one_core(engine, 5.0), tag=1)
    assert tags(engine.step(3.0)) == [1], "shapes fit that fitted no node of its class before"
    engine.put(NODE, node, cores=0.0, memory_bytes=0)
    engine.step(4.0)
    assert engine.describe(node)["cores"] == 0.0 and engine.describe(node)["memory_bytes"] == 0


def test_the_name_of_a_node_that_leaves_may_come_again_in_the_same_step() -> None:
    engine, (node,) = engine_with(1)
    engine.put(TASK, one_core(engine), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(GONE, node)
    again = engine.node(Node("n0", 2, 8 * GIB))
    assert again != node
    (two,) = engine.step(2.0).placements
    assert two.node == again and two.attempt_no == 1 and engine.nodes == {"n0": again}
    engine.put(FINISHED, one.attempt)
    engine.put(NODE, node, state=Power.ON)
    engine.step(3.0)
    assert engine.counts["stale"] == 2


@pytest.mark.parametrize("policy", ["fifo", "heft"])
def test_what_was_meant_for_a_node_that_is_gone_goes_elsewhere_and_not_to_whoever_has_its_row(policy: str) -> None:
    engine, nodes = engine_with(1, 1, policy=policy)
    shape, flow = one_core(engine), engine.workflow()
    for tag in range(4):
        engine.put(TASK, shape, workflow=flow, estimate_s=10.0, tag=tag, node=nodes[0] if policy == "fifo" else None)
    placed = list(engine.step(1.0).placements)
    engine.put(GONE, nodes[0])
    placed = [one for one in placed if one.node != nodes[0]]
    ended: list[int] = []
    for now in range(2, 9):
        for one in placed:
            engine.put(FINISHED, one.attempt)
        step = engine.step(float(now))
        placed = list(step.placements)
        ended += [one.tag for one in step.ended]
        assert all(one.node == nodes[1] for one in placed)
    assert sorted(ended) == [0, 1, 2, 3]


def test_the_same_name_changes_labels_alone_taints_alone_and_counts_alone() -> None:
    engine = Engine("fifo")
    labels, counts = {"zone": "x"}, {"pods": 1}
    node = engine.node(Node("n", 4, 8 * GIB), labels, (), counts)
    rule = engine.constraint(Constraint(any_of=((Match("zone", "in", ("y",)),),)))
    picky = engine.put(TASK, engine.shape([Variant(cores=1)], constraint=rule), tag=1)
    two = engine.shape([Variant(cores=1)], counts={"pods": 2})
    pods = engine.put(TASK, two, tag=2)
    assert engine.step(1.0).placements == []
    assert engine.node(Node("n", 4, 8 * GIB), {"zone": "y"}, (), counts) == node
    assert tags(engine.step(2.0)) == [1], "labels"
    engine.node(Node("n", 4, 8 * GIB), {"zone": "y"}, (Taint("t"),), {"pods": 2})
    assert engine.step(3.0).placements == [] and engine.why(pods).reasons == {"t": 1}
    engine.node(Node("n", 4, 8 * GIB), {"zone": "y"}, (), {"pods": 2, "gold": 1})
    assert tags(engine.step(4.0)) == [2], "counts"
    assert engine.describe(node)["counts_free"] == {"pods": 0, "gold": 1}
    engine.node(Node("n", 4, 8 * GIB), {"zone": "y"}, (), {"pods": 3})
    engine.step(5.0)
    assert engine.describe(node)["counts_free"] == {"pods": 1, "gold": 0} and picky


def test_sleep_is_asked_when_the_time_out_is_over_and_again_after_work() -> None:
    engine = Engine("least-energy:sleep=30")
    node = engine.node(Node("n", 4, 8 * GIB, power=CURVE, sleep=SLEEP))
    assert engine.step(0.0).wake_at == 30.0
    assert engine.step(29.0).actions == []
    engine.put(TASK, one_core(engine), tag=1)
    (one,) = engine.step(29.5).placements
    assert engine.step(30.0).actions == [], "it works"
    engine.put(FINISHED, one.attempt)
    step = engine.step(40.0)
    assert step.wake_at == 70.0 and engine.step(69.0).actions == []
    step = engine.step(70.0)
    assert [(a.kind, a.who) for a in step.actions] == [(Act.SLEEP, node)]
    assert engine.describe(node)["state"] == "FALLING" and step.wake_at == math.inf
    engine.put(NODE, node, state=Power.ASLEEP)
    engine.step(71.0)
    assert engine.describe(node)["state"] == "ASLEEP"
    engine.put(TASK, one_core(engine), tag=2)
    step = engine.step(80.0)
    assert tags(step) == [2] and [(a.kind, a.who) for a in step.actions] == [(Act.WAKE, node)]
    assert engine.describe(node)["state"] == "WAKING"
    engine.put(NODE, node, state=Power.ON)
    engine.put(STARTED, step.placements[0].attempt)
    assert engine.step(86.0).actions == [] and engine.describe(node)["state"] == "ON"


def test_a_node_that_is_wanted_while_it_falls_asleep_is_woken_when_it_sleeps() -> None:
    engine = Engine("least-energy:sleep=30")
    node = engine.node(Node("n", 4, 8 * GIB, power=CURVE, sleep=SLEEP))
    engine.step(0.0)
    assert [a.kind for a in engine.step(30.0).actions] == [Act.SLEEP]
    engine.put(TASK, one_core(engine), tag=1)
    step = engine.step(30.5)
    assert tags(step) == [1]
    woken = [a.kind for a in step.actions]
    engine.put(NODE, node, state=Power.ASLEEP)
    woken += [a.kind for a in engine.step(31.0).actions]
    assert woken == [Act.WAKE]


# Containers


def test_cold_takes_back_what_the_engine_believed_to_be_warm() -> None:
    engine = Engine("least-loaded")
    node = engine.node(Node("n", 4, 8 * GIB))
    shape = engine.shape([Variant(cores=1)], Function("f", cold_start_s=3.0))
    engine.put(TASK, shape)
    (one,) = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    assert int(engine.state.nodes.first_container[0]) >= 0
    engine.put(COLD, node, "f")
    engine.step(3.0)
    assert int(engine.state.nodes.first_container[0]) == -1
    with pytest.raises(BadEvent, match="no function named 'g'"):
        engine.put(COLD, node, "g")


def test_cold_where_nothing_has_a_cold_start_is_no_event() -> None:
    engine, (node,) = engine_with(1)
    engine.put(TASK, one_core(engine), tag=1)
    engine.put(COLD, node, "task")
    assert tags(engine.step(1.0)) == [1]


# Serverless platforms


def test_a_platform_grows_with_time_and_says_when_to_come_back() -> None:
    engine = Engine("fifo")
    engine.node(Node("cloud", 100, 1 << 50, serverless=Serverless(burst=2, ramp_per_s=1.0)))
    shape = engine.shape([Variant(cores=1)])
    for tag in range(5):
        engine.put(TASK, shape, tag=tag)
    step = engine.step(0.0)
    assert len(step.placements) == 2 and 0.0 < step.wake_at < math.inf
    placed = len(step.placements)
    while placed < 5:
        assert step.wake_at < 10.0
        step = engine.step(step.wake_at)
        placed += len(step.placements)


# Policies


def test_a_policy_that_breaks_says_so_and_another_may_finish_the_step() -> None:
    engine, _ = engine_with(2)
    broken = registry.load("least-energy")
    engine.use(Policy("broken", score=_not_a_number, settings=broken.settings))
    for tag in (1, 2):
        engine.put(TASK, one_core(engine), tag=tag)
    with pytest.raises(BrokenPolicy, match=r"'broken' returned NaN at 1 s"):
        engine.step(1.0)
    assert tags(engine.step_on("fifo")) == [1, 2] and engine.policy.name == "fifo"


def _not_a_number(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = math.nan


def test_use_orders_the_queue_anew_and_takes_the_numbers_of_the_new_policy_alone() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shape = one_core(engine)
    for tag, estimate in enumerate((5.0, 9.0, 7.0, 3.0)):
        engine.put(TASK, shape, estimate_s=estimate, tag=tag)
    placed = engine.step(1.0).placements
    assert [one.tag for one in placed] == [3]
    engine.use("fifo")
    assert not engine.state.params.any()
    order = []
    for now in (2.0, 3.0):
        placed = finish(engine, placed, now)
        order += [one.tag for one in placed]
    engine.use("sjf")
    order += [one.tag for one in finish(engine, placed, 4.0)]
    assert order == [0, 1, 2]


def test_what_was_cancelled_in_the_queue_stays_away_when_it_is_ordered_anew() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=10.0 + t, tag=t) for t in range(5)]
    placed = engine.step(1.0).placements
    engine.put(CANCEL, tasks[2])
    engine.step(2.0)
    engine.use("fifo")
    order = []
    for now in (3.0, 4.0, 5.0):
        placed = finish(engine, placed, now)
        order += [one.tag for one in placed]
    assert order == [1, 3, 4] and finish(engine, placed, 6.0) == []
    assert engine.counts["open"] == engine.counts["waiting"] == 0
    fresh = [engine.put(TASK, shape, tag=10 + t) for t in range(3)]
    assert len(set(fresh)) == 3 and tags(engine.step(7.0)) == [10]


# Shapes and constraints


def test_constraints_of_equal_values_are_one_and_a_dropped_one_is_stale_once_no_shape_names_it() -> None:
    engine, _ = engine_with(1)
    rule = engine.constraint(Constraint(nodes=("n0",)))
    assert engine.constraint(Constraint(nodes=("n0",))) == rule
    shape = engine.shape([Variant(cores=1)], constraint=rule)
    engine.drop(rule)
    engine.put(TASK, shape, tag=1)
    placed = engine.step(1.0).placements
    assert [one.tag for one in placed] == [1], "a shape names it still"
    engine.drop(shape)
    finish(engine, placed, 2.0)
    with pytest.raises(UnknownId, match="dropped"):
        engine.put(TASK, shape)
    with pytest.raises(UnknownId, match="dropped"):
        engine.shape([Variant(cores=2)], constraint=rule)
    again = engine.constraint(Constraint(nodes=("n0",)))
    assert again != rule, "another life of the same row"
    engine.put(TASK, engine.shape([Variant(cores=1)], constraint=again), tag=2)
    assert tags(engine.step(3.0)) == [2]


def test_a_ninth_countable_resource_is_refused_and_eight_are_not() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", 4, GIB), counts={f"r{i}": 1 for i in range(8)})
    engine.resource("r0")
    with pytest.raises(BadEvent, match="at most 8"):
        engine.resource("r8")
    with pytest.raises(BadEvent, match="at most 8"):
        engine.shape([Variant(cores=1)], counts={"r9": 1})


def test_amounts_below_nought_states_that_are_none_and_shapes_without_variants_are_refused() -> None:
    engine, (node,) = engine_with(1)
    none: Any = 77
    calls: list[Callable[[], object]] = [
        lambda: engine.put(LOAD, node, cores=-1.0), lambda: engine.put(LOAD, node, memory_bytes=-1),
        lambda: engine.put(LOAD, node, counts={"x": -1}), lambda: engine.put(NODE, node, cores=-0.5),
        lambda: engine.put(NODE, node, state=77), lambda: engine.put(none, node), lambda: engine.put(TASK),
        lambda: engine.put(NODE, node, colour=3), lambda: engine.shape([]),
        lambda: engine.shape([Variant(cores=1)], parts=0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(BadEvent):
            call()
    engine.put(LOAD, node, cores=0.0, memory_bytes=0)
    engine.put(TASK, one_core(engine), tag=1)
    assert tags(engine.step(1.0)) == [1], "the engine is as it was"


def test_a_task_is_never_put_under_the_row_of_a_shape_workflow_or_node_that_is_anothers_by_now() -> None:
    """A stale id names a row that may have been given to somebody else: refused at once, with its name."""
    engine, _ = engine_with(4)
    old = engine.shape([Variant(cores=1)])
    engine.drop(old)
    new = engine.shape([Variant(cores=3)])
    assert new & 0xFFFFFFFF == old & 0xFFFFFFFF, "the same row"
    with pytest.raises(UnknownId, match="shape"):
        engine.put(TASK, old)
    flow = engine.workflow()
    engine.put(SEAL, flow)
    engine.step(1.0)
    other = engine.workflow(tag=5)
    assert other & 0xFFFFFFFF == flow & 0xFFFFFFFF
    with pytest.raises(UnknownId, match="workflow"):
        engine.put(TASK, new, workflow=flow)
    node = engine.node(Node("short", 1, GIB))
    engine.put(GONE, node)
    engine.step(2.0)
    task = engine.put(TASK, new, tag=1)
    with pytest.raises(UnknownId, match="node"):
        engine.put(TASK, new, node=node)
    with pytest.raises(UnknownId, match="node"):
        engine.pin(task, node)
    assert tags(engine.step(3.0)) == [1] and engine.describe(other)["open"] == 0


# Workflows


def test_a_workflow_is_submitted_when_it_was_said_or_at_the_last_step() -> None:
    engine, _ = engine_with(1)
    engine.step(7.0)
    assert [engine.describe(engine.workflow(submit_s=s))["submit_s"] for s in (None, 3.0)] == [7.0, 3.0]
    assert engine.describe(engine.workflow())["deadline_s"] is None


def test_a_sealed_placeholder_ends_when_its_parents_have_and_not_before() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    first = engine.put(TASK, shape, workflow=flow, tag=1)
    unknown = engine.put(TASK, PLACEHOLDER, workflow=flow, tag=2)
    last = engine.put(TASK, shape, workflow=flow, tag=3)
    engine.put(EDGE, first, unknown)
    engine.put(EDGE, unknown, last)
    placed = engine.step(1.0).placements
    engine.put(SEAL, unknown)
    step = engine.step(2.0)
    assert step.ended == [] and engine.describe(last)["parents_open"] == 1
    engine.put(FINISHED, placed[0].attempt)
    step = engine.step(3.0)
    assert [e.tag for e in step.ended] == [1, 2] and tags(step) == [3]


# The loop of a driver that may block


class Played:
    """Tasks take a second each; what is asked of it is written down."""

    def __init__(self, fails: int = 0) -> None:
        self.clock, self.fails = 0.0, fails
        self.running: list[int] = []
        self.asked: list[str] = []
        self.waits: list[float] = []

    def now(self) -> float:
        return self.clock

    def start(self, placement: Placement) -> None:
        self.asked.append(f"start {placement.tag}")
        self.running.append(placement.attempt)

    def stop(self, attempt: int) -> None:
        self.asked.append("stop")

    def act(self, action: Action) -> None:
        self.asked.append(action.kind.name)

    def events(self, until_s: float) -> Sequence[Event]:
        self.waits.append(until_s)
        self.clock += 1.0
        ended, self.running = self.running, []
        kind = FAILED if self.fails else FINISHED
        self.fails = max(0, self.fails - 1)
        return [Event(kind, (attempt,)) for attempt in ended]


def test_the_loop_runs_until_nothing_is_open_and_carries_out_what_is_asked() -> None:
    engine, _ = engine_with(1)
    for tag in range(3):
        engine.put(TASK, one_core(engine), tag=tag)
    driver = Played(fails=1)
    run(engine, driver)
    assert driver.asked == ["start 0", "start 1", "start 2", "start 0"] and engine.counts["open"] == 0
    assert driver.clock == 4.0


def test_the_loop_ends_at_its_time_and_waits_no_longer_than_the_engine_says() -> None:
    engine, _ = engine_with(1)
    task = engine.put(TASK, one_core(engine), tag=1, release_s=2.5)
    driver = Played()
    run(engine, driver, until_s=2.0)
    assert driver.waits == [2.0, 2.0] and driver.asked == [] and engine.counts["open"] == 1
    run(engine, driver, until_s=50.0)
    assert driver.waits[2:] == [2.5, 50.0] and driver.asked == ["start 1"] and task


def test_the_loop_stops_what_is_asked_to_stop_and_hands_other_actions_on() -> None:
    engine = Engine("least-energy:sleep=1")
    engine.node(Node("n", 1, 8 * GIB, power=CURVE, sleep=SLEEP))
    engine.put(TASK, one_core(engine), tag=1, release_s=5.0)
    driver = Played()
    run(engine, driver, until_s=3.0)
    assert driver.asked == ["SLEEP"]
    engine.put(NODE, engine.nodes["n"], state=Power.ASLEEP)
    driver.clock = 6.0
    run(engine, driver, until_s=6.5)
    assert driver.asked[1:] in (["start 1", "WAKE"], ["WAKE", "start 1"])
