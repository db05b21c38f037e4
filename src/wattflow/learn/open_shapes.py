"""Which waiting tasks may find a place, told without a look at each. Compiled.

The flagship looks at every waiting task at every instant, and most of them find no place: there is no room, or no
hardware thread is left on the nodes that have room. That does not depend on the task but on its shape, and it can
change only where a node gains room. So a shape without an *open* place is *closed* until then, and only nodes that
gained room since are looked at again. `docs/learned.md` says why an episode is the flagship's run all the same.
"""

from __future__ import annotations

import numpy as np

from wattflow.engine import queue
from wattflow.engine.tables import FALLING
from wattflow.kernel.jit import inner
from wattflow.learn.episode_buffers import ONE
from wattflow.policy import patient, view

FEW = 8
"""With more nodes than this that gained room, all groups of nodes are looked at instead."""
_NOWHERE = np.int64(-1)


@inner
def _has_thread(state, variant, node):
    """Tell whether the flagship would use the node: not where a task on a node in use has no thread of its own."""
    return view.busy_cores(state, node) <= 0.0 or not patient.crowded(state, variant, node)


@inner
def _takes(state, variant, need_u, memory, node, threads):
    """Tell whether a node has room for a plain variant and, asked so, a thread."""
    row = state.nodes[node]
    if row.used_u + need_u > row.capacity_u or row.used_mem + memory > row.capacity_mem:
        return False
    if row.power_state > FALLING or state.class_ok[variant, row.cls] == 0:
        return False
    return not threads or _has_thread(state, variant, node)


@inner
def _taken_by(state, ask, shape, node, threads):
    """Tell the same for any variant of a plain shape."""
    needs = ask.needs[shape]
    if needs.plain == ONE:
        return _takes(state, needs.variant, needs.need_u, needs.memory, node, threads)
    form = state.shapes[shape]
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        own = state.variants[v]
        if ask.follows[v] == 0 and _takes(state, v, own.need_u, own.memory, node, threads):
            return True
    return False


@inner
def _taken_anywhere(state, ask, shape, threads):
    """Find the first node of which the same is true; −1 without one."""
    needs = ask.needs[shape]
    for at in range(state.counts[0].active_n):
        group = state.groups[state.active_groups[at]]
        if needs.plain == ONE and (group.free_u < needs.need_u or group.free_mem < needs.memory):
            continue
        if _taken_by(state, ask, shape, group.node, threads):
            return np.int64(group.node)
    return _NOWHERE


@inner
def _is_open(state, ask, shape):
    """Tell whether a task of the shape may find a place now; where it surely does not, the shape is closed."""
    if ask.needs[shape].plain == 0:
        return True
    threads = state.rules[0].has_score == 1
    # Tried first: the node that had room last mostly has it still, and one look then answers.
    last = ask.opening[shape]
    if last >= 0 and _taken_by(state, ask, shape, last, threads):
        return True
    epoch = state.clock[0].epoch
    since = ask.closed[shape]
    found = _NOWHERE
    # Below the floor the ring of freed nodes has lost some of those that gained room: all must be looked at.
    if since == 0 or epoch - since > FEW or since < state.choice[0].floor:
        found = _taken_anywhere(state, ask, shape, threads)
    else:
        for e in range(since, epoch):
            node = state.freed[e & (state.freed.size - 1)]
            if _taken_by(state, ask, shape, node, threads):
                found = np.int64(node)
                break
    if found < 0:
        close(state, ask, shape)
        return False
    ask.opening[shape] = found
    return True


@inner
def close(state, ask, shape):
    """Note that no task of the shape finds a place until a node gains room."""
    ask.closed[shape] = state.clock[0].epoch
    ask.opening[shape] = _NOWHERE


@inner
def first_open(state, ask):
    """Find the first waiting task whose shape is not closed; −1 without one.

    Of shapes whose first task stands behind one that is open nobody needs to know.
    """
    epoch = state.clock[0].epoch
    best = np.int64(-1)
    for at in range(state.counts[0].shapes_n):
        shape = state.active_shapes[at]
        if ask.closed[shape] == epoch:
            continue
        head = np.int64(state.shapes[shape].head)
        if (best < 0 or queue.stands_before(state, head, best)) and _is_open(state, ask, shape):
            best = head
    return best


@inner
def _count_before(state, ask, shape, task):
    """Count waiting tasks of a shape that stand before a task and behind the one that was looked at last."""
    asked = ask.ask[0]
    heap = state.tasks
    stack = ask.stack
    stack[0] = state.shapes[shape].head
    height = 1
    found = 0
    while height > 0:
        height -= 1
        one = stack[height]
        if not queue.stands_before(state, one, task):
            continue  # and nothing below it
        row = heap[one]
        if row.key > asked.key or (row.key == asked.key and row.sequence > asked.sequence):
            found += 1
        if row.next >= 0:
            stack[height] = row.next
            height += 1
        if row.previous >= 0:
            stack[height] = row.previous
            height += 1
    return found


@inner
def set_apart(state, ask, task):
    """Count the tasks of closed shapes that the flagship sets aside before it comes to a task.

    It prices by how many tasks wait, and those that have room but no thread are set aside in their turn; those that
    have no room stay.
    """
    asked = ask.ask[0]
    epoch = state.clock[0].epoch
    for at in range(state.counts[0].shapes_n):
        shape = state.active_shapes[at]
        if ask.closed[shape] != epoch or not queue.stands_before(state, state.shapes[shape].head, task):
            continue
        if ask.needs[shape].plain > 0 and _taken_anywhere(state, ask, shape, False) >= 0:
            asked.apart += _count_before(state, ask, shape, task)
    # The next count goes on behind this task: none is set apart twice.
    asked.key = state.tasks[task].key
    asked.sequence = state.tasks[task].sequence
