"""Effects that a policy may have beside answering: each of these changes the State, and is named for it.

A score may hold a task and draw random numbers; an ``act`` may order sleep, waking, containers, frequencies and
timers, and keep notes. Orders are carried out by the driver after the instant; it ignores one that no longer applies
(a node that has work does not fall asleep).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from wattflow.engine.tables import ACT_CAP, ACT_FREQUENCY, ACT_SLEEP, ACT_TIMER, ACT_WAKE, ACT_WARM
from wattflow.engine.view import hold_until, random_unit, request_action
from wattflow.policy.jit import jit

__all__ = [
    "draw",
    "hold_until",
    "note",
    "notebook",
    "order_cap",
    "order_frequency",
    "order_sleep",
    "order_timer",
    "order_wake",
    "order_warm",
]

draw = random_unit


@jit
def note(state, block, i, value):
    """Write number i of a block of the policy's memory."""
    state.memory[int(state.memory[block]) + i] = value


@jit
def notebook(state, block, count):
    """Return the first numbers of a block of the policy's memory as an array, to write to."""
    first = int(state.memory[block])
    # A view: what is written there is in the memory.
    return state.memory[first : first + count]


@jit
def order_sleep(state, node):
    """Let an empty node fall asleep now."""
    request_action(state, ACT_SLEEP, node, 0, state.clock[0].now)


@jit
def order_wake(state, node):
    """Wake a sleeping node now."""
    request_action(state, ACT_WAKE, node, 0, state.clock[0].now)


@jit
def order_warm(state, node, fn):
    """Make a container of a function on a node; of `view.ANY_FUNCTION` one that serves whichever comes first."""
    request_action(state, ACT_WARM, node, fn, state.clock[0].now)


@jit
def order_frequency(state, node, level):
    """Set a node's frequency level."""
    request_action(state, ACT_FREQUENCY, node, level, state.clock[0].now)


@jit
def order_cap(state, node, watts):
    """Keep a node's watts at or below this many: the fastest frequency level that does so when all of it is busy."""
    # The column is a whole number; watts lose their fraction downwards, so the cap still holds.
    request_action(state, ACT_CAP, node, int(watts), state.clock[0].now)


@jit
def order_timer(state, at_s):
    """Be called again at this time."""
    request_action(state, ACT_TIMER, 0, 0, at_s)
