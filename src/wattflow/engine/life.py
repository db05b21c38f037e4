"""The life of an attempt and of a node, once for the simulator, a live engine and whoever decides by hand.

An attempt begins (`begin`), reaches its node (`arrive`), waits there until the node is on (`is_on`), takes its
container (`enter`), and ends: `finished`, `failed`, or `lose` with its node. What is only the simulator's (stages that
take time, joules, records) or only a live engine's (marks, what the driver is asked for) is a hook. ``driver`` is the
simulator's World, whose bodies `sim.stages`, `sim.ends` and `sim.node_power` give; a live engine's Desk or None take
the bodies that stand here.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import agenda, attempts, containers, fit, fold, groups, queue, release, structure, view
from wattflow.engine.parts import RICH
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
    FALLING,
    GIVE_UP,
    ON,
    PARKED,
    READY,
    RETRY,
    WAITS,
    WAKING,
)
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner, optional

NOT_MADE = -2
"""In place of a function (−1 is a container for any): nothing was made."""


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
def begun(state, driver, a):
    """Begin an attempt; True when it reaches its node only later, by `arrive`."""
    attempt = state.attempts[a]
    # The row may have served another attempt: what this one has not come to yet must not look as if it had.
    attempt.stopping = 0
    attempt.started = math.nan
    attempt.was_idle = -math.inf
    attempt.was_loaded = -2
    mark = state.marks[attempt.task]
    mark.running += 1
    mark.attempt = a
    return False


@hook
def waits(state, driver, a):
    """Note that an attempt waits for its node."""


@hook
def goes_on(state, driver, a):
    """Note that the node of a waiting attempt is on."""


@hook
def enters(state, driver, a):
    # For `reports.refused`, which puts the kernel back that was loaded before.
    """Prepare to take a container: remember what a refusal has to put back."""
    attempt = state.attempts[a]
    if attempt.device >= 0:
        attempt.was_loaded = state.devices[attempt.device].loaded


@hook
def entered(state, driver, a, seconds):
    """Note that an attempt has its container, which takes so long to start."""
    state.attempts[a].stage = ASSUMED


@hook
def wakes(state, driver, node, power_state):
    """Begin to wake a node; returns the state that it has from now on."""
    state.nodes[node].on_at = state.clock[0].now + state.classes[state.nodes[node].cls].wake_s
    ask(state, ACT_WAKE, node, 0)
    return WAKING


@hook
# Asked for at once: the driver's report (`reports.node_state`) ends the fall, no timer does.
def falls(state, driver, node, power_state):
    """Begin to put a node to sleep."""
    ask(state, ACT_SLEEP, node, 0)


@hook
def warms(state, driver, node):
    """Tell whether a container is being made ahead of need."""
    return state.node_marks[node].warming > 0


@hook
def settle(state, driver, node):
    """Book a node's joules up to now: its watts are about to change."""


@hook
def draw(state, driver, node):
    """Set a node's new watts."""


@hook
def closes(state, driver, a, outcome):
    """Prepare the end of an attempt: its task names another of its parts, if there is one."""
    mark = state.marks[state.attempts[a].task]
    if mark.attempt == a:
        # `marks.attempt` leads to the parts of a task (cancel, preempt), so it must never name a row that is free.
        mark.attempt = state.attempts[a].sibling


@hook
def left_device(state, driver, node):
    """Take notice that an attempt gave back a device of a node: who shares it may run at another level now."""


@hook
def fails(state, driver, a, fate):
    """Ask the other parts of a failed attempt's task to stop; returns the task's fate."""
    structure.stop_others(state, a)
    # Who was asked to stop ends as asked: no try is counted, whatever the driver calls its end.
    return BACK if state.attempts[a].stopping == 1 else fate


@hook
def part_ended(state, driver, task, priority):
    """Count one part less; False when the task's fate was decided otherwise meanwhile."""
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
def task_ended(state, driver, task):
    """Note that a task is done."""
    structure.note_end(state, task)


@hook
def gone(state, driver, task, lost, fate, priority):
    """Go on after a part that failed; the task is tried again when all are gone.

    ``lost`` is the node that took the part along, or −1. The parts elsewhere were asked to stop and hold what they
    have until their driver reports them; the simulator has nobody to wait for and ends them at once.
    """
    mark = state.marks[task]
    mark.running -= 1
    # Fates are numbered by weight: a cancel outweighs a retry that another part asked for.
    mark.fate = max(mark.fate, fate)
    if mark.running == 0:
        resolve(state, task, priority)


@hook
def lose_attempt(state, driver, a):
    """End an attempt whose node is lost, with the parts of its task there; those elsewhere are asked to stop."""
    task = state.attempts[a].task
    node = state.attempts[a].node
    while True:
        other = state.attempts[a].sibling
        while other >= 0 and other != a and state.attempts[other].node != node:
            structure.ask_stop(state, other)
            other = state.attempts[other].sibling
        if other < 0 or other == a:
            break
        _end_lost(state, driver, other)
        state.marks[task].running -= 1
    _end_lost(state, driver, a)


@inner
def _end_lost(state, driver, a):
    """End an attempt as `close` does, but begin no idling on its node, which is going down."""
    closes(state, driver, a, 0)
    node = state.attempts[a].node
    fit.give_back(state, a)
    groups.room_grew(state, node)
    attempts.drop_attempt(state, a)


@hook
def forget_warming(state, driver, node):
    """Forget containers that were being warmed on a lost node."""
    agenda.forget_warming(state, node)


@hook
def lost(state, driver, node):
    """Note that a node is down."""


@hook
def begin_warming(state, driver, node, fn):
    """Begin to make a container ahead of need; the number by which `end_warming` knows it again."""
    state.node_marks[node].warming += 1
    ask(state, ACT_WARM, node, fn)
    # It becomes the timer's generation, by which `agenda.forget_warming_of` finds it again.
    return np.int64(fn)


@hook
def end_warming(state, driver, node, number):
    """End the warming of a container; returns its function, or `NOT_MADE` where the node was lost meanwhile."""
    state.node_marks[node].warming -= 1
    return np.int64(number)


@hook
def set_level(state, driver, node, level, kind, value):
    """Change a node's frequency level, as the action of this kind and value says."""
    if fold.set_frequency(state, node, level):
        ask(state, kind, node, value)


@inner
def resolve(state, task, priority):
    """Carry out a task's fate: the last attempt of a task that did not end well is gone."""
    mark = state.marks[task]
    row = state.tasks[task]
    fate = mark.fate
    # Taken before anything is queued: the next attempt of this task begins with no fate.
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
def begin(state, driver, a):
    """Start a placement: it goes to its node, at once or (`begun`) later."""
    if not begun(state, driver, a):
        arrive(state, driver, a)


@inner
def arrive(state, driver, a):
    """Let an attempt reach its node, and wait there if the node is not on."""
    power_state = state.nodes[state.attempts[a].node].power_state
    if power_state == ASLEEP or power_state == FALLING or power_state == WAKING:
        _wait(state, driver, a)
    else:
        enter(state, driver, a)


@optional(RICH)
def _wait(state, driver, a):
    node = state.attempts[a].node
    state.attempts[a].stage = WAITS
    waits(state, driver, a)
    wake(state, driver, node)
    # A node that wakes in no time is on already, and nothing else would tell this attempt.
    if state.nodes[node].power_state == ON:
        is_on(state, driver, node)


@optional(RICH)
def is_on(state, driver, node):
    """Let the attempts that waited for the node go on, oldest first."""
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
        goes_on(state, driver, pick)
        enter(state, driver, pick)


@inner
def enter(state, driver, a):
    """Take a warm container, or make one; load the FPGA where another function's kernel is in it."""
    enters(state, driver, a)
    seconds = fold.enter(state, a)
    entered(state, driver, a, seconds)


@inner
def set_power(state, driver, node, power_state):
    """Change a node's power state, with joules and groups kept right."""
    # `settle` books the joules up to now at the watts so far; `draw` sets the new watts.
    settle(state, driver, node)
    fold.set_power(state, node, power_state)
    draw(state, driver, node)


@inner
def idles(state, driver, node):
    """Start the idle time-out of a node that has no attempt left."""
    check_later(state, driver, node, fold.node_idles(state, node))


@inner
def check_later(state, driver, node, at_s):
    """Look at that time whether the node should sleep; `inf` for never."""
    if at_s < math.inf:
        agenda.push(state, at_s, agenda.SLEEP, node, state.nodes[node].generation)


@inner
def wake(state, driver, node):
    """Begin to wake. A node that is still falling asleep wakes when it is down."""
    power_state = fold.waking_to(state, node)
    if power_state >= 0:
        set_power(state, driver, node, wakes(state, driver, node, power_state))


@inner
def fall_asleep(state, driver, node):
    """Begin to sleep, if the node is on, empty, warms nothing and is able to."""
    if fold.may_sleep(state, node) and not warms(state, driver, node):
        power_state = fold.falling_to(state, node)
        falls(state, driver, node, power_state)
        set_power(state, driver, node, power_state)


@inner
def close(state, driver, a, outcome):
    """Give back what an attempt held and free its row."""
    node = state.attempts[a].node
    device = state.attempts[a].device
    # The hook reads the attempt and its node as they ran, so nothing is given back before.
    closes(state, driver, a, outcome)
    check_later(state, driver, node, fold.end_attempt(state, a))
    if device >= 0:
        left_device(state, driver, node)


@inner
def finished(state, driver, a, priority):
    """Finish an attempt that ended well and holds nothing any more."""
    task = state.attempts[a].task
    node = state.attempts[a].node
    # While the attempt still says which node and function: `close` frees its row.
    fold.keep_container(state, a)
    close(state, driver, a, 0)
    if part_ended(state, driver, task, priority) and fold.part_done(state, task, node, priority):
        task_ended(state, driver, task)


@inner
def failed(state, driver, a, outcome, fate, priority):
    """End an attempt that failed, and the other parts of its task with it."""
    task = state.attempts[a].task
    # Before `close` takes the attempt out of the ring that leads to the other parts.
    fate = fails(state, driver, a, fate)
    close(state, driver, a, outcome)
    gone(state, driver, task, -1, fate, priority)


@optional(RICH)
def lose(state, driver, node, priority):
    """End everything on a lost node; its tasks are retried, oldest attempt first."""
    while True:
        oldest = fold.oldest_attempt(state, node)
        if oldest < 0:
            break
        task = state.attempts[oldest].task
        lose_attempt(state, driver, oldest)
        gone(state, driver, task, node, RETRY, priority)
    # After its attempts: they hold the devices whose kernels are forgotten here.
    fold.forget_contents(state, node)
    forget_warming(state, driver, node)
    set_power(state, driver, node, DOWN)
    lost(state, driver, node)


@inner
def warm(state, driver, node, fn):
    """Make a container ahead of need on a node that is on."""
    if state.nodes[node].power_state == ON:
        ready_s = state.clock[0].now + view.warming_s(state, node, fn)
        agenda.push(state, ready_s, agenda.WARM, node, begin_warming(state, driver, node, fn))


@inner
def warmed(state, driver, node, number):
    """Keep a container made ahead of need; False if there is none. A node that waited for it alone idles now."""
    fn = end_warming(state, driver, node, number)
    if fn == NOT_MADE:
        return False
    if state.nodes[node].power_state == ON:
        containers.keep(state, node, fn)
        if state.nodes[node].running == 0 and not warms(state, driver, node):
            idles(state, driver, node)
    return True


@inner
def recheck(state, driver):
    """Reschedule the sleep of idle nodes after time-outs changed. The agenda needs room for a row of each."""
    now = state.clock[0].now
    for n in range(state.nodes.size):
        row = state.nodes[n]
        if row.power_state == ON and row.running == 0 and row.pos >= 0:
            row.generation += 1  # checks by the old time-outs no longer count
            check_later(state, driver, n, max(now, row.idle_since + state.classes[row.cls].sleep_after_s))
