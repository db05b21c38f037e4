"""The rows of a task: places that the flagship's rules allow, at most as many as there is room for. Compiled.

The cheapest always stands first, so that row 0 is what the flagship would do however few rows are shown.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import fit, tallies
from wattflow.kernel.jit import inner
from wattflow.learn.episode_buffers import NODE, SLOWER, VARIANT
from wattflow.live import candidate_rows
from wattflow.live.candidate_rows import BAD, PLACE
from wattflow.policy import learned, patient, pricing, view, wattflow

_BAD = np.int64(BAD)


@inner
def _those_that_take(state, variant, found):
    """Keep, of the candidates of the variant before, those whose class takes this one; how many."""
    kept = 0
    for c in range(found):
        node = state.candidates[c].node
        if state.class_ok[variant, state.nodes[node].cls] == 1:
            state.candidates[kept].node = node
            state.candidates[kept].device = state.candidates[c].device
            kept += 1
    return kept


@inner
def _is_passed_over(state, ask, task, variant, found):
    """Tell whether the flagship surely passes over all candidates of a variant, told without their prices.

    It does where the task would be late and end later than by waiting for room elsewhere (`wattflow.pass_over`).
    """
    if view.param(state, wattflow.DIAL.spare) == math.inf or view.parts_of(state, task) > 1:
        return False
    due = wattflow.due_s(state, task)
    least_s = math.inf
    any_left = False
    for c in range(found):
        node = view.node_of(state, c)
        if patient.crowded(state, variant, node):
            continue
        finish_s = view.crowded_finish_s(state, task, variant, c)
        if not view.has_profile(state, node) or wattflow.slower_s(state, task, finish_s, due) <= 0.0:
            return False
        least_s = min(least_s, finish_s)
        any_left = True
    return not any_left or _room_comes(state, ask, task, least_s)


@inner
def _room_comes(state, ask, task, finish_s):
    """Tell whether a task would rather wait for a place that is about to come than take one of so many seconds.

    The place for which the last one of its shape waited is looked at first: it will mostly do for this one too.
    """
    awaited = ask.awaited
    shape = state.tasks[task].form
    if awaited[shape, NODE] >= 0:
        there_s = wattflow.sooner_on_s(state, task, awaited[shape, VARIANT], awaited[shape, NODE], math.inf)
        if wattflow.holds_out(state, finish_s, there_s):
            return True
    soon_s, awaited[shape, VARIANT], awaited[shape, NODE] = wattflow.sooner(state, task, finish_s)
    return wattflow.holds_out(state, finish_s, soon_s)


@inner
def _is_better(state, task, cost, c, best):
    """Tell whether candidate c goes before the best so far, as `choose` has it."""
    choice = state.choice[0]
    if best < 0 or cost != choice.best_cost:
        return best < 0 or cost < choice.best_cost
    place = state.candidates[c]
    if state.rules[0].wishes == 1:
        rule = state.shapes[state.tasks[task].form].constraint
        liked = tallies.level(state, rule, place.node) - tallies.level(state, rule, choice.best_node)
        if liked != 0:
            return liked < 0
    if place.node != choice.best_node:
        return place.node < choice.best_node
    return place.device < choice.best_device


@inner
def _write(state, ask, r, task, variant, c, cost):
    """Write row r: candidate c of a variant."""
    row = ask.rows[r]
    place = state.candidates[c]
    row.cost = cost
    row.task = task
    row.node = place.node
    row.alike = state.groups[state.nodes[place.node].group].count
    row.kind = PLACE
    row.variant = variant
    row.origin = state.variants[variant].origin
    row.device = place.device
    row.node_row = place.node
    row.task_row = task
    _keep_parts(state, ask, r, c)


@inner
def _keep_parts(state, ask, r, c):
    """Keep what a candidate's price is made of, for those who describe the row; no number where nobody knows."""
    at = pricing.slot(view.place_of(state, learned.NOTES.kept), c)
    for i in range(pricing.WIDTH):
        ask.parts[r, i] = state.memory[at + i]
    # Parts are kept of the first candidates only, and none where the flagship has no prices.
    if c >= pricing.MOST or state.rules[0].has_score == 0 or view.param(state, wattflow.DIAL.wait) == math.inf:
        ask.parts[r, pricing.PRICE] = math.nan


@inner
def _swap(ask, a, b):
    candidate_rows.swap(ask, a, b)
    for i in range(pricing.WIDTH):
        ask.parts[a, i], ask.parts[b, i] = ask.parts[b, i], ask.parts[a, i]


@inner
def _priced(state, ask, score, task, v, n, best):
    """Write rows for the candidates of one variant that have a price, from row n on; (rows, row of the best)."""
    choice = state.choice[0]
    found = state.counts[0].candidate_n
    cost = state.cost[:found]
    most = ask.rows.size
    if state.rules[0].has_score == 1:
        score(state, task, v, cost)
        state.counts[0].scored += found
    else:
        cost[:] = 0.0
    for c in range(found):
        x = cost[c]
        if math.isnan(x):
            choice.bad_task = task
            choice.bad_variant = v
            return _BAD, best
        if x == math.inf:
            continue
        better = _is_better(state, task, x, c, best)
        if n < most:
            _write(state, ask, n, task, v, c, x)
            n += 1
        else:
            ask.ask[0].lost += 1
            if better:
                _write(state, ask, most - 1, task, v, c, x)
        if better:
            best = n - 1
            choice.best_cost = x
            choice.best_node = state.candidates[c].node
            choice.best_device = state.candidates[c].device
    return n, best


@inner
def rows_of(state, ask, score, task):
    """Write the places of a task that the flagship's rules allow, the cheapest first; (rows, whether there is room)."""
    form = state.shapes[state.tasks[task].form]
    pinned = state.tasks[task].pinned_variant
    n = np.int64(0)
    best = np.int64(-1)
    found = -1
    fits = False
    passed = False
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        if pinned >= 0 and v - form.variant_first != pinned:
            continue
        # It ends no sooner than the one before on any class, so whoever passed over that one passes over it.
        if ask.follows[v] == SLOWER and passed:
            continue
        # It differs in its frequency alone: what fits the one before fits it, and the search need not be made again.
        if ask.follows[v] > 0 and found >= 0:
            found = _those_that_take(state, v, found)
        else:
            found = fit.candidates(state, v, task)
        if found == 0:
            continue
        fits = True
        if state.rules[0].has_score == 1:
            passed = _is_passed_over(state, ask, task, v, found)
            if passed:
                continue
        state.counts[0].candidate_n = found
        n, best = _priced(state, ask, score, task, v, n, best)
        if n == BAD:
            return n, fits
    # Row 0 is what the flagship would do: a learner that always takes it must run as the flagship does.
    if best > 0:
        _swap(ask, 0, best)
    return n, fits
