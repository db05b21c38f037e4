"""DAG release: who becomes ready when a task arrives or ends, and who can no longer run when one fails."""

from __future__ import annotations

from wattflow.engine import queue
from wattflow.engine.jit import jit
from wattflow.engine.tables import CANCELLED, DONE, FAILED, READY, WAITING


@jit
def enqueue(state, task, priority):
    """Make a task ready now."""
    state.tasks.ready[task] = state.clock.now[0]
    state.tasks.state[task] = READY
    sequence = state.clock.sequence[0]
    state.clock.sequence[0] = sequence + 1
    state.tasks.sequence[task] = sequence
    if state.clock.has_priority[0] == 1 and state.clock.dynamic[0] == 0:
        state.tasks.key[task] = priority(state, task)
    else:
        state.tasks.key[task] = 0.0
    queue.push(state, task)


@jit
def arrive(state, task, priority):
    """The task's release time has come."""
    state.tasks.arrived[task] = 1
    if state.tasks.pending[task] == 0 and state.tasks.state[task] == WAITING:
        enqueue(state, task, priority)


@jit
def complete(state, task, node, priority):
    """All parts of a task ended well on (or lastly on) a node; its children may become ready."""
    state.tasks.state[task] = DONE
    state.tasks.node[task] = node
    state.clock.open[0] -= 1
    state.workflows.open[state.tasks.workflow[task]] -= 1
    for e in range(state.child_start[task], state.child_start[task + 1]):
        child = state.child[e]
        left = state.tasks.pending[child] - 1
        state.tasks.pending[child] = left
        if left == 0 and state.tasks.arrived[child] == 1:
            enqueue(state, child, priority)


@jit
def give_up(state, task):
    """A task failed for good: it and all that wait for it leave the open tasks. Depth-first over ``scratch``."""
    state.tasks.state[task] = FAILED
    state.clock.open[0] -= 1
    state.clock.failed_tasks[0] += 1
    state.workflows.open[state.tasks.workflow[task]] -= 1
    n = 1
    state.scratch[0] = task
    while n > 0:
        n -= 1
        parent = state.scratch[n]
        for e in range(state.child_start[parent], state.child_start[parent + 1]):
            child = state.child[e]
            if state.tasks.state[child] == WAITING:
                state.tasks.state[child] = CANCELLED
                state.clock.open[0] -= 1
                state.workflows.open[state.tasks.workflow[child]] -= 1
                state.scratch[n] = child
                n += 1
