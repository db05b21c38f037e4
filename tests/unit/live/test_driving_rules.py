"""What docs/driving.md promises, sentence by sentence, where no other test has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from wattflow.kernel import jit
from wattflow.kernel.lowering import BUSY
from wattflow.live import (
    CANCEL,
    EDGE,
    ESTIMATE,
    FAILED,
    FINISHED,
    LOAD,
    NODE,
    PREEMPT,
    REFUSED,
    RESIZE,
    SEAL,
    STARTED,
    TASK,
    Act,
    Busy,
    Engine,
    Outcome,
    Power,
    TimeWentBack,
    UnknownId,
)
from wattflow.live.journal import Journal, last_snapshot, recover, told
from wattflow.model.cluster import Node
from wattflow.model.workflow import Variant

from .test_engine import GIB, engine_with, one_core, tags


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_task_is_tried_once_and_so_many_times_again(retries: int) -> None:
    engine, _ = engine_with(1, max_retries=retries)
    engine.put(TASK, one_core(engine), tag=7)
    for number in range(retries + 1):
        (placement,) = engine.step(float(number)).placements
        assert placement.attempt_no == number
        engine.put(FAILED, placement.attempt)
    step = engine.step(10.0)
    assert step.placements == [] and [(e.tag, e.outcome) for e in step.ended] == [(7, Outcome.FAILED)]


def test_failed_without_retry_gives_up_at_once_with_all_that_wait_for_it() -> None:
    engine, _ = engine_with(1, max_retries=3)
    shape, flow = one_core(engine), engine.workflow()
    first, second = engine.put(TASK, shape, workflow=flow, tag=1), engine.put(TASK, shape, workflow=flow, tag=2)
    engine.put(EDGE, first, second)
    (placement,) = engine.step(1.0).placements
    engine.put(FAILED, placement.attempt, retry=False)
    step = engine.step(2.0)
    assert step.placements == []
    assert [(e.tag, e.outcome) for e in step.ended] == [(1, Outcome.FAILED), (2, Outcome.CANCELLED)]


def test_a_failed_task_goes_to_the_end_of_the_queue_and_a_refused_one_to_its_old_place() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    for tag in (1, 2, 3):
        engine.put(TASK, shape, tag=tag)
    (one,) = engine.step(1.0).placements
    engine.put(REFUSED, one.attempt)
    (one,) = engine.step(2.0).placements
    assert one.tag == 1 and one.attempt_no == 0, "a refusal is no try"
    engine.put(FAILED, one.attempt)
    order = []
    for now_s in (3.0, 4.0, 5.0):
        (one,) = engine.step(now_s).placements
        order.append(one.tag)
        engine.put(FINISHED, one.attempt)
    assert order == [2, 3, 1]


def test_a_sealed_workflow_closes_when_its_tasks_have_ended_and_not_before() -> None:
    engine, _ = engine_with(2)
    shape, flow = one_core(engine), engine.workflow()
    a, b = engine.put(TASK, shape, workflow=flow), engine.put(TASK, shape, workflow=flow)
    one, two = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    late = engine.put(TASK, shape, workflow=flow, tag=9)
    engine.put(EDGE, b, late)
    engine.put(SEAL, flow)
    assert engine.step(3.0).placements == []
    engine.put(FINISHED, two.attempt)
    (three,) = engine.step(4.0).placements
    assert three.tag == 9 and engine.describe(flow) is not None
    engine.put(FINISHED, three.attempt)
    engine.step(5.0)
    stale = engine.counts["stale"]
    engine.put(CANCEL, flow)
    engine.put(CANCEL, a)
    engine.step(6.0)
    assert engine.counts["stale"] == stale + 2, "workflow and tasks are forgotten, their rows free"


def test_an_open_workflow_whose_tasks_have_ended_takes_more_until_it_is_sealed() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    engine.put(TASK, shape, workflow=flow, tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    engine.put(TASK, shape, workflow=flow, tag=2)
    (two,) = engine.step(3.0).placements
    engine.put(FINISHED, two.attempt)
    engine.put(SEAL, flow)
    engine.step(4.0)
    before = engine.counts["stale"]
    engine.put(SEAL, flow)
    engine.step(5.0)
    assert engine.counts["stale"] == before + 1


def test_kinds_are_folded_in_their_order_whatever_the_order_of_the_puts() -> None:
    """FINISHED before NODE: work that ended just before its node was lost has ended well."""
    engine, (node,) = engine_with(1)
    engine.put(TASK, one_core(engine), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(NODE, node, state=Power.DOWN)
    engine.put(FINISHED, one.attempt)
    assert [(e.tag, e.outcome) for e in engine.step(2.0).ended] == [(1, Outcome.DONE)]
    assert engine.counts["stale"] == 0


def test_a_stopped_attempt_holds_what_it_took_until_it_is_reported() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    first = engine.put(TASK, shape, tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(TASK, shape, tag=2)
    engine.put(CANCEL, first)
    step = engine.step(2.0)
    assert [(a.kind, a.who) for a in step.actions] == [(Act.STOP, one.attempt)] and step.placements == []
    assert engine.step(3.0).actions == [], "it is asked once"
    engine.put(FINISHED, one.attempt)
    step = engine.step(4.0)
    assert tags(step) == [2] and [(e.tag, e.outcome) for e in step.ended] == [(1, Outcome.CANCELLED)]


def test_preempted_before_its_start_is_stopped_and_comes_back_without_a_try_counted() -> None:
    engine, _ = engine_with(1, max_retries=0)
    engine.put(TASK, one_core(engine), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(PREEMPT, one.attempt)
    assert [a.kind for a in engine.step(2.0).actions] == [Act.STOP]
    engine.put(FAILED, one.attempt)
    (again,) = engine.step(3.0).placements
    assert again.tag == 1 and again.attempt_no == 0 and again.attempt != one.attempt


def test_the_ids_of_attempts_fence() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    for tag in (1, 2):
        engine.put(TASK, shape, tag=tag)
    (one,) = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    (two,) = engine.step(2.0).placements
    for kind in (STARTED, FINISHED, FAILED, REFUSED, PREEMPT):
        engine.put(kind, one.attempt)
    step = engine.step(3.0)
    assert engine.counts["stale"] == 5 and engine.counts["running"] == 1
    assert not (step.ended or step.actions or step.placements)
    engine.put(FINISHED, two.attempt)
    assert [e.tag for e in engine.step(4.0).ended] == [2]


def test_load_is_what_others_use_and_resize_what_an_attempt_uses() -> None:
    engine, (node,) = engine_with(4)
    engine.put(TASK, one_core(engine, 2.0), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(LOAD, node, cores=1.0)
    engine.put(TASK, one_core(engine, 2.0), tag=2)
    assert engine.step(2.0).placements == [], "one core is left"
    engine.put(RESIZE, one.attempt, cores=1.0)
    assert tags(engine.step(3.0)) == [2]
    engine.put(LOAD, node, cores=0.0)
    engine.put(TASK, one_core(engine, 1.0), tag=3)
    assert tags(engine.step(4.0)) == [3]


def test_wake_at_is_the_earliest_of_release_and_parking() -> None:
    engine, _ = engine_with(2)
    shape = one_core(engine)
    assert engine.step(0.5).wake_at == math.inf
    engine.put(TASK, shape, tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(TASK, shape, release_s=30.0, tag=2)
    engine.put(REFUSED, one.attempt, until_s=20.0)
    assert engine.step(2.0).wake_at == 20.0
    step = engine.step(20.0)
    assert tags(step) == [1] and step.wake_at == 30.0
    assert tags(engine.step(30.0)) == [2]


def test_time_may_stand_still_and_not_go_back() -> None:
    engine, _ = engine_with(1)
    engine.step(5.0)
    engine.step(5.0)
    with pytest.raises(TimeWentBack):
        engine.step(4.999)
    with pytest.raises(TimeWentBack):
        engine.step(math.nan)
    engine.put(TASK, one_core(engine), tag=1)
    assert tags(engine.step(5.0)) == [1], "the engine is as it was"


def test_an_id_that_was_never_given_is_an_error_at_once() -> None:
    engine, (node,) = engine_with(1)
    task = engine.put(TASK, one_core(engine))
    calls: list[Callable[[], object]] = [
        lambda: engine.put(FINISHED, task),
        lambda: engine.put(CANCEL, 12345),
        lambda: engine.put(ESTIMATE, node, estimate_s=1.0),
        lambda: engine.pin(node, node),
    ]
    for call in calls:
        with pytest.raises(UnknownId):
            call()
    assert len(engine.step(1.0).placements) == 1 and engine.counts["stale"] == 0


def test_pin_keeps_a_waiting_task_for_one_node_and_none_frees_it() -> None:
    engine, (a, b) = engine_with(1, 1)
    engine.put(NODE, a, state=Power.DRAINING)
    task = engine.put(TASK, one_core(engine), tag=1)
    engine.pin(task, a)
    assert engine.step(1.0).placements == []
    assert engine.why(task).reasons == {"draining": 1, "pinned to another": 1}
    engine.put(NODE, b, state=Power.DRAINING)
    engine.pin(task, None)
    engine.step(2.0)
    assert engine.why(task).reasons == {"draining": 2} and engine.describe(task)["node"] is None
    engine.put(NODE, b, cores=0.5)
    engine.put(NODE, b, state=Power.ON)
    engine.step(3.0)
    assert engine.why(task).reasons == {"draining": 1, "cores": 1}, "any node may take it"
    engine.put(NODE, b, cores=1.0)
    (one,) = engine.step(4.0).placements
    assert one.node == b


def test_a_node_of_the_same_name_changes_and_keeps_its_id() -> None:
    engine, (node,) = engine_with(1)
    wide = engine.shape([Variant(cores=3, memory_bytes=GIB)])
    engine.put(TASK, wide, tag=1)
    assert engine.step(1.0).placements == []
    assert engine.node(Node("n0", 4, 8 * GIB)) == node
    assert tags(engine.step(2.0)) == [1]


def test_journals_are_numbered_with_their_snapshot_and_older_ones_go(tmp_path: Path) -> None:
    engine, _ = engine_with(2)
    journal = Journal(engine, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["journal-1", "snapshot-1"]
    engine.put(TASK, one_core(engine), tag=1)
    journal.checkpoint()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["journal-2", "snapshot-2"]
    engine.put(TASK, one_core(engine), tag=2)
    assert tags(engine.step(3.0)) == [1, 2]
    assert [name for name, *_ in told(tmp_path)] == ["shape", "put", "step"], "what came since the snapshot alone"
    journal.close()
    again = recover(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["journal-3", "snapshot-3"]
    assert last_snapshot(tmp_path).name == "snapshot-3" and again.engine.counts["running"] == 2
    again.close()


@pytest.mark.skipif(not jit.COMPILED, reason="uncompiled code never leaves the interpreter to another thread")
def test_a_second_thread_is_told_that_another_one_is_inside() -> None:
    engine, _ = engine_with(1)
    engine.put(TASK, one_core(engine), tag=1)
    directory = engine.state.handle().directory
    directory[BUSY] = 1  # as while compiled code runs on the tables, without the GIL
    with pytest.raises(Busy, match="another thread"):
        engine.step(1.0)
    directory[BUSY] = 0
    assert tags(engine.step(1.0)) == [1], "the engine is as it was"


def test_load_of_memory_alone_leaves_all_cores_and_of_cores_alone_all_memory() -> None:
    engine, (node,) = engine_with(4)
    engine.put(LOAD, node, memory_bytes=GIB)
    engine.put(TASK, engine.shape([Variant(cores=4, memory_bytes=7 * GIB)]), tag=1)
    (one,) = engine.step(1.0).placements
    engine.put(FINISHED, one.attempt)
    engine.put(LOAD, node, cores=2.0)
    engine.put(TASK, engine.shape([Variant(cores=2, memory_bytes=8 * GIB)]), tag=2)
    assert tags(engine.step(2.0)) == [2]


def test_why_names_what_is_lacking_and_not_what_just_suffices() -> None:
    engine = Engine("least-loaded")
    engine.node(Node("n", 4, 8 * GIB), counts={"licence": 1})
    engine.step(0.0)
    wide = engine.shape([Variant(cores=5, memory_bytes=GIB)], counts={"licence": 1})
    many = engine.shape([Variant(cores=4, memory_bytes=8 * GIB)], counts={"licence": 2})
    fits = engine.shape([Variant(cores=4, memory_bytes=8 * GIB)], counts={"licence": 1})
    first, second = engine.put(TASK, wide), engine.put(TASK, many)
    assert engine.step(1.0).placements == []
    assert "1 cores" in str(engine.why(first)) and "licence" not in str(engine.why(first))
    assert "1 licence" in str(engine.why(second))
    engine.put(TASK, fits, tag=3)
    assert tags(engine.step(2.0)) == [3], "all of it may be used"


def test_a_task_of_a_sealed_workflow_is_rejected_and_one_of_none_is_not() -> None:
    engine, _ = engine_with(2)
    shape, flow = one_core(engine), engine.workflow()
    engine.put(TASK, shape, workflow=flow, tag=1)
    engine.put(SEAL, flow)
    engine.step(1.0)
    engine.put(TASK, shape, workflow=flow, tag=2)
    engine.put(TASK, shape, tag=3)
    step = engine.step(2.0)
    assert tags(step) == [3] and [one.kind for one in step.rejected] == [TASK]
