"""Containers made ahead of need: where they go, and how many were ordered already. Shared by `daydream` and `fifer`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from wattflow.policy import effects, view
from wattflow.policy.jit import jit


@jit
def roomiest(state, given):
    """Find the node that is on, keeps containers and has most free cores beyond those ``given`` away; −1 without."""
    best = -1
    most = 0.0
    for node in range(view.nodes_n(state)):
        if not view.is_on(state, node) or view.keep_alive_s(state, node) <= 0.0:
            continue
        free = view.free_cores(state, node) - given[node]
        # One core is busy while a container is made (docs/physics.md, section 5).
        if free >= 1.0 and free > most:
            most = free
            best = node
    return best


@jit
def order(state, fn, lacking, ordered, done_at, i):
    """Order up to so many containers of a function; row i of two blocks of notes keeps what is on its way.

    ``ordered`` counts them and ``done_at`` is when the last of them is ready, after which none is on its way.
    """
    now = view.now_s(state)
    # All that were ordered are there, and among the idle ones now: nothing is on its way.
    if now >= view.recall(state, done_at, i):
        effects.note(state, ordered, i, 0.0)
    # Orders of this instant are carried out after it, so free cores do not show them yet.
    given = np.zeros(view.nodes_n(state))
    for _ in range(int(lacking - view.recall(state, ordered, i))):
        node = roomiest(state, given)
        if node < 0:
            return
        given[node] += 1.0
        effects.order_warm(state, node, fn)
        effects.note(state, ordered, i, view.recall(state, ordered, i) + 1.0)
        ready = now + view.warming_s(state, node, fn)
        effects.note(state, done_at, i, max(view.recall(state, done_at, i), ready))
