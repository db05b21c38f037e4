"""Rows that come and go: tasks, workflows and blocks of edges in tables that are used again and again."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine.kinds import GENERATION_MASK, ID_SHIFT, ROW_BITS
from wattflow.engine.tables import FREE, GHOST, LEFT, WAITING
from wattflow.kernel.jit import inner

SMALLEST = 4
"""Edges that the first block of a task has room for; each next block has twice as much."""
_LISTS = 32
"""Free lists in ``blocks``: for children by size, then for parents by size."""


@inner
def make_id(what, row, generation):
    """Pack what a row is, its generation and its number into one integer."""
    return (np.int64(what) << ID_SHIFT) | ((np.int64(generation) & GENERATION_MASK) << ROW_BITS) | np.int64(row)


@inner
def new_task(state):
    """Take a task row that nothing refers to yet; −1 when the table is full."""
    counts = state.counts[0]
    task = counts.free_task
    if task < 0:
        return -1
    row = state.tasks[task]
    counts.free_task = row.next
    # All that the row's life before may have left, but for the generation, which makes old ids stale.
    row.state = WAITING
    row.pending = 0
    row.next = -1
    row.previous = -1
    row.node = -1
    row.pinned = -1
    row.pinned_variant = -1
    row.parts_left = 0
    row.attempt = 0
    row.arrived = 0
    row.key = 0.0
    extra = state.extra[task]
    extra.deadline = math.inf
    extra.rank = 0.0
    extra.slack = 0.0
    extra.input_bytes = 0.0
    extra.start_at = 0.0
    mark = state.marks[task]
    mark.fate = 0
    mark.running = 0
    mark.attempt = -1
    mark.sibling = -1
    mark.until = 0.0
    return task


@inner
def put_back(state, task):
    """Put a task row onto the free list; its id is stale from now on."""
    row = state.tasks[task]
    counts = state.counts[0]
    # `marks.generation` was raised by `free_task`, so ids of the life before are stale.
    row.state = FREE
    row.next = counts.free_task
    counts.free_task = task


@inner
def free_task(state, task):
    """Give a task's row and edges back; a ghost in a heap leaves its row there until it comes out."""
    row = state.tasks[task]
    links = state.links[task]
    _give_block(state, state.child, 0, links.child_first, links.child_n)
    _give_block(state, state.parent, _LISTS, links.parent_first, links.parent_n)
    links.child_n = 0
    links.parent_n = 0
    state.marks[task].generation += 1
    state.shapes[row.form].tasks -= 1
    # Its links are part of the heap; `queue._drop_ghosts` frees the row when it comes out.
    if row.state == GHOST:
        row.state = LEFT
    else:
        put_back(state, task)


@inner
def _room(n):
    """Return the room of the block that holds n edges, and the number of its free list."""
    size = SMALLEST
    at = 0
    while size < n:
        size *= 2
        at += 1
    return size, at


@inner
def _give_block(state, edges, lists, first, n):
    if n == 0:
        return
    _, at = _room(n)
    # A free block keeps the next free one of its size in its first edge: no memory beside.
    edges[first] = state.blocks[lists + at]
    state.blocks[lists + at] = first


@inner
def _take_block(state, edges, lists, used, n):
    """Return the first place of a block for n edges, and how much of the table is used then; −1 when it is full."""
    size, at = _room(n)
    first = state.blocks[lists + at]
    if first >= 0:
        state.blocks[lists + at] = edges[first]
        return first, used
    if used + size > edges.size:
        return -1, used
    return used, used + size


@inner
def is_full(n):
    """Tell whether a block with n edges has no room for one more."""
    # Blocks hold 4, 8, 16, …: they are full at exactly these counts, so no column is needed for their room.
    return n == 0 or (n >= SMALLEST and n & (n - 1) == 0)


@inner
def add_edge(state, parent, child, size_bytes):
    """Note an edge in both tasks' blocks; False when a table is full (nothing has changed then)."""
    counts = state.counts[0]
    up = state.links[parent]
    down = state.links[child]
    to_child = up.child_first
    to_parent = down.parent_first
    # Both blocks are found before anything is written: False leaves all as it was, and the step is called again.
    if is_full(up.child_n):
        to_child, counts.child_n = _take_block(state, state.child, 0, counts.child_n, up.child_n + 1)
        if to_child < 0:
            return False
    if is_full(down.parent_n):
        to_parent, counts.parent_n = _take_block(state, state.parent, _LISTS, counts.parent_n, down.parent_n + 1)
        if to_parent < 0:
            if to_child != up.child_first or up.child_n == 0:
                _give_block(state, state.child, 0, to_child, up.child_n + 1)
            return False
    if is_full(up.child_n):
        for e in range(up.child_n):
            state.child[to_child + e] = state.child[up.child_first + e]
        _give_block(state, state.child, 0, up.child_first, up.child_n)
        up.child_first = to_child
    if is_full(down.parent_n):
        for e in range(down.parent_n):
            state.parent[to_parent + e] = state.parent[down.parent_first + e]
            state.parent_bytes[to_parent + e] = state.parent_bytes[down.parent_first + e]
        _give_block(state, state.parent, _LISTS, down.parent_first, down.parent_n)
        down.parent_first = to_parent
    state.child[up.child_first + up.child_n] = child
    state.parent[down.parent_first + down.parent_n] = parent
    state.parent_bytes[down.parent_first + down.parent_n] = size_bytes
    up.child_n += 1
    down.parent_n += 1
    return True


@inner
def new_workflow(state, now):
    """Take a workflow row; −1 when the table is full."""
    counts = state.counts[0]
    w = counts.free_workflow
    if w < 0:
        return -1
    row = state.workflows[w]
    # Free rows of workflows are linked by ``first_task``.
    counts.free_workflow = row.first_task
    row.first_task = -1
    row.submit = now
    row.work_left = 0.0
    row.path_left = 0.0
    row.open = 0
    row.started = 0
    row.rank = 0.0
    row.sealed = 0
    row.dirty = 0
    row.deadline = math.inf
    return w


@inner
def free_workflow(state, w):
    """Give back a workflow's row and the rows of all its tasks."""
    row = state.workflows[w]
    counts = state.counts[0]
    task = row.first_task
    while task >= 0:
        after = state.marks[task].sibling
        free_task(state, task)
        task = after
    row.generation += 1
    row.first_task = counts.free_workflow
    counts.free_workflow = w
