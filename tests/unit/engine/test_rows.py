"""Rows that come and go: a row that is used again starts anew, and edges survive the moves of their blocks."""

from __future__ import annotations

import math
import random

import numpy as np

from reference.hand import node, nodes, tasks
from wattflow.engine import rows
from wattflow.engine.build import build_state
from wattflow.engine.tables import EXTRA, FREE, LINKS, MARKS, WAITING, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table


@jit.jit
def new_task(state):
    return rows.new_task(state)


@jit.jit
def new_workflow(state, now):
    return rows.new_workflow(state, now)


@jit.jit
def free_task(state, task):
    rows.free_task(state, task)


@jit.jit
def add_edge(state, parent, child, size_bytes):
    return rows.add_edge(state, parent, child, size_bytes)


def live_state(count: int, edges: int = 256) -> State:
    """Tables as a live engine has them: a mark for each task, room for edges, and no edge yet."""
    state = build_state(tasks([1.0] * count), nodes(node()))
    state.replace(
        child=np.zeros(edges, np.int32), parent=np.zeros(edges, np.int32), parent_bytes=np.zeros(edges),
        marks=record_table(MARKS, count), extra=record_table(EXTRA, count), links=record_table(LINKS, count),
    )  # fmt: skip
    return state


def test_a_workflow_row_starts_anew() -> None:
    state = live_state(2)
    for name in ("work_left", "path_left", "rank", "open", "started", "sealed", "dirty", "deadline", "submit"):
        state.workflows[name] = 7
    state.workflows["first_task"] = 5
    state.counts["free_workflow"] = 0
    assert new_workflow(state.handle(), 3.0) == 0
    assert int(state.counts.free_workflow[0]) == 5  # where the free list went on
    row = state.workflows[0]
    assert (row.submit, row.first_task, row.deadline) == (3.0, -1, math.inf)
    assert [float(row[name]) for name in ("work_left", "path_left", "rank", "open", "started", "sealed", "dirty")] == (
        [0.0] * 7
    )
    state.counts["free_workflow"] = -1
    assert new_workflow(state.handle(), 3.0) == -1


def test_a_task_row_starts_anew() -> None:
    state = live_state(2)
    for table in (state.tasks, state.extra, state.marks):
        for name in table.dtype.names:
            table[name] = 3
    state.counts["free_task"] = 1
    assert new_task(state.handle()) == 1
    assert int(state.counts.free_task[0]) == 3
    row, extra, mark = state.tasks[1], state.extra[1], state.marks[1]
    assert [int(row[n]) for n in ("next", "previous", "node", "pinned", "pinned_variant")] == [-1] * 5
    assert [float(row[n]) for n in ("pending", "parts_left", "attempt", "arrived", "key")] == [0.0] * 5
    assert (row.state, extra.deadline) == (WAITING, math.inf)
    assert [float(extra[n]) for n in ("rank", "slack", "input_bytes", "start_at")] == [0.0] * 4
    assert (mark.fate, mark.running, mark.attempt, mark.sibling, mark.until) == (0, 0, -1, -1, 0.0)
    state.counts["free_task"] = -1
    assert new_task(state.handle()) == -1


def parents(state: State, task: int) -> list[tuple[int, float]]:
    first, n = int(state.links.parent_first[task]), int(state.links.parent_n[task])
    return [(int(state.parent[e]), float(state.parent_bytes[e])) for e in range(first, first + n)]


def children(state: State, task: int) -> list[int]:
    first, n = int(state.links.child_first[task]), int(state.links.child_n[task])
    return [int(child) for child in state.child[first : first + n]]


def test_edges_are_those_of_plain_lists_while_their_blocks_grow() -> None:
    state, rng = live_state(24, edges=1024), random.Random(5)
    up: dict[int, list[tuple[int, float]]] = {t: [] for t in range(24)}
    down: dict[int, list[int]] = {t: [] for t in range(24)}
    for step in range(160):
        parent, child = rng.sample(range(24), 2)
        if len(up[child]) < 12 and len(down[parent]) < 12:
            assert add_edge(state.handle(), parent, child, float(step))
            up[child].append((parent, float(step)))
            down[parent].append(child)
        for task in (parent, child):
            assert parents(state, task) == up[task]
            assert children(state, task) == down[task]
    assert [parents(state, t) for t in range(24)] == list(up.values())
    assert max(map(len, up.values())) > 8  # blocks of 4, 8 and 16


def test_freed_blocks_are_used_again_and_a_full_table_changes_nothing() -> None:
    state = live_state(6, edges=8)
    assert add_edge(state.handle(), 0, 1, 1.0) and add_edge(state.handle(), 0, 2, 2.0)
    before = state.parent.copy(), state.child.copy(), state.counts.copy(), state.links.copy()
    assert not add_edge(state.handle(), 3, 4, 4.0)  # parents of 1 and 2 fill their table; the block for 3 goes back
    after = state.parent, state.child, state.counts, state.links
    assert np.array_equal(before[0], after[0]) and np.array_equal(before[3], after[3])
    assert int(state.counts.parent_n[0]) == 8 and int(state.links.child_n[3]) == 0
    free_task(state.handle(), 1)
    assert state.tasks.state[1] == FREE and int(state.counts.free_task[0]) == 1
    assert add_edge(state.handle(), 3, 4, 4.0)
    assert (parents(state, 4), children(state, 3), int(state.links.parent_first[4])) == ([(3, 4.0)], [4], 0)
