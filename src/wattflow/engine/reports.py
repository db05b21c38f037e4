"""Fold a driver's reports of attempts and nodes into State, by the same changes that the simulator makes."""

from __future__ import annotations

import math

from wattflow.engine import agenda, attempts, containers, fit, groups, life, queue, structure
from wattflow.engine.tables import (
    ASLEEP,
    BACK,
    DOWN,
    DRAINING,
    ON,
    READY,
    STARTED,
)
from wattflow.kernel.jit import inner


@inner
def cold(state, driver, node, fn):
    """Forget a function's containers on a node, warm ones and those on their way, whatever was believed."""
    containers.forget(state, node, fn)
    before = state.node_marks[node].warming
    agenda.forget_warming_of(state, node, fn)
    # Nothing was being warmed, or something still is: the node's idling does not begin with this.
    if before == 0 or state.node_marks[node].warming > 0:
        return
    if state.nodes[node].power_state == ON and state.nodes[node].running == 0:
        life.idles(state, driver, node)


@inner
def started(state, a):
    """Note that an attempt runs now."""
    state.attempts[a].stage = STARTED
    state.attempts[a].started = state.clock[0].now


@inner
def refused(state, driver, a, until_s, priority):
    """Roll back an attempt that never started: everything that it took, used and changed."""
    attempt = state.attempts[a]
    task = attempt.task
    node = attempt.node
    # A gang runs as a whole or not at all.
    structure.stop_others(state, a)
    life.closes(state, driver, a, 0)
    _restore(state, a)
    fit.give_back(state, a)
    # Undone exactly (docs/driving.md): an attempt that was refused has never been started.
    state.functions[state.shapes[state.tasks[task].form].function].started -= 1
    groups.room_grew(state, node)
    attempts.drop_attempt(state, a)
    state.marks[task].until = max(until_s, state.marks[task].until)
    life.gone(state, driver, task, -1, BACK, priority)


@inner
def _restore(state, a):
    """Restore the warm container and the loaded kernel that the attempt found."""
    attempt = state.attempts[a]
    if attempt.was_idle > -math.inf:
        fn = state.shapes[state.tasks[attempt.task].form].function
        containers.keep_since(state, attempt.node, fn, attempt.was_idle)
    # −2: it has not come to its device; −1 would be an empty FPGA, which has to be emptied again.
    if attempt.device >= 0 and attempt.was_loaded > -2:
        containers.load_device(state, attempt.node, attempt.device, attempt.was_loaded)


@inner
def preempt(state, a):
    """Take an attempt back: the driver is asked to stop it, and its task will have its old place in the queue."""
    task = state.attempts[a].task
    # Fates are numbered by weight: a preemption does not take back a cancel.
    state.marks[task].fate = max(state.marks[task].fate, BACK)
    structure.ask_stop(state, a)
    structure.stop_others(state, a)


@inner
def unpark(state, task):
    """Return a parked task, whose time has come, to its old place in the queue."""
    state.marks[task].until = 0.0
    state.tasks[task].state = READY
    queue.reinsert(state, task)


@inner
def node_state(state, driver, node, power_state, priority):
    """Set a node's power state as its driver reports it: on, asleep, draining or down."""
    before = state.nodes[node].power_state
    if power_state == DOWN:
        if before != DOWN:
            life.lose(state, driver, node, priority)
        return
    if before == power_state:
        return
    life.set_power(state, driver, node, power_state)
    if power_state == ON:
        life.is_on(state, driver, node)
        if state.nodes[node].running == 0 and before != DRAINING:
            life.idles(state, driver, node)
    elif power_state == ASLEEP and state.nodes[node].wake_wanted == 1:
        life.wake(state, driver, node)


@inner
def set_room(state, node, capacity_u, capacity_mem):
    """Change what a node offers; a negative amount leaves it as it was."""
    row = state.nodes[node]
    groups.leave(state, node)
    if capacity_u >= 0:
        row.capacity_u = capacity_u
        row.request_u = capacity_u
    if capacity_mem >= 0:
        row.capacity_mem = capacity_mem
    groups.rejoin(state, node)
    groups.room_grew(state, node)


@inner
def load(state, node, cores_u, memory):
    """Set what others use on a node, in all."""
    row = state.nodes[node]
    mark = state.node_marks[node]
    more_u = cores_u - mark.other_u
    more_mem = memory - mark.other_mem
    groups.leave(state, node)
    row.used_u += more_u
    # What others use draws watts, too: marginal watts are read off the curve at `alloc_u`.
    row.alloc_u += more_u
    row.used_mem += more_mem
    mark.other_u = cores_u
    mark.other_mem = memory
    groups.rejoin(state, node)
    if more_u < 0 or more_mem < 0:
        groups.room_grew(state, node)


@inner
def load_count(state, node, k, amount):
    """Set how many of a countable resource others use on a node, in all."""
    more = amount - state.other_counts[node, k]
    state.other_counts[node, k] = amount
    # `node_counts` holds what is free, so more in use is less of it.
    add_count(state, node, k, -more)


@inner
def add_count(state, node, k, more):
    """Add to (or take from) a node's free amount of a countable resource."""
    groups.leave(state, node)
    state.node_counts[node, k] += more
    state.nodes[node].count_key = groups.count_key(state, node)
    groups.rejoin(state, node)
    if more > 0:
        groups.room_grew(state, node)


@inner
def resize(state, a, cores_u, memory):
    """Resize a running attempt in place; a negative amount leaves it as it was."""
    attempt = state.attempts[a]
    row = state.nodes[attempt.node]
    groups.leave(state, attempt.node)
    if cores_u >= 0:
        # A driver resizes what is reserved and what may be used
        # alike: from here on there is no guarantee below the limit.
        row.used_u += cores_u - attempt.need_u
        row.alloc_u += cores_u - attempt.cores_u
        attempt.need_u = cores_u
        attempt.cores_u = cores_u
    if memory >= 0:
        row.used_mem += memory - attempt.memory
        attempt.memory = memory
    groups.rejoin(state, attempt.node)
    groups.room_grew(state, attempt.node)
