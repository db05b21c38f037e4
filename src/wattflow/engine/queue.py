"""The ready queue: one queue per shape, so that a shape that fits nowhere is passed over in one step.

Without a priority each shape's queue is a linked list in order of entry; with a static priority it is a skew heap on
(key, sequence). A dynamic priority scans the waiting tasks whenever something fits.
"""

from __future__ import annotations

from wattflow.kernel.jit import inner


@inner
def _before(state, a, b):
    """Whether task a stands before task b."""
    task_row_b = state.tasks[b]
    task_row_a = state.tasks[a]
    ka = task_row_a.key
    kb = task_row_b.key
    return ka < kb or (ka == kb and task_row_a.sequence < task_row_b.sequence)


@inner
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
        form.place = at
        counts.shapes_n = at + 1
        form.head = task
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
    counts = state.counts[0]
    task_row = state.tasks[task]
    shape = task_row.form
    form = state.shapes[shape]
    if _is_heap(state):
        form.head = _merge(state, task_row.next, task_row.previous)
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
    form.waiting -= 1
    state.functions[form.function].waiting -= 1
    counts.waiting -= 1
    if form.waiting == 0:
        last = counts.shapes_n - 1
        counts.shapes_n = last
        moved = state.active_shapes[last]
        state.active_shapes[form.place] = moved
        state.shapes[moved].place = form.place


@inner
def first(state):
    """The first waiting task whose shape has not failed since capacity last grew; −1 without one."""
    clock = state.clock[0]
    counts = state.counts[0]
    best = -1
    for at in range(counts.shapes_n):
        shape = state.active_shapes[at]
        if state.shapes[shape].failed == clock.epoch:
            continue
        head = state.shapes[shape].head
        if best < 0 or _before(state, head, best):
            best = head
    return best


@inner
def first_of_all(state):
    """The first waiting task, whether or not its shape has failed (the strict head of line)."""
    best = -1
    for at in range(state.counts[0].shapes_n):
        head = state.shapes[state.active_shapes[at]].head
        if best < 0 or _before(state, head, best):
            best = head
    return best


@inner
def rekey(state, priority):
    """Compute the dynamic priority of every waiting task whose shape may fit; returns the first, −1 without one."""
    clock = state.clock[0]
    rules = state.rules[0]
    counts = state.counts[0]
    best = -1
    for at in range(counts.shapes_n):
        shape = state.active_shapes[at]
        if state.shapes[shape].failed == clock.epoch and rules.queue == 0:
            continue
        task = state.shapes[shape].head
        while task >= 0:
            state.tasks[task].key = priority(state, task)
            if best < 0 or _before(state, task, best):
                best = task
            task = state.tasks[task].next
    return best
