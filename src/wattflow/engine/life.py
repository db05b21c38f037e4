"""The life of an attempt and of a node, once for the simulator and for a live engine.

``world`` is the simulator's World, or None: then the body of a hook is the one that stands here, which writes down what
the driver is asked for. With a World it is the one that `sim.physics` gives.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import agenda, fold, queue, release, structure
from wattflow.engine.parts import RICH
from wattflow.engine.tables import (
    ACT_SLEEP,
    ACT_WAKE,
    ASLEEP,
    ASSUMED,
    BACK,
    CANCEL,
    CANCELLED,
    FALLING,
    GIVE_UP,
    ON,
    PARKED,
    READY,
    WAITS,
    WAKING,
)
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner, optional


@inner
def ask(state, kind, node, value):
    """Ask the driver for an action."""
    counts = state.counts[0]
    action = state.actions[counts.action_n]
    action.kind = kind
    action.node = node
    action.value = value
    counts.action_n += 1


# Hooks: the bodies here are those of a live engine.


@hook
def begun(state, world, a):
    """An attempt begins; True when it reaches its node only later, by `arrive`."""
    attempt = state.attempts[a]
    attempt.stopping = 0
    attempt.started = math.nan
    attempt.was_idle = -math.inf
    attempt.was_loaded = -2
    mark = state.marks[attempt.task]
    mark.running += 1
    mark.attempt = a
    return False


@hook
def waits(state, world, a):
    """It waits for its node."""


@hook
def goes_on(state, world, a):
    """Its node is on now."""


@hook
def enters(state, world, a):
    """It is about to take its container."""
    attempt = state.attempts[a]
    if attempt.device >= 0:
        attempt.was_loaded = state.devices[attempt.device].loaded


@hook
def entered(state, world, a, seconds):
    """It has its container, which takes so long to start."""
    state.attempts[a].stage = ASSUMED


@hook
def wakes(state, world, node, power_state):
    """A node begins to wake; the state that it has from now on."""
    state.nodes[node].on_at = state.clock[0].now + state.classes[state.nodes[node].cls].wake_s
    ask(state, ACT_WAKE, node, 0)
    return WAKING


@hook
def falls(state, world, node, power_state):
    """A node begins to sleep."""
    ask(state, ACT_SLEEP, node, 0)


@hook
def warms(state, world, node):
    """Whether a container is being made ahead of need."""
    return state.node_marks[node].warming > 0


@hook
def settle(state, world, node):
    """The node's watts are about to change."""


@hook
def draw(state, world, node):
    """The node's watts have changed."""


@hook
def look_at(state, world, node, at_s):
    """Look at a node at a time."""
    agenda.push(state, at_s, agenda.SLEEP, node, state.nodes[node].generation)


@hook
def closes(state, world, a, outcome):
    """An attempt is about to end: its task names another of its parts, if there is one."""
    mark = state.marks[state.attempts[a].task]
    if mark.attempt == a:
        mark.attempt = state.attempts[a].sibling


@hook
def fails(state, world, a, fate):
    """An attempt failed: the other parts of its task are asked to stop; what is to become of the task."""
    structure.stop_others(state, a)
    return BACK if state.attempts[a].stopping == 1 else fate


@hook
def part_ended(state, world, task, priority):
    """One part less; False when the task's fate was decided otherwise meanwhile."""
    mark = state.marks[task]
    mark.running -= 1
    if mark.fate == BACK and state.shapes[state.tasks[task].form].parts == 1:
        mark.fate = 0  # it was to be preempted, and was quicker
    if mark.fate == 0:
        return True
    if mark.running == 0:
        resolve(state, task, priority)
    return False


@hook
def task_ended(state, world, task):
    """A task is done."""
    structure.note_end(state, task)


@hook
def gone(state, world, task, lost, outcome, fate, priority):
    """A part that failed is gone; the task is tried again when all are. ``lost`` is the node that took it, or −1."""
    mark = state.marks[task]
    mark.running -= 1
    mark.fate = max(mark.fate, fate)
    if mark.running == 0:
        resolve(state, task, priority)


@inner
def resolve(state, task, priority):
    """The last attempt of a task that did not end well is gone."""
    mark = state.marks[task]
    row = state.tasks[task]
    fate = mark.fate
    mark.fate = 0
    if fate == BACK:
        if mark.until > state.clock[0].now:
            row.state = PARKED
            agenda.push(state, mark.until, agenda.PARK, task, mark.generation)
        else:
            row.state = READY
            mark.until = 0.0
            queue.reinsert(state, task)
    elif fate == CANCEL:
        row.state = CANCELLED
        structure.note_ends(state, release.leave(state, task))
    else:
        structure.note_ends(state, fold.try_again(state, task, fate == GIVE_UP, priority))


# The life


@inner
def begin(state, world, a):
    """A placement begins: it goes to its node, at once or (`begun`) later."""
    if not begun(state, world, a):
        arrive(state, world, a)


@inner
def arrive(state, world, a):
    """An attempt reaches its node, and waits there if the node is not on."""
    power_state = state.nodes[state.attempts[a].node].power_state
    if power_state == ASLEEP or power_state == FALLING or power_state == WAKING:
        _wait(state, world, a)
    else:
        enter(state, world, a)


@optional(RICH)
def _wait(state, world, a):
    node = state.attempts[a].node
    state.attempts[a].stage = WAITS
    waits(state, world, a)
    wake(state, world, node)
    if state.nodes[node].power_state == ON:
        is_on(state, world, node)


@optional(RICH)
def is_on(state, world, node):
    """The attempts that waited for the node go on, oldest first."""
    last = np.int64(-1)
    while True:
        # The list is newest first and changes under us: pick the oldest waiting one each time.
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
        goes_on(state, world, pick)
        enter(state, world, pick)


@inner
def enter(state, world, a):
    """Take a warm container, or make one; load the FPGA where another function's kernel is in it."""
    enters(state, world, a)
    seconds = fold.enter(state, a)
    entered(state, world, a, seconds)


@inner
def set_power(state, world, node, power_state):
    """Change a node's power state, with joules and groups kept right."""
    settle(state, world, node)
    fold.set_power(state, node, power_state)
    draw(state, world, node)


@inner
def idles(state, world, node):
    """The node has no attempt left: it may fall asleep after a while."""
    check_later(state, world, node, fold.node_idles(state, node))


@inner
def check_later(state, world, node, at_s):
    """Look at that time whether the node should sleep; `inf` for never."""
    if at_s < math.inf:
        look_at(state, world, node, at_s)


@inner
def wake(state, world, node):
    """Begin to wake. A node that is still falling asleep wakes when it is down."""
    power_state = fold.waking_to(state, node)
    if power_state >= 0:
        set_power(state, world, node, wakes(state, world, node, power_state))


@inner
def fall_asleep(state, world, node):
    """Begin to sleep, if the node is on, empty, warms nothing and is able to."""
    if fold.may_sleep(state, node) and not warms(state, world, node):
        power_state = fold.falling_to(state, node)
        falls(state, world, node, power_state)
        set_power(state, world, node, power_state)


@inner
def close(state, world, a, outcome):
    """Give back what an attempt held and free its row."""
    node = state.attempts[a].node
    closes(state, world, a, outcome)
    check_later(state, world, node, fold.end_attempt(state, a))


@inner
def finished(state, world, a, priority):
    """An attempt ended well and holds nothing any more."""
    task = state.attempts[a].task
    node = state.attempts[a].node
    fold.keep_container(state, a)
    close(state, world, a, 0)
    if part_ended(state, world, task, priority) and fold.part_done(state, task, node, priority):
        task_ended(state, world, task)


@inner
def failed(state, world, a, outcome, fate, priority):
    """An attempt ended badly; the other parts of its task end too."""
    task = state.attempts[a].task
    fate = fails(state, world, a, fate)
    close(state, world, a, outcome)
    gone(state, world, task, -1, outcome, fate, priority)
