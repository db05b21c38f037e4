"""What a live engine's past tells: workflows as they came, true runtimes where they are known, no more than fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.live import EDGE, FINISHED, NODE, SEAL, STARTED, TASK, Engine, Power
from wattflow.live.recent_workflows import Arrived, ArrivedWindow
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload
from wattflow.plan.joining import together

SHAPE = (Variant(cores=1, memory_bytes=2**30),)


def put_chain(engine: Engine, tasks: int, estimate_s: float = 10.0, deadline_s: float | None = None) -> int:
    flow = engine.workflow(deadline_s=deadline_s)
    shape, before = engine.shape(SHAPE), 0
    for i in range(tasks):
        task = engine.put(TASK, shape, workflow=flow, estimate_s=estimate_s + i)
        if before:
            engine.put(EDGE, before, task, size_bytes=5.0)
        before = task
    engine.put(SEAL, flow)
    return flow


def step(engine: Engine, arrived: Arrived, now: float) -> list[int]:
    """One step; the attempts that it placed."""
    made = engine.step(now)
    arrived.note(engine, now, made)
    arrived.read(engine)
    return [placement.attempt for placement in made.placements]


def kept(arrived: Arrived) -> Workload:
    """All that is remembered; its runtimes are those that are known, else NaN."""
    found = ArrivedWindow().take(arrived.told(anew=True))
    return replace(together(found.flows), runtime_s=np.concatenate(found.runtime_s))


def test_a_workflow_is_kept_after_the_engine_has_forgotten_it() -> None:
    engine, arrived, now = Engine("fifo", load_cluster("mixed")), Arrived(), 100.0
    engine.step(now)
    put_chain(engine, 3, deadline_s=900.0)
    attempts = step(engine, arrived, now)
    for _ in range(3):
        (attempt,) = attempts
        engine.put(STARTED, attempt)
        step(engine, arrived, now)
        now += 30.0
        engine.put(FINISHED, attempt)
        attempts = step(engine, arrived, now)
    assert arrived.ended == 1 and not engine.state.workflows.open.any()
    put_chain(engine, 2)
    step(engine, arrived, now)
    found = kept(arrived)
    assert found.workflow.tolist() == [0, 0, 0, 1, 1] and found.parent.tolist() == [0, 1, 3]
    assert found.parent_bytes.tolist() == [5.0] * 3 and len(found.shapes) == 1
    assert found.workflow_submit_s.tolist() == [100.0, 190.0]
    assert found.deadline_s.tolist() == [900.0] * 3 + [np.inf] * 2
    assert found.estimate_s.tolist() == [10.0, 11.0, 12.0, 10.0, 11.0]
    # 30 s each on a node of one speed: the same seconds on a node of speed 1; of what is open no runtime is known
    speeds = {node.speed for node in engine.cluster.nodes}
    assert any(np.allclose(found.runtime_s[:3], 30.0 * speed) for speed in speeds)
    assert np.isnan(found.runtime_s[3:]).all()
    seen = ArrivedWindow().take(arrived.told(anew=True))
    assert seen.number == 0 and seen.end_s[0] == 190.0 and np.isnan(seen.end_s[1])


def test_no_more_is_kept_than_was_asked_for() -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived(most_flows=3, most_tasks=7)
    for number in range(5):
        put_chain(engine, 2)
        step(engine, arrived, float(number))
    assert len(arrived) == 3
    assert kept(arrived).workflow_submit_s.tolist() == [1.0, 2.0, 3.0]  # at the time of the step before
    put_chain(engine, 6)
    step(engine, arrived, 5.0)
    assert len(arrived) == 1 and len(arrived._of_task) == 6
    assert len(kept(arrived)) == 6


def test_a_workflow_that_grows_is_read_again_but_not_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived()
    reads: list[object] = []
    known = engine.known

    def counted(*given: Any) -> Workload | None:
        reads.append(given)
        return known(*given)

    monkeypatch.setattr(engine, "known", counted)
    flow, shape = engine.workflow(), engine.shape(SHAPE)
    for number in range(200):
        engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
        step(engine, arrived, float(number))
    assert len(kept(arrived)) > 180 and len(reads) < 60


def test_watching_may_begin_late_and_tasks_may_have_no_workflow() -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived()
    put_chain(engine, 2)
    attempts = [placement.attempt for placement in engine.step(0.0).placements]
    shape = engine.shape(SHAPE)
    for _ in range(2):
        engine.put(TASK, shape, estimate_s=4.0)
    attempts += step(engine, arrived, 1.0)
    assert len(np.unique(kept(arrived).workflow)) == 3
    for attempt in attempts:
        engine.put(STARTED, attempt)
    step(engine, arrived, 2.0)
    for attempt in attempts:
        engine.put(FINISHED, attempt)
    step(engine, arrived, 9.0)
    assert arrived.ended == 2  # the chain has a task left
    assert len(np.unique(kept(arrived).workflow)) == 3


def test_who_came_while_nobody_watched_is_not_taken_for_late() -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived()
    flow, shape = engine.workflow(), engine.shape(SHAPE)
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    (early,) = step(engine, arrived, 0.0)
    engine.put(STARTED, early)
    engine.put(FINISHED, early)
    engine.step(11.0)  # unseen, as those below
    put_chain(engine, 1)
    meanwhile = [placement.attempt for placement in engine.step(100.0).placements]
    engine.step(7200.0)
    arrived.begin_anew(7200.0)
    assert arrived.arrived == arrived.forgotten == 1 and not len(arrived)
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)  # one that is open still may grow
    for attempt in meanwhile:
        engine.put(STARTED, attempt)
        engine.put(FINISHED, attempt)
    put_chain(engine, 1)
    (_, late) = step(engine, arrived, 7200.0)
    engine.put(STARTED, late)
    step(engine, arrived, 7201.0)
    engine.put(FINISHED, late)
    step(engine, arrived, 7211.0)
    seen = ArrivedWindow().take(arrived.told(anew=True))
    assert seen.number == 1 and seen.end_s.tolist() == [7211.0]
    assert seen.flows[0].workflow_submit_s.tolist() == [7200.0]


def test_two_open_workflows_grow_beside_each_other() -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived()
    shape, flows = engine.shape(SHAPE), [engine.workflow(), engine.workflow()]
    for flow, tasks in zip(flows, (3, 2), strict=True):
        for _ in range(tasks):
            engine.put(TASK, shape, workflow=flow, estimate_s=5.0)
    step(engine, arrived, 0.0)
    engine.put(TASK, shape, workflow=flows[1], estimate_s=7.0)
    step(engine, arrived, 1.0)
    assert len(arrived) == 2 and sorted(kept(arrived).estimate_s.tolist()) == [5.0] * 5 + [7.0]


def test_a_workflow_that_is_sealed_after_its_last_end_is_over_too() -> None:
    engine, arrived, now = Engine("fifo", load_cluster("mixed")), Arrived(), 0.0
    shape = engine.shape(SHAPE)
    for number, estimate_s in enumerate((5.0, 777.0)):
        flow = engine.workflow(tag=number)
        engine.put(TASK, shape, workflow=flow, estimate_s=estimate_s)
        (attempt,) = step(engine, arrived, now)
        if number == 0:
            engine.put(FINISHED, attempt)
            step(engine, arrived, now + 1.0)
            engine.put(SEAL, flow)
            step(engine, arrived, now + 2.0)
            assert arrived.ended == 1
        now += 10.0
    assert kept(arrived).estimate_s.tolist() == [5.0, 777.0]  # its row is the second one's by now


def test_attempts_that_are_lost_with_their_node_are_not_remembered_for_ever() -> None:
    engine, arrived, now = Engine("fifo", load_cluster("mixed"), max_retries=1_000_000), Arrived(), 0.0
    engine.put(TASK, engine.shape(SHAPE), workflow=engine.workflow(), estimate_s=5.0)
    made = engine.step(now)
    arrived.note(engine, now, made)
    for _ in range(200):
        (one,) = made.placements
        engine.put(NODE, one.node, state=int(Power.DOWN))
        made = engine.step(now)
        arrived.note(engine, now, made)
        arrived.read(engine)
        engine.put(NODE, one.node, state=int(Power.ON))
        now += 1.0
    assert len(arrived._running) <= 70


def test_steps_are_read_later_as_they_were() -> None:
    """Within a step its events are copied and no more: what comes next takes their place in the engine."""
    engine, late, at_once, now = Engine("fifo", load_cluster("mixed")), Arrived(), Arrived(), 0.0
    shape = engine.shape(SHAPE)

    def made(now: float) -> list[int]:
        step = engine.step(now)
        for one in (late, at_once):
            one.note(engine, now, step)
        at_once.read(engine)
        return [placement.attempt for placement in step.placements]

    made(now)
    late.read(engine)
    for _ in range(3):
        flow = engine.workflow()
        engine.put(TASK, shape, workflow=flow, estimate_s=5.0)
        engine.put(TASK, shape, estimate_s=4.0)
        engine.put(SEAL, flow)
        attempts = made(now)
        before = len(late)
        late.read(engine)
        assert len(late) == before + 2
        for attempt in attempts:
            engine.put(STARTED, attempt)
        made(now + 1.0)
        for attempt in attempts:
            engine.put(FINISHED, attempt)
        made(now + 8.0)
        now += 10.0
    late.read(engine)
    assert late.ended == at_once.ended == 6
    ours, theirs = (ArrivedWindow().take(one.told(anew=True)) for one in (late, at_once))
    assert ours.end_s.tolist() == theirs.end_s.tolist() == [8.0, 8.0, 18.0, 18.0, 28.0, 28.0]
    assert np.array_equal(np.concatenate(ours.runtime_s), np.concatenate(theirs.runtime_s))


def test_tasks_that_were_there_before_a_late_first_look_are_kept_once() -> None:
    engine, arrived = Engine("fifo", load_cluster("mixed")), Arrived()
    for now in (0.0, 1.0):
        engine.put(TASK, engine.shape(SHAPE), estimate_s=4.0)
        arrived.note(engine, now, engine.step(now))
    arrived.read(engine)
    assert arrived.arrived == len(kept(arrived)) == 2
