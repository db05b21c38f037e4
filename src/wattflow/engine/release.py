"""DAG release: who becomes ready when a task arrives or ends, and who can no longer run when one fails."""

from __future__ import annotations

from wattflow.engine import queue
from wattflow.engine.tables import CANCELLED, DONE, FAILED, READY, UNKNOWN, WAITING
from wattflow.kernel import dag
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
    # A retry takes a new number: it goes to the end of the queue. `queue.reinsert` keeps the old one.
    task_row.sequence = sequence
    if rules.has_priority == 1 and rules.dynamic == 0:
        task_row.key = priority(state, task)
    else:
        # A dynamic priority is computed at each look (`queue.rekey`); until then 0 orders by sequence alone.
        task_row.key = 0.0
    state.shapes[task_row.form].seen += 1
    queue.push(state, task)


@inner
def arrive(state, task, priority):
    """Release a task whose time has come."""
    task_row = state.tasks[task]
    task_row.arrived = 1
    # One that was cancelled before it was due stays so.
    if task_row.pending == 0 and task_row.state == WAITING:
        enqueue(state, task, priority)


@inner
def _edges(state, task):
    links = state.links[task]
    return links.child_first, links.child_first + links.child_n


@inner
def _is_cancelled(state, task):
    """Cancel a task that has not begun; whether it was so."""
    row = state.tasks[task]
    # Also whoever was reached by another path: cancelled then, it is not listed twice.
    if row.state != WAITING and row.state != UNKNOWN:
        return False
    row.state = CANCELLED
    state.counts[0].open -= 1
    state.workflows[row.workflow].open -= 1
    return True


@inner
def _edges_of_both(both, task):
    return _edges(both[0], task)


@inner
def _one_less(both, task):
    state, priority = both
    row = state.tasks[task]
    left = row.pending - 1
    row.pending = left
    # A child that was cancelled meanwhile stays so.
    if left == 0 and row.arrived == 1 and row.state == WAITING:
        enqueue(state, task, priority)


_done = dag.release(_edges_of_both, _one_less)
_walk = dag.downstream(_edges, _is_cancelled)


@inner
def complete(state, task, node, priority):
    """Complete a task, whose last part ended on a node; its children may become ready."""
    task_row_task = state.tasks[task]
    task_row_task.state = DONE
    task_row_task.node = node
    state.counts[0].open -= 1
    state.workflows[task_row_task.workflow].open -= 1
    _done((state, priority), state.child, task)


@inner
def give_up(state, task):
    """Give a task up with all its descendants: they leave the open tasks; ``scratch`` lists them, first itself.

    Returns how many they are.
    """
    task_row_task = state.tasks[task]
    counts = state.counts[0]
    task_row_task.state = FAILED
    counts.failed_tasks += 1
    return leave(state, task)


@inner
def leave(state, task):
    """Remove a task and its descendants from the open tasks; ``scratch`` lists them, first itself. Returns how many."""
    state.counts[0].open -= 1
    state.workflows[state.tasks[task].workflow].open -= 1
    return _walk(state, state.child, state.scratch, task)
