"""The next decision of an environment: as `live.wanting`, but what is known of waiting tasks is kept between them."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import backfill, decide
from wattflow.engine.tables import SKIP
from wattflow.kernel.jit import inner
from wattflow.learn import offers, openings
from wattflow.live import wanting
from wattflow.live.wanting import BAD, GROW, NONE, NOTHING, PLACE

_BAD, _GROW, _NOTHING = np.int64(BAD), np.int64(GROW), np.int64(NOTHING)


@inner
def open_instant(state, ask, joint):
    """An instant whose events are folded: nobody was looked at yet."""
    wanting.begin_asking(state, ask, joint)
    asked = ask.ask[0]
    asked.apart = 0
    asked.key = -math.inf
    asked.sequence = -1
    if asked.slow + joint > 0 and state.rules[0].queue == SKIP:
        decide.look_again(state, state.freed.size)


@inner
def _carry_out(state, ask, chosen):
    """Do what was chosen for the task that is open."""
    asked = ask.ask[0]
    if asked.task >= 0 and asked.shown == 1:
        asked.shown = 0
        state.counts[0].waiting += asked.apart
        wanting._carry_out(state, ask, chosen)


@inner
def _not_placed(state, ask, task, fits):
    """The flagship does not place the task now: it, or its shape, is set aside."""
    asked = ask.ask[0]
    if asked.part > 0:
        wanting._undo_parts(state, ask)
    asked.task = NONE
    if fits or decide.misfit_of_its_own(state, task):
        decide.hold(state, task)
    else:
        openings.close(state, ask, state.tasks[task].form)


@inner
def _over(state, ask):
    asked = ask.ask[0]
    asked.open = 0
    decide.restore_held(state)
    state.choice[0].reserved = backfill.NO_RESERVATION


@inner
def _offered(ask, n):
    """Bring the rows that the flagship's rules allow to the front, in their order; how many there are.

    A cost of inf means "not here": where all are inf the flagship lets the task wait, and so does the environment.
    """
    kept = np.int64(0)
    for r in range(n):
        if ask.rows[r].kind != PLACE or ask.rows[r].cost < math.inf:
            if kept < r:
                wanting._swap(ask, kept, r)
            kept += 1
    return kept


@inner
def _next_of_any(state, ask, functions, chosen):
    """The same by `wanting`, for queues that are not known here and for the first tasks of all shapes together."""
    while True:
        task, n = wanting.want_one(state, ask, functions, chosen)
        if task < 0:
            return task, np.int64(0)
        n = _offered(ask, n)
        if n > 0:
            return task, n
        chosen = NONE


@inner
def next_one(state, ask, functions, chosen):
    """Carry out a choice; (task, rows) of the next decision, or a status in place of the task."""
    if ask.ask[0].slow + ask.ask[0].joint > 0:
        return _next_of_any(state, ask, functions, chosen)
    return _next_known(state, ask, functions, chosen)


@inner
def _next_known(state, ask, functions, chosen):
    asked = ask.ask[0]
    counts = state.counts[0]
    _carry_out(state, ask, chosen)
    while True:
        task = asked.task
        if task < 0:
            task = openings.first_open(state, ask)
            if task < 0:
                _over(state, ask)
                return _NOTHING, np.int64(0)
            if not wanting._enough_rows(state, task):
                return _GROW, np.int64(0)
            if state.rules[0].has_score == 1:
                openings.set_apart(state, ask, task)
        counts.waiting -= asked.apart
        n, fits = offers.rows_of(state, ask, functions, task)
        if n > 0:
            asked.task = task
            asked.shown = 1
            return np.int64(task), n
        counts.waiting += asked.apart
        if n == BAD:
            _over(state, ask)
            return _BAD, np.int64(0)
        _not_placed(state, ask, task, fits)
