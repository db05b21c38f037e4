"""One choice: the cheapest way to place one part of a task now."""

from __future__ import annotations

import math

from numba import types

from wattflow.engine import boards, fit, tallies
from wattflow.engine.parts import LIVE
from wattflow.kernel.jit import inner, optional

# Outcomes of one try
TAKEN, NO_FIT, HELD, BAD, FULL = 0, 1, 2, 3, 4


@inner
def choose(state, task, score):
    """Find the cheapest (variant, candidate) of a task; the answer stands in ``choice``."""
    task_row = state.tasks[task]
    rules = state.rules[0]
    counts = state.counts[0]
    choice = state.choice[0]
    choice.best_cost = math.inf
    choice.best_node = -1
    shape = task_row.form
    form = state.shapes[shape]
    first = form.variant_first
    limit = rules.score_limit
    fits = False
    pinned = task_row.pinned_variant
    kept = boards.serves(state, task)
    for v in range(first, first + form.variant_n):
        if pinned >= 0 and v - first != pinned:
            continue
        if kept and boards.suits(state, v):
            result = _ask_board(state, task, v, score)
            if result == BAD:
                return BAD
            if result != NO_FIT:
                fits = True
            # Boards know nodes that are on; where none of these fits, sleeping ones are looked at in the usual way.
            if result != NO_FIT or counts.asleep_n == 0:
                continue
        # Under a cap each decision scans on from where the last one ended, so that all groups get their turn.
        if limit > 0:
            choice.scan_left = counts.active_n
            if choice.scan_at >= counts.active_n:
                choice.scan_at = 0
        finite = 0
        while True:
            n = fit.candidates(state, v, task)
            if n > 0:
                fits = True
            cost = state.cost[:n]
            if rules.has_score == 1 and n > 0:
                counts.candidate_n = n
                score(state, task, v, cost)
                counts.scored += n
            else:
                # Without a score all candidates cost the same and the tie-break places: on the lowest node.
                cost[:] = 0.0
            for c in range(n):
                x = cost[c]
                if x < math.inf:
                    finite += 1
                    # Equal ones too: `_consider` breaks the tie by preference, node and device.
                    if x <= choice.best_cost:
                        _consider(state, v, c, x, form.constraint)
                # NaN compares false with everything and would decide
                # by accident, so the run ends with the policy's name.
                elif math.isnan(x):
                    choice.bad_task = task
                    choice.bad_variant = v
                    return BAD
            # A cap counts finite costs: a policy that says inf of many nodes still gets to see the others.
            if limit == 0 or choice.scan_left == 0 or finite >= limit:
                break
    if not fits:
        return NO_FIT
    # A hold counts, too: the policy was asked and answered.
    counts.decisions += 1
    return HELD if choice.best_node < 0 else TAKEN


@optional(LIVE, types.int64)
def _ask_board(state, task, variant, score):
    """Return a variant's cheapest place by the kept costs; NO_FIT without any, HELD when all cost `inf`."""
    choice = state.choice[0]
    constraint = state.shapes[state.tasks[task].form].constraint
    b = boards.board_of(state, variant)
    if state.rules[0].score_limit > 0:
        cost, node = boards.best_of_some(state, b, variant, task, score)
    elif boards.sync(state, b, variant, task, score):
        cost, node = boards.best_place(state, b, constraint)
    else:
        cost, node = math.nan, -1
    if math.isnan(cost):
        choice.bad_task = task
        choice.bad_variant = variant
        return BAD
    if node < 0:
        return NO_FIT
    # The policy's `inf`, kept as a finite number so that it differs from a place that does not fit (`boards.NEVER`).
    if cost == boards.HELD_COST:
        return HELD
    # No devices and no preferences on a board (`boards.serves`): among equal costs the node alone breaks the tie.
    if choice.best_node < 0 or cost < choice.best_cost or (cost == choice.best_cost and node < choice.best_node):
        choice.best_cost = cost
        choice.best_node = node
        choice.best_device = -1
        choice.best_variant = variant
    return TAKEN


@inner
def _consider(state, variant, c, cost, rule):
    """Keep a candidate if it is cheaper, or as cheap and liked better, or with a lower node or device."""
    choice = state.choice[0]
    candidate_row = state.candidates[c]
    node = candidate_row.node
    device = candidate_row.device
    if choice.best_node >= 0 and cost == choice.best_cost:
        liked = 0
        if state.rules[0].wishes == 1:
            liked = tallies.level(state, rule, node) - tallies.level(state, rule, choice.best_node)
        if liked > 0 or (liked == 0 and node > choice.best_node):
            return
        if node == choice.best_node and device >= choice.best_device:
            return
    choice.best_cost = cost
    choice.best_node = node
    choice.best_device = device
    choice.best_variant = variant
