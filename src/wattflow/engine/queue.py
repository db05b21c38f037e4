"""The ready queue: one queue per shape, so that a shape that fits nowhere is passed over in one step.

Without a priority each shape's queue is a linked list in order of entry; with a static priority it is a skew heap on
(key, sequence). A dynamic priority scans the waiting tasks whenever something fits.
"""

from __future__ import annotations

from numba import types

from wattflow.engine import rows
from wattflow.engine.parts import LIVE, RICH
from wattflow.engine.tables import CANCELLED, GHOST, LEFT
from wattflow.kernel import heaps
from wattflow.kernel.jit import inner, optional


@inner
def stands_before(state, a, b):
    """Tell whether task a stands before task b."""
    task_row_b = state.tasks[b]
    task_row_a = state.tasks[a]
    ka = task_row_a.key
    kb = task_row_b.key
    # Levels were compared by the caller; within a shape all tasks have the same.
    return ka < kb or (ka == kb and task_row_a.sequence < task_row_b.sequence)


_merged = heaps.skew(stands_before)


@inner
def _merge(state, a, b):
    """Merge two heaps of tasks (``next`` is the left child, ``previous`` the right one)."""
    return _merged(state, state.tasks.next, state.tasks.previous, a, b)


@inner
def _is_heap(state):
    rules = state.rules[0]
    return rules.has_priority == 1 and rules.dynamic == 0


@inner
def push(state, task):
    """Put a task into its shape's queue; its key and sequence are set."""
    task_row = state.tasks[task]
    counts = state.counts[0]
    shape = task_row.form
    form = state.shapes[shape]
    task_row.next = -1
    task_row.previous = -1
    if form.waiting == 0:
        at = counts.shapes_n
        state.active_shapes[at] = shape
        # Its place is kept in both directions, so that leaving is O(1); `_one_less` moves the last one there.
        form.place = at
        counts.shapes_n = at + 1
        form.head = task  # no ghost is left in a heap where nothing waits
        form.tail = task
    elif _is_heap(state):
        form.head = _merge(state, form.head, task)
    else:
        last = form.tail
        state.tasks[last].next = task
        task_row.previous = last
        form.tail = task
    form.waiting += 1
    state.functions[form.function].waiting += 1
    counts.waiting += 1


@inner
def push_front(state, task):
    """Put a held task back before all others of its shape (linked lists only)."""
    task_row = state.tasks[task]
    shape = task_row.form
    form = state.shapes[shape]
    # A heap orders by key and sequence, wherever a task comes in.
    if _is_heap(state) or form.waiting == 0:
        push(state, task)
        return
    first = form.head
    task_row.next = first
    task_row.previous = -1
    state.tasks[first].previous = task
    form.head = task
    form.waiting += 1
    state.functions[form.function].waiting += 1
    state.counts[0].waiting += 1


@inner
def remove(state, task):
    """Take a task out: any task of a linked list, the head of a heap."""
    task_row = state.tasks[task]
    shape = task_row.form
    form = state.shapes[shape]
    if _is_heap(state):
        form.head = _merge(state, task_row.next, task_row.previous)
        if form.ghosts > 0:
            _drop_ghosts(state, shape)
    else:
        before = task_row.previous
        after = task_row.next
        if before >= 0:
            state.tasks[before].next = after
        else:
            form.head = after
        if after >= 0:
            state.tasks[after].previous = before
        else:
            form.tail = before
    _one_less(state, shape)


@inner
def _one_less(state, shape):
    """Count one waiting task of a shape less; without any, the shape leaves the list of those that wait."""
    counts = state.counts[0]
    form = state.shapes[shape]
    form.waiting -= 1
    state.functions[form.function].waiting -= 1
    counts.waiting -= 1
    if form.waiting == 0:
        last = counts.shapes_n - 1
        counts.shapes_n = last
        moved = state.active_shapes[last]
        state.active_shapes[form.place] = moved
        state.shapes[moved].place = form.place


@optional(LIVE)
def _drop_ghosts(state, shape):
    """Pop cancelled tasks off the head of a heap, so that the head is a task that waits."""
    form = state.shapes[shape]
    while form.head >= 0 and state.tasks[form.head].state >= GHOST:
        ghost = state.tasks[form.head]
        task = form.head
        form.head = _merge(state, ghost.next, ghost.previous)
        form.ghosts -= 1
        if ghost.state == LEFT:
            rows.put_back(state, task)
        else:
            ghost.state = CANCELLED


@inner
def cancel(state, task):
    """Take any waiting task out. In a heap it becomes a ghost that comes out when it reaches the head."""
    form = state.shapes[state.tasks[task].form]
    if not _is_heap(state):
        state.tasks[task].state = CANCELLED
        remove(state, task)
        return
    shape = state.tasks[task].form
    state.tasks[task].state = GHOST
    form.ghosts += 1
    _drop_ghosts(state, shape)
    # Ghosts cost every merge that passes them: made anew once they outnumber the rest, O(1) for each over time.
    if form.ghosts > form.waiting + 64:
        _rebuild(state, shape)
    _one_less(state, shape)


@inner
def take_out(state, task):
    """Take any waiting task out at once, in a heap at the cost of making it anew."""
    shape = state.tasks[task].form
    if _is_heap(state) and state.shapes[shape].head != task:
        before = state.tasks[task].state
        # A ghost only while the heap is made anew, which leaves ghosts out.
        state.tasks[task].state = GHOST
        state.shapes[shape].ghosts += 1
        _rebuild(state, shape)
        state.tasks[task].state = before
        _one_less(state, shape)
    else:
        remove(state, task)


@inner
def _rebuild(state, shape):
    """Make a shape's heap anew, without its ghosts. The tasks are collected in ``scratch``."""
    form = state.shapes[shape]
    n = 0
    if form.head >= 0:
        state.scratch[0] = form.head
        n = 1
    at = 0
    while at < n:
        row = state.tasks[state.scratch[at]]
        if row.next >= 0:
            state.scratch[n] = row.next
            n += 1
        if row.previous >= 0:
            state.scratch[n] = row.previous
            n += 1
        at += 1
    form.head = -1
    for at in range(n):
        task = state.scratch[at]
        row = state.tasks[task]
        row.next = -1
        row.previous = -1
        if row.state < GHOST:
            form.head = _merge(state, form.head, task)
        elif row.state == LEFT:
            rows.put_back(state, task)
        else:
            row.state = CANCELLED
    form.ghosts = 0


@inner
def reinsert(state, task):
    """Put a task back where its key and sequence say: as if it had never left."""
    task_row = state.tasks[task]
    form = state.shapes[task_row.form]
    if form.waiting == 0 or _is_heap(state):
        push(state, task)
        return
    after = form.head
    # From the head: what comes back waited longer than most.
    while after >= 0 and state.tasks[after].sequence < task_row.sequence:
        after = state.tasks[after].next
    if after < 0:
        push(state, task)
        return
    before = state.tasks[after].previous
    task_row.next = after
    task_row.previous = before
    state.tasks[after].previous = task
    if before >= 0:
        state.tasks[before].next = task
    else:
        form.head = task
    form.waiting += 1
    state.functions[form.function].waiting += 1
    state.counts[0].waiting += 1


@inner
def first(state):
    """Return the first waiting task whose shape has not failed since capacity last grew; −1 without one."""
    clock = state.clock[0]
    counts = state.counts[0]
    best = -1
    level = 0
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        if form.failed == clock.epoch:
            continue
        # By task, not by place in the list of shapes: that order changes whenever a shape runs empty.
        if best < 0 or form.level > level or (form.level == level and stands_before(state, form.head, best)):
            best = form.head
            level = form.level
    return best


@inner
def first_of_all(state):
    """Return the first waiting task, whether or not its shape has failed (the strict head of line)."""
    best = -1
    level = 0
    for at in range(state.counts[0].shapes_n):
        form = state.shapes[state.active_shapes[at]]
        if best < 0 or form.level > level or (form.level == level and stands_before(state, form.head, best)):
            best = form.head
            level = form.level
    return best


@optional(RICH, types.int64)
def rekey(state, priority):
    """Compute the dynamic priority of every waiting task whose shape may fit; returns the first, −1 without one."""
    clock = state.clock[0]
    rules = state.rules[0]
    counts = state.counts[0]
    best = -1
    level = 0
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        # With strict order a shape that failed may still be the head of line, so only `skip` passes it over.
        if (form.failed == clock.epoch and rules.queue == 0) or (best >= 0 and form.level < level):
            continue
        task = form.head
        while task >= 0:
            state.tasks[task].key = priority(state, task)
            if best < 0 or form.level > level or stands_before(state, task, best):
                best = task
                level = form.level
            task = state.tasks[task].next
    return best


@inner
def refill(state, tasks, priority):
    """Make the queue anew from the given tasks, in order of entry, with their keys as the policy sees them now."""
    counts = state.counts[0]
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        form.waiting = 0
        form.failed = 0
        form.head = -1
        form.tail = -1
    for f in range(state.functions.size):
        state.functions[f].waiting = 0
    counts.shapes_n = 0
    counts.waiting = 0
    # In the given order: tasks with equal keys stand in the order of their entry, which `push` numbers anew.
    rules = state.rules[0]
    for i in range(tasks.size):
        row = state.tasks[tasks[i]]
        row.key = 0.0
        if rules.has_priority == 1 and rules.dynamic == 0:
            row.key = priority(state, tasks[i])
        push(state, tasks[i])
