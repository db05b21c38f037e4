"""The ready queue: one queue per shape, so that a shape that fits nowhere is passed over in one step.

Without a priority each shape's queue is a linked list in order of entry; with a static priority it is a skew heap on
(key, sequence). A dynamic priority scans the waiting tasks whenever something fits.
"""

from __future__ import annotations

from wattflow.engine.jit import jit


@jit
def _before(state, a, b):
    """Whether task a stands before task b."""
    ka = state.tasks.key[a]
    kb = state.tasks.key[b]
    return ka < kb or (ka == kb and state.tasks.sequence[a] < state.tasks.sequence[b])


@jit
def _merge(state, a, b):
    """Merge two skew heaps (``next`` is the left child, ``previous`` the right one)."""
    if a < 0:
        return b
    if b < 0:
        return a
    if _before(state, b, a):
        a, b = b, a
    root = a
    left = state.tasks.next
    right = state.tasks.previous
    while b >= 0:
        r = right[a]
        right[a] = left[a]
        if r < 0:
            left[a] = b
            break
        if _before(state, b, r):
            left[a] = b
            a = b
            b = r
        else:
            left[a] = r
            a = r
    return root


@jit
def _is_heap(state):
    return state.clock.has_priority[0] == 1 and state.clock.dynamic[0] == 0


@jit
def push(state, task):
    """Put a task into its shape's queue; its key and sequence are set."""
    shape = state.tasks.form[task]
    shapes = state.shapes
    state.tasks.next[task] = -1
    state.tasks.previous[task] = -1
    if shapes.waiting[shape] == 0:
        at = state.clock.shapes_n[0]
        state.active_shapes[at] = shape
        shapes.place[shape] = at
        state.clock.shapes_n[0] = at + 1
        shapes.head[shape] = task
        shapes.tail[shape] = task
    elif _is_heap(state):
        shapes.head[shape] = _merge(state, shapes.head[shape], task)
    else:
        last = shapes.tail[shape]
        state.tasks.next[last] = task
        state.tasks.previous[task] = last
        shapes.tail[shape] = task
    shapes.waiting[shape] += 1
    state.functions.waiting[shapes.function[shape]] += 1
    state.clock.waiting[0] += 1


@jit
def push_front(state, task):
    """Put a held task back before all others of its shape (linked lists only)."""
    shape = state.tasks.form[task]
    if _is_heap(state) or state.shapes.waiting[shape] == 0:
        push(state, task)
        return
    first = state.shapes.head[shape]
    state.tasks.next[task] = first
    state.tasks.previous[task] = -1
    state.tasks.previous[first] = task
    state.shapes.head[shape] = task
    state.shapes.waiting[shape] += 1
    state.functions.waiting[state.shapes.function[shape]] += 1
    state.clock.waiting[0] += 1


@jit
def remove(state, task):
    """Take a task out: any task of a linked list, the head of a heap."""
    shape = state.tasks.form[task]
    shapes = state.shapes
    if _is_heap(state):
        shapes.head[shape] = _merge(state, state.tasks.next[task], state.tasks.previous[task])
    else:
        before = state.tasks.previous[task]
        after = state.tasks.next[task]
        if before >= 0:
            state.tasks.next[before] = after
        else:
            shapes.head[shape] = after
        if after >= 0:
            state.tasks.previous[after] = before
        else:
            shapes.tail[shape] = before
    shapes.waiting[shape] -= 1
    state.functions.waiting[shapes.function[shape]] -= 1
    state.clock.waiting[0] -= 1
    if shapes.waiting[shape] == 0:
        last = state.clock.shapes_n[0] - 1
        state.clock.shapes_n[0] = last
        moved = state.active_shapes[last]
        state.active_shapes[shapes.place[shape]] = moved
        shapes.place[moved] = shapes.place[shape]


@jit
def first(state):
    """The first waiting task whose shape has not failed since capacity last grew; −1 without one."""
    best = -1
    for at in range(state.clock.shapes_n[0]):
        shape = state.active_shapes[at]
        if state.shapes.failed[shape] == state.clock.epoch[0]:
            continue
        head = state.shapes.head[shape]
        if best < 0 or _before(state, head, best):
            best = head
    return best


@jit
def first_of_all(state):
    """The first waiting task, whether or not its shape has failed (the strict head of line)."""
    best = -1
    for at in range(state.clock.shapes_n[0]):
        head = state.shapes.head[state.active_shapes[at]]
        if best < 0 or _before(state, head, best):
            best = head
    return best


@jit
def rekey(state, priority):
    """Compute the dynamic priority of every waiting task whose shape may fit; returns the first, −1 without one."""
    best = -1
    for at in range(state.clock.shapes_n[0]):
        shape = state.active_shapes[at]
        if state.shapes.failed[shape] == state.clock.epoch[0] and state.clock.queue[0] == 0:
            continue
        task = state.shapes.head[shape]
        while task >= 0:
            state.tasks.key[task] = priority(state, task)
            if best < 0 or _before(state, task, best):
                best = task
            task = state.tasks.next[task]
    return best
