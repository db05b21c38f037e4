"""EASY backfilling: when could the head of the queue start, and what may others hold past that time?"""

from __future__ import annotations

import math

from wattflow.engine import fit
from wattflow.engine.parts import RICH
from wattflow.kernel import heaps
from wattflow.kernel.jit import inner, optional

NO_RESERVATION = -2
"""In place of a reserved node: no head waits. −1: one waits, for no node in particular."""


@inner
def _ends_before(state, a, b):
    first = state.attempts[a]
    second = state.attempts[b]
    return first.end < second.end or (first.end == second.end and first.sequence < second.sequence)


_, _sink = heaps.of_numbers(_ends_before)


@optional(RICH)
def reserve(state, task):
    """Reserve for the head under EASY: find its earliest start by the estimated ends of what runs, and its node.

    Ends are walked in order; each gives its cores and memory back to a copy of the node's free row until the parts fit.
    What fits beyond the head's parts then is spare: others may hold it past the shadow time.
    """
    choice = state.choice[0]
    shape = state.tasks[task].form
    form = state.shapes[shape]
    # The head's first offer alone stands for it, as docs/physics.md (section 3) has it.
    variant = form.variant_first
    parts = form.parts
    choice.shadow = math.inf
    choice.reserved = -1
    choice.head = variant
    choice.spare = 0
    n = 0
    # All rows for each head that waits, O(attempts + nodes): fine for thousands (docs/weaknesses.md).
    for a in range(state.attempts.size):
        if state.attempts[a].task >= 0:
            state.scratch[n] = a
            n += 1
    # The first n rows of `scratch` become a heap of attempts by estimated end.
    for at in range(n // 2 - 1, -1, -1):
        _sink(state, state.scratch, n, at)
    fitting = 0
    for node in range(state.nodes.size):
        # What is freed on paper stands beside the node's own amounts, so that its row and its group stay true.
        state.nodes[node].freed_u = 0
        state.nodes[node].freed_mem = 0
        fitting += fit.rooms(state, variant, node, 0, 0)
    while n > 0:
        attempt = state.attempts[state.scratch[0]]
        if attempt.end > choice.shadow:
            return
        node = attempt.node
        before = fit.rooms(state, variant, node, 0, 0)
        state.nodes[node].freed_u += attempt.need_u
        state.nodes[node].freed_mem += attempt.memory
        fitting += fit.rooms(state, variant, node, 0, 0) - before
        if fitting >= parts:
            # What ends at the same moment adds to what is spare.
            if parts == 1 and choice.shadow == math.inf:
                choice.reserved = node
            choice.shadow = attempt.end
            choice.spare = fitting - parts
        n -= 1
        state.scratch[0] = state.scratch[n]
        _sink(state, state.scratch, n, 0)
