"""What a driver reports of attempts and nodes, folded into State by the same changes that the simulator makes."""

from __future__ import annotations

import math

from wattflow.engine import attempts, containers, fit, fold, groups, queue, release, structure, timers
from wattflow.engine.tables import (
    ACT_SLEEP,
    ACT_WAKE,
    ACT_WARM,
    ASLEEP,
    ASSUMED,
    BACK,
    CANCEL,
    CANCELLED,
    DOWN,
    DRAINING,
    FALLING,
    GIVE_UP,
    ON,
    PARKED,
    READY,
    RETRY,
    STARTED,
    WAITS,
    WAKING,
)
from wattflow.kernel.jit import inner


@inner
def _check_later(state, node, at_s):
    if at_s < math.inf:
        timers.push(state, at_s, timers.SLEEP, node, state.nodes[node].generation)


@inner
def begin(state, a):
    """A placement is assumed: its node is woken, or it takes a warm container there."""
    attempt = state.attempts[a]
    node = attempt.node
    attempt.stage = ASSUMED
    attempt.stopping = 0
    attempt.started = math.nan
    attempt.was_idle = -math.inf
    attempt.was_loaded = -2
    state.marks[attempt.task].running += 1
    state.marks[attempt.task].attempt = a
    power_state = state.nodes[node].power_state
    if power_state == ASLEEP or power_state == FALLING or power_state == WAKING:
        attempt.stage = WAITS
        wake(state, node)
    else:
        _enter(state, a)


@inner
def _enter(state, a):
    attempt = state.attempts[a]
    if attempt.device >= 0:
        attempt.was_loaded = state.devices[attempt.device].loaded
    fold.enter(state, a)
    if attempt.stage == WAITS:
        attempt.stage = ASSUMED


@inner
def wake(state, node):
    """Begin to wake a sleeping node: the driver is asked to."""
    power_state = fold.waking_to(state, node)
    if power_state < 0:
        return
    state.nodes[node].on_at = state.clock[0].now + state.classes[state.nodes[node].cls].wake_s
    fold.set_power(state, node, WAKING)
    ask(state, ACT_WAKE, node, 0)


@inner
def fall_asleep(state, node):
    """Begin to put a node to sleep, if it is on, empty, warms nothing and is able to: the driver is asked to."""
    if fold.may_sleep(state, node) and state.node_marks[node].warming == 0:
        fold.set_power(state, node, fold.falling_to(state, node))
        ask(state, ACT_SLEEP, node, 0)


@inner
def warm(state, node, fn, seconds):
    """Make a container ahead of need: the driver is asked to, and it is ready after so long."""
    state.node_marks[node].warming += 1
    timers.push(state, state.clock[0].now + seconds, timers.WARM, node, fn)
    ask(state, ACT_WARM, node, fn)


@inner
def warmed(state, node, fn):
    """A container made ahead of need is ready; its node's idling begins anew if nothing runs there."""
    state.node_marks[node].warming -= 1
    if state.nodes[node].power_state == ON:
        containers.keep(state, node, fn)
        if state.nodes[node].running == 0 and state.node_marks[node].warming == 0:
            _check_later(state, node, fold.node_idles(state, node))


@inner
def cold(state, node, fn):
    """No container of the function is warm on the node, whatever was believed, and none is on its way."""
    containers.forget(state, node, fn)
    before = state.node_marks[node].warming
    timers.forget_warming_of(state, node, fn)
    if before == 0 or state.node_marks[node].warming > 0:
        return
    if state.nodes[node].power_state == ON and state.nodes[node].running == 0:
        _check_later(state, node, fold.node_idles(state, node))


@inner
def ask(state, kind, node, value):
    """Ask the driver for an action."""
    counts = state.counts[0]
    action = state.actions[counts.action_n]
    action.kind = kind
    action.node = node
    action.value = value
    counts.action_n += 1


@inner
def _leave_task(state, a):
    """An attempt is about to end: its task names another of its parts, if there is one."""
    mark = state.marks[state.attempts[a].task]
    if mark.attempt == a:
        mark.attempt = state.attempts[a].sibling


@inner
def started(state, a):
    """The attempt runs now."""
    state.attempts[a].stage = STARTED
    state.attempts[a].started = state.clock[0].now


@inner
def finished(state, a, priority):
    """An attempt ended well and holds nothing any more."""
    attempt = state.attempts[a]
    task = attempt.task
    node = attempt.node
    mark = state.marks[task]
    fold.keep_container(state, a)
    _leave_task(state, a)
    _check_later(state, node, fold.end_attempt(state, a))
    mark.running -= 1
    if mark.fate == BACK and state.shapes[state.tasks[task].form].parts == 1:
        mark.fate = 0  # it was to be preempted, and was quicker
    if mark.fate == 0:
        if fold.part_done(state, task, node, priority):
            structure.note_end(state, task)
    elif mark.running == 0:
        _resolve(state, task, priority)


@inner
def failed(state, a, fate, priority):
    """An attempt ended badly; the other parts of its task are asked to stop."""
    task = state.attempts[a].task
    if state.attempts[a].stopping == 1:
        fate = BACK  # an end that was asked for is no failure; whatever asked for it has set the task's fate
    structure.stop_others(state, a)
    _leave_task(state, a)
    _check_later(state, state.attempts[a].node, fold.end_attempt(state, a))
    _gone(state, task, fate, priority)


@inner
def _gone(state, task, fate, priority):
    mark = state.marks[task]
    mark.running -= 1
    mark.fate = max(mark.fate, fate)
    if mark.running == 0:
        _resolve(state, task, priority)


@inner
def refused(state, a, until_s, priority):
    """An attempt never started: what it took, used and changed goes back as it was."""
    attempt = state.attempts[a]
    task = attempt.task
    node = attempt.node
    structure.stop_others(state, a)
    _leave_task(state, a)
    _restore(state, a)
    fit.give_back(state, a)
    state.functions[state.shapes[state.tasks[task].form].function].started -= 1
    groups.room_grew(state, node)
    attempts.drop_attempt(state, a)
    state.marks[task].until = max(until_s, state.marks[task].until)
    _gone(state, task, BACK, priority)


@inner
def _restore(state, a):
    """Put the warm container and the loaded kernel back that the attempt found."""
    attempt = state.attempts[a]
    if attempt.was_idle > -math.inf:
        fn = state.shapes[state.tasks[attempt.task].form].function
        containers.keep_since(state, attempt.node, fn, attempt.was_idle)
    if attempt.device >= 0 and attempt.was_loaded > -2:
        containers.load_device(state, attempt.node, attempt.device, attempt.was_loaded)


@inner
def preempt(state, a):
    """Take an attempt back: the driver is asked to stop it, and its task will have its old place in the queue."""
    task = state.attempts[a].task
    state.marks[task].fate = max(state.marks[task].fate, BACK)
    structure.ask_stop(state, a)
    structure.stop_others(state, a)


@inner
def _resolve(state, task, priority):
    """The last attempt of a task that did not end well is gone."""
    mark = state.marks[task]
    row = state.tasks[task]
    fate = mark.fate
    mark.fate = 0
    if fate == BACK:
        if mark.until > state.clock[0].now:
            row.state = PARKED
            timers.push(state, mark.until, timers.PARK, task, mark.generation)
        else:
            row.state = READY
            mark.until = 0.0
            queue.reinsert(state, task)
    elif fate == CANCEL:
        row.state = CANCELLED
        structure.note_ends(state, release.leave(state, task))
    else:
        structure.note_ends(state, fold.try_again(state, task, fate == GIVE_UP, priority))


@inner
def unpark(state, task):
    """A parked task's time has come: back to its old place."""
    state.marks[task].until = 0.0
    state.tasks[task].state = READY
    queue.reinsert(state, task)


@inner
def lose(state, node, priority):
    """Everything on a node ends; its tasks are tried again, oldest attempt first, once their other parts are gone."""
    while True:
        oldest = fold.oldest_attempt(state, node)
        if oldest < 0:
            break
        task = state.attempts[oldest].task
        while True:  # the other parts of the same task on this node go with it
            other = state.attempts[oldest].sibling
            while other >= 0 and other != oldest and state.attempts[other].node != node:
                structure.ask_stop(state, other)
                other = state.attempts[other].sibling
            if other < 0 or other == oldest:
                break
            _end_lost(state, other)
            state.marks[task].running -= 1
        _end_lost(state, oldest)
        _gone(state, task, RETRY, priority)
    fold.forget_contents(state, node)
    fold.set_power(state, node, DOWN)


@inner
def _end_lost(state, a):
    _leave_task(state, a)
    node = state.attempts[a].node
    fit.give_back(state, a)
    groups.room_grew(state, node)
    attempts.drop_attempt(state, a)


@inner
def node_state(state, node, power_state, priority):
    """A node is on, asleep, draining or down now, as its driver says."""
    before = state.nodes[node].power_state
    if power_state == DOWN:
        if before != DOWN:
            timers.forget_warming(state, node)
            lose(state, node, priority)
        return
    if before == power_state:
        return
    fold.set_power(state, node, power_state)
    if power_state == ON:
        _is_on(state, node)
        if state.nodes[node].running == 0 and before != DRAINING:
            _check_later(state, node, fold.node_idles(state, node))
    elif power_state == ASLEEP and state.nodes[node].wake_wanted == 1:
        wake(state, node)


@inner
def _is_on(state, node):
    """The attempts that waited for the node go on, oldest first."""
    last = -1
    while True:
        a = state.nodes[node].first_attempt
        pick = -1
        while a >= 0:
            seq = state.attempts[a].sequence
            if state.attempts[a].stage == WAITS and seq > last and (pick < 0 or seq < state.attempts[pick].sequence):
                pick = a
            a = state.attempts[a].next
        if pick < 0:
            return
        last = state.attempts[pick].sequence
        _enter(state, pick)


@inner
def set_room(state, node, capacity_u, capacity_mem):
    """What a node offers has changed; a negative amount leaves it as it was."""
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
    """What others use on a node, in all."""
    row = state.nodes[node]
    mark = state.node_marks[node]
    more_u = cores_u - mark.other_u
    more_mem = memory - mark.other_mem
    groups.leave(state, node)
    row.used_u += more_u
    row.alloc_u += more_u
    row.used_mem += more_mem
    mark.other_u = cores_u
    mark.other_mem = memory
    groups.rejoin(state, node)
    if more_u < 0 or more_mem < 0:
        groups.room_grew(state, node)


@inner
def load_count(state, node, k, amount):
    """How many of a countable resource others use on a node, in all."""
    more = amount - state.other_counts[node, k]
    state.other_counts[node, k] = amount
    add_count(state, node, k, -more)


@inner
def add_count(state, node, k, more):
    """A node has more (or fewer) free ones of a countable resource."""
    groups.leave(state, node)
    state.node_counts[node, k] += more
    state.nodes[node].count_key = groups.count_key(state, node)
    groups.rejoin(state, node)
    if more > 0:
        groups.room_grew(state, node)


@inner
def resize(state, a, cores_u, memory):
    """A running attempt's amounts were changed in place; a negative amount leaves it as it was."""
    attempt = state.attempts[a]
    row = state.nodes[attempt.node]
    groups.leave(state, attempt.node)
    if cores_u >= 0:
        row.used_u += cores_u - attempt.need_u
        row.alloc_u += cores_u - attempt.cores_u
        attempt.need_u = cores_u
        attempt.cores_u = cores_u
    if memory >= 0:
        row.used_mem += memory - attempt.memory
        attempt.memory = memory
    groups.rejoin(state, attempt.node)
    groups.room_grew(state, attempt.node)
