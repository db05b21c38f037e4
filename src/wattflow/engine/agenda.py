"""Timed events: one heap of State, for those of the simulator and for what a live engine comes back for.

Rows stand in the order of (time, order of their kind within an instant, sequence).
"""

from __future__ import annotations

import math

from wattflow.kernel import heaps
from wattflow.kernel.jit import inner

# The numbers stand in snapshots of State (`timers.what`), so a kind keeps its number.
# The first row is what a live engine comes back for, the second the simulator's alone.
RELEASE, PARK, SLEEP, WARM, LOOK = 0, 1, 2, 3, 4
STAGE_END, TIME_UP, WAKE_DONE, FALL_DONE, LOST, BACK, NOTICE, RAMP, ROUND = range(5, 14)
FINISH, FAIL, OTHER = 0, 1, 2
"""Orders within an instant."""


@inner
def order(what):
    """Order the kinds of events within an instant: ends of stages, time limits, all others as they came."""
    if what == STAGE_END:
        return FINISH
    # No orders of their own for node changes and timers: with five, a live engine's timers came in another order.
    return FAIL if what == TIME_UP else OTHER


@inner
def _before(state, a, b):
    first = state.timers[a]
    second = state.timers[b]
    if first.time != second.time:
        return first.time < second.time
    mine = order(first.what)
    other = order(second.what)
    if mine != other:
        return mine < other
    # Sequences are unique, so the order is total: equal times fold alike on every machine.
    return first.sequence < second.sequence


@inner
def _move(state, to, source):
    row = state.timers[to]
    other = state.timers[source]
    row.time = other.time
    row.sequence = other.sequence
    row.generation = other.generation
    row.what = other.what
    row.who = other.who


_enter, _drop_first = heaps.of_rows(_before, _move)


@inner
def push(state, at_s, what, who, generation):
    """Add an event. There must be room for two: who steps or advances sees to it before."""
    counts = state.counts[0]
    clock = state.clock[0]
    at = counts.timer_n
    counts.timer_n = at + 1
    # Written one past the end, where no row of the heap lies, and moved to its place from there.
    hole = at + 1
    row = state.timers[hole]
    row.time = at_s
    row.sequence = clock.sequence
    clock.sequence += 1
    row.generation = generation
    row.what = what
    row.who = who
    _enter(state, at, hole)


@inner
def pop(state):
    """Take the first one out; read it before."""
    counts = state.counts[0]
    counts.timer_n -= 1
    _drop_first(state, counts.timer_n)


@inner
def next_time(state):
    """Return when the first one is due; `inf` without one."""
    return state.timers[0].time if state.counts[0].timer_n > 0 else math.inf


@inner
def forget_warming(state, node):
    """Forget what was being warmed on a node that is lost."""
    if state.node_marks[node].warming == 0:
        return
    state.node_marks[node].warming = 0
    for k in range(state.counts[0].timer_n):
        if state.timers[k].what == WARM and state.timers[k].who == node:
            # In its place: WARM and LOOK have the same order within an instant, so the heap stays a heap.
            state.timers[k].what = LOOK


@inner
def forget_warming_of(state, node, fn):
    """Forget what was being warmed for a function on a node."""
    for k in range(state.counts[0].timer_n):
        timer = state.timers[k]
        # A live engine's WARM carries the function as its generation (`life.begin_warming`).
        if timer.what == WARM and timer.who == node and timer.generation == fn:
            timer.what = LOOK
            state.node_marks[node].warming -= 1
