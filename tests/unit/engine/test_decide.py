"""Decisions: which task holds others of its shape back, and which are set aside until a time."""

from __future__ import annotations

import numpy as np

from reference.hand import node, nodes, tasks
from wattflow.engine import agenda, decide, queue
from wattflow.engine.build import build_state
from wattflow.engine.tables import MARKS, PARKED, READY, TIMERS
from wattflow.kernel import jit
from wattflow.kernel.records import record_table


@jit.jit
def misfit_of_its_own(state, task):
    return decide.misfit_of_its_own(state, task)


def test_others_of_a_shape_may_fit_where_a_pinned_task_or_a_long_one_does_not() -> None:
    state = build_state(tasks([1.0] * 4), nodes(node(), node()))
    state.tasks.pinned[1] = 0
    state.tasks.pinned_variant[2] = 0
    assert [bool(misfit_of_its_own(state.handle(), t)) for t in range(4)] == [False, True, True, False]
    state.rules["limits"] = 1
    assert [bool(misfit_of_its_own(state.handle(), t)) for t in range(4)] == [True] * 4
    assert np.all(state.tasks.state == 0)


@jit.jit
def enqueue(state, task):
    queue.push(state, task)


@jit.jit
def park(state, task, until):
    return decide.park(state, task, until)


def test_a_task_is_parked_while_there_is_room_for_its_timer() -> None:
    """Room for three timers, of which one row stays free."""
    state = build_state(tasks([1.0] * 4), nodes(node()))
    state.replace(marks=record_table(MARKS, 4), timers=record_table(TIMERS, 3))
    state.marks.generation[:] = [5, 6, 7, 8]
    for task in range(4):
        state.tasks.state[task] = READY
        enqueue(state.handle(), task)
    assert [bool(park(state.handle(), task, 9.0 - task)) for task in range(3)] == [True, True, False]
    assert state.tasks.state.tolist() == [PARKED, PARKED, READY, READY]
    assert state.marks.until.tolist() == [9.0, 8.0, 0.0, 0.0]
    assert (int(state.counts.held[0]), int(state.counts.waiting[0]), int(state.counts.timer_n[0])) == (2, 2, 2)
    soonest = state.timers[0]
    assert (soonest.time, soonest.what, soonest.who, soonest.generation) == (8.0, agenda.PARK, 1, 6)
