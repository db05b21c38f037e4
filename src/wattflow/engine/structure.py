"""Tasks, edges and workflows that come and go while the engine runs: late structure, seals, cancels."""

from __future__ import annotations

from wattflow.engine import queue, release, rows
from wattflow.engine.kinds import ADDED, CHILD_STARTED, CYCLE, DEAD_PARENT, FULL, STRANGERS, TASK_ID
from wattflow.engine.tables import (
    ACT_STOP,
    CANCEL,
    CANCELLED,
    DONE,
    FAILED,
    GHOST,
    PARKED,
    PLACED,
    READY,
    UNKNOWN,
    WAITING,
)
from wattflow.kernel.jit import inner


@inner
def task_id(state, task):
    """Return the public id of a task's row."""
    return rows.make_id(TASK_ID, task, state.marks[task].generation)


@inner
def add_task(state, task):
    """Add a task whose row is filled to its workflow; it counts as open."""
    row = state.tasks[task]
    work = state.workflows[row.workflow]
    # Workflow 0 holds the loose tasks, which come and go one by one: no list of them is kept.
    state.marks[task].sibling = work.first_task if row.workflow > 0 else -1
    if row.workflow > 0:
        work.first_task = task
        work.dirty = max(1, work.dirty)
    work.open += 1
    state.counts[0].open += 1


@inner
def _reaches(state, start, goal):
    """Tell whether a path of edges leads from one task to another. Each task is looked at once."""
    counts = state.counts[0]
    # A new stamp instead of clearing the marks of all tasks.
    counts.stamp += 1
    stamp = counts.stamp
    state.scratch[0] = start
    state.marks[start].stamp = stamp
    n = 1
    while n > 0:
        n -= 1
        links = state.links[state.scratch[n]]
        for e in range(links.child_first, links.child_first + links.child_n):
            child = state.child[e]
            if child == goal:
                return True
            if state.marks[child].stamp != stamp:
                state.marks[child].stamp = stamp
                state.scratch[n] = child
                n += 1
    return False


@inner
def add_edge(state, parent, child, size_bytes):
    """Make the child wait for the parent. Answers ADDED, FULL (grow the tables, try again) or why not."""
    down = state.tasks[child]
    up = state.tasks[parent]
    if down.workflow != up.workflow or down.workflow == 0:
        return STRANGERS
    if down.state != WAITING and down.state != READY and down.state != PARKED and down.state != UNKNOWN:
        return CHILD_STARTED
    # A task without children leads nowhere: new tasks, the common case, need no walk.
    if parent == child or (state.links[child].child_n > 0 and _reaches(state, child, parent)):
        return CYCLE
    if up.state == FAILED or up.state == CANCELLED or up.state == GHOST:
        return DEAD_PARENT
    if not rows.add_edge(state, parent, child, size_bytes):
        return FULL
    if size_bytes > 0.0:
        state.rules[0].has_data = 1
    work = state.workflows[down.workflow]
    work.dirty = max(1, work.dirty)
    # There is nothing to wait for any more; the edge only says where bytes lie.
    if up.state == DONE:
        return ADDED
    down.pending += 1
    if down.state == READY:
        queue.take_out(state, child)
        down.state = WAITING
    elif down.state == PARKED:
        down.state = WAITING
    return ADDED


@inner
def note_end(state, task):
    """List a task that left the engine, as its row says. The row of a task without a workflow is free at once."""
    counts = state.counts[0]
    row = state.tasks[task]
    ended = state.ended[counts.ended_n]
    counts.ended_n += 1
    ended.task = task_id(state, task)
    ended.tag = state.marks[task].tag
    # A ghost is still in its heap: for everybody outside it is cancelled.
    ended.outcome = CANCELLED if row.state >= GHOST else row.state
    if row.workflow == 0:
        rows.free_task(state, task)


@inner
def note_ends(state, n):
    """List the first n tasks of ``scratch``."""
    for i in range(n):
        note_end(state, state.scratch[i])


@inner
def close(state, w):
    """Free the rows of a sealed workflow without open tasks."""
    if w > 0 and state.workflows[w].sealed == 1 and state.workflows[w].open == 0:
        rows.free_workflow(state, w)


@inner
def ask_stop(state, a):
    """Ask the driver to end an attempt, once."""
    counts = state.counts[0]
    attempt = state.attempts[a]
    if attempt.stopping == 1:
        return
    attempt.stopping = 1
    action = state.actions[counts.action_n]
    action.kind = ACT_STOP
    # Of a STOP the ``node`` column names the attempt (`live.stepping` makes the id of it).
    action.node = a
    action.value = 0
    counts.action_n += 1


@inner
def stop_others(state, a):
    """Ask for the end of the other parts of an attempt's task."""
    b = state.attempts[a].sibling
    while b >= 0 and b != a:
        ask_stop(state, b)
        b = state.attempts[b].sibling


@inner
def _stop_all(state, task):
    """Ask for the end of all attempts of a placed task."""
    a = state.marks[task].attempt
    if a >= 0:
        ask_stop(state, a)
        stop_others(state, a)


@inner
def cancel(state, task):
    """Cancel a task and its descendants. False when it has ended already."""
    row = state.tasks[task]
    if row.state == PLACED:
        # It ends when its driver says so: until then a real process holds its cores and memory.
        state.marks[task].fate = CANCEL
        _stop_all(state, task)
        return True
    if row.state == READY:
        queue.cancel(state, task)
    elif row.state == WAITING or row.state == UNKNOWN or row.state == PARKED:
        row.state = CANCELLED
    else:
        return False
    note_ends(state, release.leave(state, task))
    return True


@inner
def cancel_workflow(state, w):
    """Cancel all open tasks of a workflow, and seal it."""
    task = state.workflows[w].first_task
    while task >= 0:
        cancel(state, task)
        task = state.marks[task].sibling
    state.workflows[w].sealed = 1


@inner
def seal_placeholder(state, task):
    """Note that what a placeholder stood for is known: it ends when its parents have."""
    row = state.tasks[task]
    if row.state == UNKNOWN and row.parts_left == 0:
        # A placeholder has no parts: the column says that it is
        # sealed. It is in no queue either, so `next` links it here.
        row.parts_left = 1
        row.next = state.counts[0].sealed_first
        state.counts[0].sealed_first = task


@inner
def settle_placeholders(state, priority):
    """Complete sealed placeholders whose parents have ended; that may free others."""
    counts = state.counts[0]
    changed = counts.sealed_first >= 0
    while changed:
        changed = False
        before = -1
        task = counts.sealed_first
        while task >= 0:
            row = state.tasks[task]
            after = row.next
            # Others may end later: it stays listed. Cancelled ones (below) leave the list without an end of their own.
            if row.state == UNKNOWN and row.pending > 0:
                before = task
            else:
                if before >= 0:
                    state.tasks[before].next = after
                else:
                    counts.sealed_first = after
                if row.state == UNKNOWN:
                    release.complete(state, task, -1, priority)
                    note_end(state, task)
                    changed = True
            task = after
