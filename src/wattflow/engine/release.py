"""DAG release: who becomes ready when a task arrives or ends, and who can no longer run when one fails."""

from __future__ import annotations

from wattflow.engine import queue
from wattflow.engine.tables import CANCELLED, DONE, FAILED, READY, UNKNOWN, WAITING
from wattflow.kernel.jit import inner


@inner
def enqueue(state, task, priority):
    """Make a task ready now."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    rules = state.rules[0]
    task_row.ready = clock.now
    task_row.state = READY
    sequence = clock.sequence
    clock.sequence = sequence + 1
    task_row.sequence = sequence
    if rules.has_priority == 1 and rules.dynamic == 0:
        task_row.key = priority(state, task)
    else:
        task_row.key = 0.0
    state.shapes[task_row.form].seen += 1
    queue.push(state, task)


@inner
def arrive(state, task, priority):
    """The task's release time has come."""
    task_row = state.tasks[task]
    task_row.arrived = 1
    if task_row.pending == 0 and task_row.state == WAITING:
        enqueue(state, task, priority)


@inner
def complete(state, task, node, priority):
    """All parts of a task ended well on (or lastly on) a node; its children may become ready."""
    task_row_task = state.tasks[task]
    task_row_task.state = DONE
    task_row_task.node = node
    state.counts[0].open -= 1
    state.workflows[task_row_task.workflow].open -= 1
    links = state.links[task]
    for e in range(links.child_first, links.child_first + links.child_n):
        child = state.child[e]
        left = state.tasks[child].pending - 1
        state.tasks[child].pending = left
        # A child that was cancelled meanwhile stays so.
        if left == 0 and state.tasks[child].arrived == 1 and state.tasks[child].state == WAITING:
            enqueue(state, child, priority)


@inner
def give_up(state, task):
    """A task failed for good: it and all that wait for it leave the open tasks; ``scratch`` lists them, first itself.

    Returns how many they are.
    """
    task_row_task = state.tasks[task]
    counts = state.counts[0]
    task_row_task.state = FAILED
    counts.failed_tasks += 1
    return leave(state, task)


@inner
def leave(state, task):
    """A task will not be done, nor what waits for it; ``scratch`` lists them, first itself. Returns how many."""
    task_row_task = state.tasks[task]
    counts = state.counts[0]
    counts.open -= 1
    state.workflows[task_row_task.workflow].open -= 1
    n = 1
    at = 0
    state.scratch[0] = task
    while at < n:
        parent = state.scratch[at]
        at += 1
        links = state.links[parent]
        for e in range(links.child_first, links.child_first + links.child_n):
            child = state.child[e]
            if state.tasks[child].state == WAITING or state.tasks[child].state == UNKNOWN:
                state.tasks[child].state = CANCELLED
                counts.open -= 1
                state.workflows[state.tasks[child].workflow].open -= 1
                state.scratch[n] = child
                n += 1
    return n
