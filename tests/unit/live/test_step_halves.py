"""A step in one call and in two halves, the words between Python and the compiled code, and what a step lists."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from wattflow.engine import agenda, tables
from wattflow.kernel import jit
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
    Engine,
    Kind,
    Outcome,
    Power,
    stepping,
)
from wattflow.live.protocol import ROW_BITS, row_of
from wattflow.model.cluster import Device, Node, Serverless, Sleep
from wattflow.model.errors import BrokenPolicy
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant
from wattflow.policy import registry
from wattflow.policy.base import Policy

from .test_engine import CURVE, GIB, engine_with, one_core, tags

CARD = Device("gpu", "a", 8 * GIB, "mps", 4, power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))


def at_once(engine: Engine, now_s: float) -> Any:
    with np.errstate(over="ignore"):
        return engine._step_at_once(now_s)


def test_both_halves_are_one_call_where_nothing_looks_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ranked = Engine("fifo"), Engine("heft")
    for compiled, checked, once in ((True, False, True), (True, True, False), (False, False, False)):
        monkeypatch.setattr(jit, "COMPILED", compiled)
        monkeypatch.setattr(jit, "CHECKED", checked)
        assert plain._at_once == once and not ranked._at_once
    called = []
    monkeypatch.setattr(jit, "COMPILED", True)
    monkeypatch.setattr(Engine, "_step_at_once", lambda self, now_s: called.append(now_s))
    plain.step(3.0)
    assert called == [3.0]


def test_a_step_in_one_call_is_the_same_as_in_two_halves() -> None:
    def played(step: Any) -> list[Any]:
        engine = Engine("least-energy", max_retries=1)
        for i in range(3):
            engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0, after_s=4.0)))
        shape, flow = one_core(engine), engine.workflow()
        tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0 + t % 7, tag=t) for t in range(90)]
        for one, other in itertools.pairwise(tasks):
            engine.put(EDGE, one, other)
        for tag in range(300):
            engine.put(TASK, engine.shape([Variant(cores=0.001)]), release_s=float(tag % 5), tag=1000 + tag)
        told: list[Any] = []
        placed: list[Any] = []
        for now in range(12):
            for number, one in enumerate(placed):
                engine.put((FINISHED, FAILED, REFUSED)[number % 3], one.attempt)
            made = step(engine, float(now))
            placed = list(made.placements)
            told.append((placed, made.actions, made.wake_at, made.ended, made.rejected, engine.counts))
        told.append([getattr(engine.state, name).tobytes() for name in ("tasks", "nodes", "attempts", "marks")])
        return told

    halves, whole = played(Engine.step), played(at_once)
    assert len(halves[0][0]) == 61, "one of the chain, and those released at 0"
    assert halves == whole


def test_a_step_in_one_call_grows_edges_and_attempts_and_says_when_a_policy_breaks() -> None:
    engine, _ = engine_with(300)
    shape, flow = engine.shape([Variant(cores=1, memory_bytes=1)]), engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, tag=tag) for tag in range(400)]
    for one, other in zip(tasks[:100], tasks[100:200], strict=True):
        engine.put(EDGE, one, other)
    assert len(at_once(engine, 1.0).placements) == 300 and len(engine.state.attempts) == 512
    assert engine._inbox.count == 0 and engine._told_last == 500
    assert at_once(engine, 2.0).placements == [] and engine._told_last == 0
    broken = Engine(Policy("broken", score=_no_number, settings=registry.load("least-energy").settings))
    broken.node(Node("n", 1, 8 * GIB, power=CURVE))
    broken.put(TASK, one_core(broken))
    with pytest.raises(BrokenPolicy, match="policy 'broken' returned NaN at 7 s"):
        at_once(broken, 7.0)


def _no_number(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = math.nan


def test_room_for_timers_is_made_before_they_are_needed_and_not_sooner() -> None:
    engine, _ = engine_with(1)
    state = engine.state
    assert len(state.timers) == 1024 and engine._timer_room == 1024 - 256 - 64 - 65
    engine._timers = engine._timer_room
    called: list[int] = []
    prepare = engine.prepare

    def prepared() -> None:
        called.append(1)
        prepare()

    engine.prepare = prepared  # type: ignore[method-assign]
    at_once(engine, 1.0)
    assert called == [], "just enough"
    engine._timers = engine._timer_room
    engine.put(TASK, one_core(engine), release_s=9.0)
    at_once(engine, 2.0)
    assert called == [1] and engine._timers == 1


@pytest.mark.parametrize(("more", "rows"), [(1020, 1024), (1023, 1024), (1024, 2 * 1025), (3000, 2 * 3001)])
def test_timers_grow_to_twice_what_is_wanted(more: int, rows: int) -> None:
    engine = Engine("fifo")
    engine._make_timer_room(more)
    assert len(engine.state.timers) == rows


def test_nodes_that_changed_are_prepared_for_once() -> None:
    engine, (node,) = engine_with(1)
    assert not engine._nodes.changed
    engine.node(Node("more", 3, GIB))
    assert engine._nodes.changed
    at_once(engine, 1.0)
    assert not engine._nodes.changed and len(engine.cluster.nodes) == 2 and node


# What a step lists


def test_a_placement_tells_all_of_itself() -> None:
    engine = Engine("fifo")
    engine.node(Node("n0", 1, 8 * GIB))
    node = engine.node(Node("n1", 8, 8 * GIB, power=CURVE, devices=(CARD, CARD)))
    engine.step(0.0)
    shape = engine.shape([Variant(cores=9), Variant(cores=2, device="gpu", devices=2)], parts=1)
    task = engine.put(TASK, shape, tag=-5)
    (one,) = engine.step(1.0).placements
    assert (one.task, one.node, one.tag, one.part, one.attempt_no, one.variant) == (task, node, -5, 0, 0, 1)
    assert (one.devices, one.frequency, one.level, one.guarantee) == (0b11, 0, 0, 1.0)
    assert row_of(one.attempt) == 0 and one.attempt >> ROW_BITS & 1 == 1
    engine.put(FAILED, one.attempt)
    (again,) = engine.step(2.0).placements
    assert again.attempt_no == 1 and again.attempt != one.attempt and row_of(again.attempt) == 0
    engine.put(FINISHED, again.attempt)
    plain = engine.put(TASK, one_core(engine, parts=2), tag=3)
    placed = engine.step(3.0).placements
    assert [(p.task, p.part, p.devices, p.variant) for p in placed] == [(plain, 0, 0, 0), (plain, 1, 0, 0)]


def test_one_device_of_several_is_told_by_its_bit() -> None:
    engine = Engine("fifo")
    exclusive = Device("gpu", "a", 8 * GIB, "exclusive", power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))
    engine.node(Node("n", 8, 8 * GIB, power=CURVE, devices=(exclusive,) * 3))
    engine.step(0.0)
    shape = engine.shape([Variant(cores=1, device="gpu", devices=1)])
    for tag in range(4):
        engine.put(TASK, shape, tag=tag)
    placed = engine.step(1.0).placements
    assert sorted(p.devices for p in placed) == [1, 2, 4] and engine.counts["waiting"] == 1


def test_actions_are_listed_with_their_node_and_one_that_ended_is_not() -> None:
    engine = Engine("fifo")
    sleepy = Node("n", 2, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0, after_s=4.0))
    node = engine.node(sleepy)
    assert engine.step(0.0).wake_at == 4.0
    step = engine.step(4.0)
    assert [(a.kind, a.who, a.value) for a in step.actions] == [(Act.SLEEP, node, 0)]
    engine.put(NODE, node, state=Power.ASLEEP)
    engine.step(5.0)
    task = engine.put(TASK, one_core(engine))
    step = engine.step(6.0)
    assert [(a.kind, a.who) for a in step.actions] == [(Act.WAKE, node)]
    (one,) = step.placements
    engine.put(NODE, node, state=Power.ON)
    engine.step(11.0)
    engine.put(CANCEL, task)
    engine.put(FAILED, one.attempt)
    step = engine.step(12.0)
    assert step.actions == [] and [(e.task, e.outcome) for e in step.ended] == [(task, Outcome.CANCELLED)]
    assert engine.step(13.0).actions == []


def test_a_platform_ramps_and_a_cluster_without_one_does_not() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", 1, GIB))
    assert engine._desk.words.ramps[0] == 0
    assert engine.step(0.0).wake_at == math.inf
    engine.node(Node("cloud", 100, 1 << 50, serverless=Serverless(burst=2, ramp_per_s=0.5)))
    assert engine._desk.words.ramps[0] == 1
    shape = engine.shape([Variant(cores=1, memory_bytes=GIB + 1)])
    for tag in range(4):
        engine.put(TASK, shape, tag=tag)
    step = engine.step(1.0)
    assert len(step.placements) == 2 and step.wake_at == 2.0, "it grows from time 0 on"
    assert len(engine.step(2.0).placements) == 1


def test_rows_of_tasks_are_filled_with_what_was_told_and_counted_in_their_shape() -> None:
    engine, (node,) = engine_with(1)
    shape, flow = one_core(engine), engine.workflow(submit_s=2.0, deadline_s=90.0, tag=8, weights=1.5)
    state = engine.state
    assert state.rules.has_data[0] == 0
    task = engine.put(TASK, shape, flow, estimate_s=3.0, release_s=4.0, deadline_s=5.0, node=node, tag=6)
    row, flow_row = row_of(task), row_of(flow)
    told = state.tasks[row]
    assert (told.form, told.workflow, told.pinned, told.estimate, told.release) == (
        row_of(shape),
        flow_row,
        0,
        3.0,
        4.0,
    )
    assert (state.extra.deadline[row], state.extra.input_bytes[row], state.marks.tag[row]) == (5.0, 0.0, 6)
    assert state.shapes.tasks[row_of(shape)] == 1 and state.rules.has_data[0] == 0
    assert (state.workflows.deadline[flow_row], state.workflows.tag[flow_row]) == (90.0, 8)
    assert (state.workflows.submit[flow_row], state.workflows.rank[flow_row]) == (2.0, 1.5)
    bare = engine.put(TASK, shape, input_bytes=0.5)
    told = state.tasks[row_of(bare)]
    assert (told.workflow, told.pinned, told.release, state.extra.deadline[row_of(bare)]) == (
        0,
        -1,
        -math.inf,
        math.inf,
    )
    assert math.isnan(told.estimate) and state.rules.has_data[0] == 1 and state.shapes.tasks[row_of(shape)] == 2
    other = engine.workflow()
    assert (state.workflows.deadline[row_of(other)], state.workflows.rank[row_of(other)]) == (math.inf, 0.0)


def test_a_queue_that_is_made_anew_counts_what_waits_and_keeps_no_failure() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shapes = [one_core(engine), one_core(engine, 0.5, function="g")]
    for tag in range(6):
        engine.put(TASK, shapes[tag % 2], estimate_s=9.0 - tag, tag=tag)
    engine.step(1.0)
    state = engine.state
    waiting = engine._waiting()
    assert len(waiting) == engine.counts["waiting"] == 4
    engine._kernels.requeue(state.handle(), engine._functions, waiting)
    assert engine.counts["waiting"] == 4 and state.counts.shapes_n[0] == 2
    assert sorted(state.shapes.waiting.tolist())[-2:] == [1, 3] and not state.shapes.failed.any()
    assert sorted(state.functions.waiting.tolist())[-2:] == [1, 3]
    assert sorted(state.tasks.key[waiting].tolist()) == sorted(state.tasks.estimate[waiting].tolist())
    engine.use("fifo")
    assert state.tasks.key[engine._waiting()].tolist() == [0.0] * 4


# Events in their rows


def told_last(engine: Engine) -> list[tuple[Any, ...]]:
    rows = engine._desk.events[: engine._inbox.count]
    return [tuple(rows[name][i].item() for name in ("kind", "who", "other", "a", "b", "x")) for i in range(len(rows))]


def test_each_event_is_one_row_as_folding_reads_it() -> None:
    engine, (node,) = engine_with(4)
    shape, flow = one_core(engine), engine.workflow()
    one, two = engine.put(TASK, shape, workflow=flow), engine.put(TASK, shape, workflow=flow)
    (first, _) = engine.step(1.0).placements
    a = first.attempt
    engine.resource("ports")
    engine.put(EDGE, one, two, size_bytes=2.5)
    engine.put(ESTIMATE, one, 4.5)
    engine.put(STARTED, a)
    engine.put(FINISHED, a)
    engine.put(FAILED, a)
    engine.put(FAILED, a, retry=False)
    engine.put(REFUSED, a)
    engine.put(REFUSED, a, until_s=7.0)
    engine.put(PREEMPT, a)
    engine.put(NODE, node, state=Power.DRAINING)
    engine.put(NODE, node, cores=2.0)
    engine.put(NODE, node, memory_bytes=0)
    engine.put(LOAD, node, cores=0.5, memory_bytes=3, counts={"ports": 2})
    engine.put(LOAD, node)
    engine.put(RESIZE, a, cores=0.25)
    engine.put(RESIZE, a, memory_bytes=9)
    engine.put(CANCEL, one)
    engine.put(CANCEL, flow)
    engine.put(SEAL, flow)
    engine._inbox.put_more(node, "ports", -3)
    assert told_last(engine) == [
        (Kind.EDGE, one, two, 0, 0, 2.5), (Kind.ESTIMATE, one, 0, 0, 0, 4.5), (Kind.STARTED, a, 0, 0, 0, 0.0),
        (Kind.FINISHED, a, 0, 0, 0, 0.0), (Kind.FAILED, a, 0, 1, 0, 0.0), (Kind.FAILED, a, 0, 0, 0, 0.0),
        (Kind.REFUSED, a, 0, 0, 0, 0.0), (Kind.REFUSED, a, 0, 0, 0, 7.0), (Kind.PREEMPT, a, 0, 0, 0, 0.0),
        (Kind.NODE, node, int(Power.DRAINING), -1, -1, 0.0), (Kind.NODE, node, -1, 2_000_000, -1, 0.0),
        (Kind.NODE, node, -1, -1, 0, 0.0), (Kind.LOAD, node, 0, 500_000, 3, 0.0), (Kind.LOAD, node, 1, 2, 0, 0.0),
        (Kind.LOAD, node, 0, 0, 0, 0.0), (Kind.RESIZE, a, 0, 250_000, -1, 0.0), (Kind.RESIZE, a, 0, -1, 9, 0.0),
        (Kind.CANCEL, one, 0, 0, 0, 0.0), (Kind.CANCEL, flow, 0, 0, 0, 0.0), (Kind.SEAL, flow, 0, 0, 0, 0.0),
        (Kind.LOAD, node, 1, -3, 1, 0.0),
    ]  # fmt: skip
    assert engine._inbox.count == 21


def test_a_task_gives_its_id_and_other_events_none() -> None:
    engine, (node,) = engine_with(1)
    task = engine.put(TASK, one_core(engine))
    assert task > 0 and engine.put(CANCEL, task) == 0 and engine.put(NODE, node, cores=1.0) == 0


def test_the_greatest_room_of_a_class_is_known_before_the_step() -> None:
    engine, (node, _) = engine_with(2, 2)
    state = engine.state
    assert (state.classes.request_u[0], state.classes.memory[0]) == (2_000_000, 8 * GIB)
    engine.put(NODE, node, cores=3.0)
    assert (state.classes.request_u[0], state.classes.memory[0]) == (3_000_000, 8 * GIB)
    engine.put(NODE, node, memory_bytes=9 * GIB)
    assert (state.classes.request_u[0], state.classes.memory[0]) == (3_000_000, 9 * GIB)
    engine.put(NODE, node, cores=1.0, memory_bytes=GIB)
    assert (state.classes.request_u[0], state.classes.memory[0]) == (3_000_000, 9 * GIB), "another may have so much"


# Words between the halves


def test_words_are_set_back_after_each_step() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    a, b = (engine.put(TASK, shape, workflow=flow, tag=tag) for tag in (1, 2))
    engine.put(EDGE, a, b)
    engine.put(EDGE, b, a)
    engine.put(TASK, shape, tag=3)
    step = engine.step(1.0)
    words = engine._desk.words[0]
    assert (words.events, words.folded, words.arriving, words.fresh, words.changed) == (0, 0, 0, 1, 1)
    assert (words.placements, words.actions, words.rejected, words.ended) == (1, 0, 1, 0)
    assert [(r.kind, r.who) for r in step.rejected] == [(EDGE, b)]
    assert engine._desk.changed[0] == row_of(flow) and engine._desk.fresh[0] == row_of(engine.put(TASK, shape)) - 1
    engine._inbox.count = 0
    step = engine.step(2.0)
    assert (step.placements, step.actions, step.ended, step.rejected) == ([], [], [], [])
    assert (words.fresh, words.changed, words.placements, words.rejected) == (0, 0, 0, 0)


def test_an_instant_is_counted_for_each_step() -> None:
    engine, _ = engine_with(1)
    before = int(engine.state.clock.instant[0])
    for now in (1.0, 1.0, 2.0):
        engine.step(now)
    assert engine.state.clock.instant[0] == before + 3 and engine.state.clock.now[0] == 2.0


def test_a_workflow_that_changes_twice_in_a_step_is_listed_once_and_again_in_the_next() -> None:
    engine = Engine("heft")
    engine.node(Node("n", 1, 8 * GIB, power=CURVE))
    engine.step(0.0)
    shape = one_core(engine)
    flows = [engine.workflow(), engine.workflow()]
    for _ in range(2):
        for flow in flows:
            engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    engine.step(1.0)
    words = engine._desk.words[0]
    assert words.changed == 2 and engine._desk.changed[:2].tolist() == [row_of(flow) for flow in flows]
    assert engine.state.workflows.dirty[[row_of(flow) for flow in flows]].tolist() == [0, 0], "the policy has seen it"
    engine.put(TASK, shape, workflow=flows[1], estimate_s=1.0)
    engine.step(2.0)
    assert words.changed == 1 and engine._desk.changed[0] == row_of(flows[1])


def test_more_releases_at_once_than_a_step_has_room_for_come_with_the_next() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    for tag in range(1500):
        engine.put(TASK, shape, release_s=5.0, tag=tag)
        if tag % 500 == 499:
            engine.step(1.0)
    room = len(engine._desk.arrivals)
    assert room == 1024 and engine.state.counts.timer_n[0] == 1500
    step = engine.step(5.0)
    assert engine.counts["waiting"] == 1023 and step.wake_at == 5.0 and tags(step) == [0]
    step = engine.step(5.0)
    assert engine.counts["waiting"] == 1499 and step.wake_at == math.inf


def test_timers_of_rows_that_are_anothers_do_nothing() -> None:
    engine, (node,) = engine_with(1)
    shape = one_core(engine)
    late = engine.put(TASK, shape, release_s=5.0, tag=1)
    engine.step(1.0)
    assert engine.state.timers.what[0] == agenda.RELEASE and engine.state.timers.who[0] == row_of(late)
    engine.put(CANCEL, late)
    engine.step(2.0)
    other = engine.put(TASK, shape, release_s=8.0, tag=2)
    assert row_of(other) == row_of(late)
    assert engine.step(3.0).wake_at == 5.0 and engine.step(5.0).placements == []
    (one,) = engine.step(8.0).placements
    assert one.task == other and one.node == node
    engine.put(REFUSED, one.attempt, until_s=20.0)
    assert engine.step(9.0).wake_at == 20.0 and engine.why(other).state == "parked"
    engine.put(CANCEL, other)
    engine.step(10.0)
    third = engine.put(TASK, shape, release_s=30.0, tag=3)
    assert row_of(third) == row_of(other)
    assert engine.step(20.0).placements == [] and engine.step(30.0).placements[0].task == third


def test_two_timers_of_one_time_are_both_due() -> None:
    engine, _ = engine_with(2)
    shape = one_core(engine)
    for tag in (1, 2):
        engine.put(TASK, shape, tag=tag)
    for one in engine.step(1.0).placements:
        engine.put(REFUSED, one.attempt, until_s=4.0)
    engine.put(TASK, shape, release_s=4.0, tag=3)
    assert engine.step(2.0).wake_at == 4.0 and engine.state.counts.timer_n[0] == 3
    assert sorted(tags(engine.step(4.0))) == [1, 2] and engine.counts["waiting"] == 1
    assert engine.state.counts.timer_n[0] == 0


def test_the_timer_of_a_node_that_is_gone_does_nothing_to_whoever_has_its_row() -> None:
    engine = Engine("fifo")
    sleepy = Sleep(2.0, wake_s=5.0, after_s=4.0)
    node = engine.node(Node("n", 2, 8 * GIB, power=CURVE, sleep=sleepy))
    engine.step(0.0)
    engine.put(GONE, node)
    engine.step(1.0)
    assert engine.step(4.0).actions == []
    other = engine.node(Node("m", 2, 8 * GIB, power=CURVE, sleep=sleepy))
    engine.step(5.0)
    assert row_of(other) == row_of(node) and engine.step(8.0).actions == []
    assert [(a.kind, a.who) for a in engine.step(9.0).actions] == [(Act.SLEEP, other)]


@pytest.mark.parametrize("kind", list(Kind))
def test_kinds_are_numbered_in_the_order_in_which_they_are_folded(kind: Kind) -> None:
    assert list(Kind).index(kind) == int(kind) - min(int(k) for k in Kind)


def test_estimates_change_the_key_of_who_waits_and_of_nobody_else() -> None:
    engine, _ = engine_with(1, policy="sjf")
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=s, tag=int(s)) for s in (1.0, 5.0, 7.0)]
    (one,) = engine.step(1.0).placements
    engine.put(ESTIMATE, tasks[0], 50.0)
    engine.put(ESTIMATE, tasks[2], 2.0)
    engine.step(2.0)
    rows = [row_of(task) for task in tasks]
    assert engine.state.tasks.estimate[rows].tolist() == [50.0, 5.0, 2.0]
    assert engine.state.tasks.key[rows[1:]].tolist() == [5.0, 2.0] and engine.counts["waiting"] == 2
    engine.put(FINISHED, one.attempt)
    assert tags(engine.step(3.0)) == [7]
    fifo, _ = engine_with(1)
    task = fifo.put(TASK, one_core(fifo), estimate_s=9.0)
    blocked = fifo.put(TASK, one_core(fifo), estimate_s=9.0)
    fifo.step(1.0)
    fifo.put(ESTIMATE, blocked, 3.0)
    fifo.step(2.0)
    assert fifo.state.tasks.key[row_of(blocked)] == 0.0 and task


def test_stale_ids_of_each_kind_are_counted_once_each() -> None:
    engine, (node, other) = engine_with(1, 1)
    shape, flow = one_core(engine), engine.workflow()
    task = engine.put(TASK, shape, workflow=flow)
    engine.put(SEAL, flow)
    (one,) = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    engine.put(GONE, node)
    engine.step(3.0)
    assert engine.counts["stale"] == 0
    for number, (kind, who, more) in enumerate(
        [(STARTED, one.attempt, ()), (FINISHED, one.attempt, ()), (RESIZE, one.attempt, ()), (CANCEL, task, ()),
         (ESTIMATE, task, (1.0,)), (CANCEL, flow, ()), (SEAL, flow, ()), (LOAD, node, ()), (GONE, node, ())], 1
    ):  # fmt: skip
        engine.put(kind, who, *more)
        engine.step(3.0 + number)
        assert engine.counts["stale"] == number, kind
    loose = engine.put(TASK, shape)
    engine.put(EDGE, loose, task)
    engine.step(50.0)
    assert engine.counts["stale"] == 10 and other


def test_a_sealed_placeholder_of_no_parent_ends_at_once() -> None:
    engine, _ = engine_with(1)
    flow = engine.workflow()
    stand = engine.put(TASK, PLACEHOLDER, workflow=flow, tag=4)
    engine.step(1.0)
    assert engine.state.tasks.state[row_of(stand)] == tables.UNKNOWN
    engine.put(SEAL, stand)
    assert [(e.tag, e.outcome) for e in engine.step(2.0).ended] == [(4, Outcome.DONE)]


def test_run_step_is_both_halves_and_stops_at_the_first_that_does_not_end() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow) for _ in range(80)]
    for one, other in itertools.pairwise(tasks):
        engine.put(EDGE, one, other)
    told = (engine.state.handle(), engine._desk.handle(), engine._functions, 1.0, engine._inbox.count)
    engine.prepare()
    with np.errstate(over="ignore"):
        status = engine._kernels.run_step(engine.state.handle(), engine._desk.handle(), *told[2:])
    assert status == stepping.GROW_EDGES and engine._desk.words.placements[0] == 0
    assert engine._desk.words.folded[0] > 80 and engine._desk.words.events[0] == 159
