"""Parts of a gang that wait for the others before they run."""

from __future__ import annotations

from wattflow.engine.parts import RICH
from wattflow.kernel.jit import inner, optional


@inner
def note_held(state, world, task, a):
    """Add a part to those that wait, the one placed last first; parts mostly come in order, so this is short."""
    sequence = state.attempts[a].sequence
    before = -1
    b = world.gangs[task].first_held
    while b >= 0 and state.attempts[b].sequence > sequence:
        before = b
        b = world.runs[b].left
    # ``left`` links the heap of a domain otherwise; a part that holds is in none.
    world.runs[a].left = b
    if before < 0:
        world.gangs[task].first_held = a
    else:
        world.runs[before].left = a


@inner
def oldest_first(world, b):
    """Reverse the list of waiting parts: they start in the order in which they were placed."""
    after = -1
    while b >= 0:
        following = world.runs[b].left
        world.runs[b].left = after
        after = b
        b = following
    return after


@optional(RICH)
def forget_held(world, task):
    world.gangs[task].first_held = -1
    world.gangs[task].held = 0
