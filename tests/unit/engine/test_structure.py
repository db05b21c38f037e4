"""Late structure: which edges are taken and what they do; placeholders are sealed once, and nothing else is."""

from __future__ import annotations

import numpy as np

from reference.hand import node, nodes, tasks
from wattflow.engine import kinds, queue, structure
from wattflow.engine.build import build_state
from wattflow.engine.tables import (
    CANCEL,
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    GHOST,
    LINKS,
    MARKS,
    PARKED,
    PLACED,
    READY,
    UNKNOWN,
    WAITING,
    WORKFLOWS,
    State,
)
from wattflow.kernel import jit
from wattflow.kernel.records import record_table


@jit.jit
def seal(state, task):
    structure.seal_placeholder(state, task)


def sealed(state: State) -> list[int]:
    found, task = [], int(state.counts.sealed_first[0])
    while task >= 0:
        assert task not in found, "a ring"
        found.append(task)
        task = int(state.tasks.next[task])
    return found


def test_a_placeholder_is_sealed_once_and_other_tasks_never() -> None:
    state = build_state(tasks([1.0] * 4), nodes(node()))
    state.counts["sealed_first"] = -1
    state.tasks.state[1:3] = UNKNOWN
    for task in (1, 0, 2, 1, 2, 3):
        seal(state.handle(), task)
    assert sealed(state) == [2, 1]
    assert state.tasks.parts_left.tolist() == [0, 1, 1, 0]


@jit.jit
def add_edge(state, parent, child, size_bytes):
    return structure.add_edge(state, parent, child, size_bytes)


def one_workflow(count: int) -> State:
    """Tasks that wait in workflow 1, whose places have been noted; the last one belongs to no workflow."""
    state = build_state(tasks([1.0] * count), nodes(node()))
    state.replace(
        child=np.zeros(64, np.int32), parent=np.zeros(64, np.int32), parent_bytes=np.zeros(64),
        marks=record_table(MARKS, count), links=record_table(LINKS, count), workflows=record_table(WORKFLOWS, 2),
        scratch=np.zeros(64, np.int32),
    )  # fmt: skip
    state.tasks.workflow[: count - 1] = 1
    return state


def test_which_edges_are_taken() -> None:
    state = one_workflow(9)
    state.tasks.state[3:8] = [DONE, FAILED, CANCELLED, GHOST, PLACED]
    asked = ((0, 1), (1, 2), (2, 0), (1, 1), (0, 8), (3, 2), (4, 2), (5, 2), (6, 2), (0, 7), (7, 2))
    answers = [int(add_edge(state.handle(), parent, child, 0.0)) for parent, child in asked]
    dead = [kinds.DEAD_PARENT] * 3
    assert answers == [
        kinds.ADDED, kinds.ADDED, kinds.CYCLE, kinds.CYCLE, kinds.STRANGERS, kinds.ADDED, *dead,
        kinds.CHILD_STARTED, kinds.ADDED,
    ]  # fmt: skip
    # A parent that is done makes nobody wait.
    assert state.tasks.pending.tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0]
    assert int(state.rules.has_data[0]) == 0


def test_an_edge_with_bytes_makes_places_old_and_a_ready_child_wait() -> None:
    state = one_workflow(3)
    for task in (0, 1):
        state.tasks.state[task] = READY
        enqueue(state.handle(), task)
    assert add_edge(state.handle(), 0, 1, 5.0) == kinds.ADDED
    assert (int(state.tasks.state[1]), int(state.counts.waiting[0]), int(state.shapes.head[0])) == (WAITING, 1, 0)
    assert (int(state.rules.has_data[0]), int(state.workflows.dirty[1])) == (1, 1)
    state.workflows.dirty[1] = 2  # listed already: that stays
    state.tasks.state[1] = PARKED
    assert add_edge(state.handle(), 0, 1, 0.0) == kinds.ADDED
    assert (int(state.tasks.state[1]), int(state.workflows.dirty[1])) == (WAITING, 2)


@jit.jit
def enqueue(state, task):
    queue.push(state, task)


@jit.jit
def cancel(state, task):
    return structure.cancel(state, task)


@jit.jit
def enter(state, task):
    queue.push(state, task)


def test_what_is_open_can_be_cancelled_and_what_has_ended_cannot() -> None:
    """States in turn: what runs is asked to stop and goes later; what waits goes at once; what is over stays."""
    states = [PLACED, READY, WAITING, UNKNOWN, PARKED, DONE, FAILED, CANCELLED]
    state = one_workflow(len(states) + 1)
    state.replace(ended=record_table(ENDED, 16))
    state.tasks.state[: len(states)] = states
    state.marks.attempt[0] = 0
    state.attempts.sibling[0] = -1
    enter(state.handle(), 1)
    before = int(state.counts.open[0])
    assert [bool(cancel(state.handle(), task)) for task in range(len(states))] == [True] * 5 + [False] * 3
    assert state.tasks.state[: len(states)].tolist() == [PLACED, *[CANCELLED] * 4, DONE, FAILED, CANCELLED]
    assert (int(state.marks.fate[0]), int(state.attempts.stopping[0])) == (CANCEL, 1)
    assert (int(state.counts.waiting[0]), int(state.counts.open[0]), int(state.counts.ended_n[0])) == (0, before - 4, 4)
    assert [int(row.outcome) for row in state.ended[:4]] == [CANCELLED] * 4
