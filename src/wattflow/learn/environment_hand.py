"""The environment's hand: as that of `live.hand`, but what is known of waiting tasks is kept between decisions.

The bodies of the hooks of a hand (`engine.decide`) for the environment's Desk. Queues that are not known here
(``slow``) and the first tasks of all shapes together (``joint``) are left to `live.hand`, but for rows that the
flagship would not use.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import decide
from wattflow.kernel.jit import inner
from wattflow.learn import offers, open_shapes
from wattflow.learn.episode_buffers import Desk
from wattflow.live import candidate_rows
from wattflow.live import hand as by_hand
from wattflow.live.candidate_rows import PLACE
from wattflow.sim import kernel

FOREVER = 1 << 60
"""Events."""


@inner
def run(state, world, hand, functions, chosen):
    """Carry out a choice and simulate to the next decision; a status of `sim.kernel.run`."""
    by_hand.answer(state, world, hand, chosen)
    return kernel.run(state, world, hand, functions, math.inf, FOREVER)


@inner
def _is_known(hand):
    return hand.ask[0].slow + hand.ask[0].joint == 0


@decide.open_hand.of(Desk)
@inner
def _open(state, hand):
    by_hand.open_asking(state, hand)
    asked = hand.ask[0]
    asked.apart = 0
    asked.key = -math.inf
    asked.sequence = -1


@decide.look_first.of(Desk)
@inner
def _look_first(state, hand):
    if not _is_known(hand):
        by_hand.look_first(state, hand)


@decide.following.of(Desk)
@inner
def _following(state, hand, priority):
    if not _is_known(hand):
        return np.int64(decide.next_task(state, priority))
    task = np.int64(open_shapes.first_open(state, hand))
    if task >= 0 and state.rules[0].has_score == 1:
        open_shapes.set_apart(state, hand, task)
    return task


@decide.no_place.of(Desk)
@inner
def _no_place(state, hand, shape, taken):
    if _is_known(hand):
        open_shapes.close(state, hand, shape)
    else:
        state.shapes[shape].failed = state.clock[0].epoch
    return taken


@by_hand.offer.of(Desk)
@inner
def _offer(state, hand, task, score):
    if not _is_known(hand):
        n, fits = by_hand.all_rows(state, hand, task, score)
        return _screen(state, hand, n), fits
    # The flagship has set those apart by now, and prices by how many wait; `_answered` counts them in again.
    state.counts[0].waiting -= hand.ask[0].apart
    n, fits = offers.rows_of(state, hand, score, task)
    if n <= 0:
        state.counts[0].waiting += hand.ask[0].apart
    return n, fits


@by_hand.answered.of(Desk)
@inner
def _answered(state, hand):
    state.counts[0].waiting += hand.ask[0].apart


@by_hand.screen.of(Desk)
@inner
def _screen(state, hand, n):
    """Bring the rows that the flagship's rules allow to the front, in their order.

    A cost of inf means "not here": where all are inf the flagship lets the task wait, and so does the environment.
    """
    kept = np.int64(0)
    for r in range(n):
        if hand.rows[r].kind != PLACE or hand.rows[r].cost < math.inf:
            if kept < r:
                candidate_rows.swap(hand, kept, r)
            kept += 1
    return kept if n >= 0 else np.int64(n)


@kernel.passes.of(Desk)
@inner
def _passes(state, hand, joules):
    hand.ask[0].joules += joules
