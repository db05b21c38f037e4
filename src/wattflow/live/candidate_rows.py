"""Candidate rows: what a hand is shown of a decision, and their tables. Compiled.

A row is a candidate with its cost under the policy in use; the cheapest stands first, as the policy would choose.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numba.np.numpy_support import from_dtype

from wattflow.engine import fit, rows, structure, tallies
from wattflow.engine.kinds import NODE_ID
from wattflow.kernel.handle import Tables
from wattflow.kernel.jit import inner

SCORED_ROW = np.dtype([
    ("node", "i8"), ("variant", "i8"), ("alike", "i8"), ("offer", "i8"), ("device", "i8"), ("cost", "f8"),
])  # fmt: skip
SCORED_ROW_TYPE = from_dtype(SCORED_ROW)


def explain(state, functions, task, rows):
    """List candidates of all variants with their costs; how many. The State is a copy: a score may write notes."""
    form = state.shapes[state.tasks[task].form]
    pinned = state.tasks[task].pinned_variant
    n = 0
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        if pinned >= 0 and v - form.variant_first != pinned:
            continue
        found = fit.candidates(state, v, task)
        if found == 0:
            continue
        cost = state.cost[:found]
        cost[:] = 0.0
        if state.rules[0].has_score == 1:
            state.counts[0].candidate_n = found
            functions.score(state, task, v, cost)
        for c in range(found):
            node = state.candidates[c].node
            rows[n].node = node
            rows[n].variant = state.variants[v].origin
            rows[n].alike = state.groups[state.nodes[node].group].count
            rows[n].offer = v
            rows[n].device = state.candidates[c].device
            rows[n].cost = cost[c]
            n += 1
    return n


PLACE, WAIT, SLEEP, WAKE = 0, 1, 2, 3
"""Kinds of rows."""
NONE = -1
"""As a choice: the task waits (or, jointly, all do)."""
BAD = -3
"""In place of a number of rows: a cost is no number."""
ROW = np.dtype([
    ("cost", "f8"), ("task", "i8"), ("node", "i8"), ("alike", "i4"), ("kind", "i4"), ("variant", "i4"),
    ("origin", "i4"), ("device", "i4"), ("node_row", "i4"), ("task_row", "i4"), ("unused", "i4"),
])  # fmt: skip
"""A row of a decision: what it costs, for which task, on which node (one of ``alike`` equal ones); ``origin`` is the
shape's variant, ``kind`` PLACE, WAIT, SLEEP or WAKE. The last fields are the engine's own numbers."""
ASK = np.dtype([
    ("open", "i8"), ("task", "i8"), ("shown", "i8"), ("part", "i8"), ("before", "i8"), ("joint", "i8"), ("lost", "i8"),
    ("epoch", "i8"), ("chosen", "i8"), ("n", "i8"), ("fresh", "i8"),
])  # fmt: skip


class Ask(Tables):
    """Buffers between the caller who chooses and the compiled code that asks."""

    __slots__ = ("ask", "rows")
    NAMES: ClassVar[tuple[str, ...]] = ("ask", "rows")


@inner
def write_row(state, ask, n, kind, node):
    """Write a row that places nothing."""
    if n >= ask.rows.size:
        ask.ask[0].lost += 1
        return n
    row = ask.rows[n]
    row.kind = kind
    row.task = -1
    row.task_row = -1
    row.variant = 0
    row.origin = -1
    row.node = rows.make_id(NODE_ID, node, state.node_marks[node].generation) if node >= 0 else -1
    row.node_row = node
    row.device = -1
    row.alike = state.groups[state.nodes[node].group].count if node >= 0 else 0
    row.cost = math.inf
    return n + 1


@inner
def _place_rows(state, ask, task, variant, found, n):
    """Write rows for all candidates of one variant; what they share and where the tables lie is looked up once."""
    shown = ask.rows
    candidates = state.candidates
    nodes = state.nodes
    marks = state.node_marks
    all_groups = state.groups
    cost = state.cost
    identity = structure.task_id(state, task)
    origin = state.variants[variant].origin
    kept = min(found, shown.size - n)
    at = 0
    for c in range(found):
        r = n + at
        if at >= kept:
            # Without a row of its own; one that is cheaper than all others takes the last.
            ask.ask[0].lost += 1
            # The cheapest must be among the rows: whoever takes the least cost then decides as the policy does.
            r = shown.size - 1
            if not _is_cheapest(state, ask, task, c):
                continue
        at += 1
        node = candidates[c].node
        row = shown[r]
        row.cost = cost[c]
        row.task = identity
        row.node = rows.make_id(NODE_ID, node, marks[node].generation)
        row.alike = all_groups[nodes[node].group].count
        row.kind = PLACE
        row.variant = variant
        row.origin = origin
        row.device = candidates[c].device
        row.node_row = node
        row.task_row = task
    return n + kept


@inner
def _is_cheapest(state, ask, task, c):
    """Tell whether a candidate goes before all rows, which are full, as `_cheaper` has it."""
    cost = state.cost[c]
    place = state.candidates[c]
    rule = state.shapes[state.tasks[task].form].constraint
    for r in range(ask.rows.size):
        row = ask.rows[r]
        if row.cost < cost:
            return False
        if row.cost > cost:
            continue
        liked = 0
        if state.rules[0].wishes == 1:
            liked = tallies.level(state, rule, place.node) - _level(state, row)
        if liked > 0 or (liked == 0 and place.node > row.node_row):
            return False
        if liked == 0 and place.node == row.node_row and place.device >= row.device:
            return False
    return True


@inner
def _level(state, row):
    return tallies.level(state, state.shapes[state.tasks[row.task_row].form].constraint, row.node_row)


@inner
def _cheaper(state, ask, a, b):
    """Tell whether row a goes before row b: cost, liking, node, device; a later variant only if really cheaper."""
    first = ask.rows[a]
    second = ask.rows[b]
    if first.cost != second.cost:
        return first.cost < second.cost
    if state.rules[0].wishes == 1:
        liked = _level(state, first) - _level(state, second)
        if liked != 0:
            return liked < 0
    if first.node_row != second.node_row:
        return first.node_row < second.node_row
    return first.device < second.device


@inner
def best_first(state, ask, n):
    best = 0
    for r in range(1, n):
        if ask.rows[r].kind == PLACE and _cheaper(state, ask, r, best):
            best = r
    if best > 0:
        swap(ask, 0, best)


@inner
def swap(ask, a, b):
    # Field by field: compiled, a row is a place in a table, and assigning one would only name it.
    x = ask.rows[a]
    y = ask.rows[b]
    x.kind, y.kind = y.kind, x.kind
    x.task, y.task = y.task, x.task
    x.task_row, y.task_row = y.task_row, x.task_row
    x.variant, y.variant = y.variant, x.variant
    x.origin, y.origin = y.origin, x.origin
    x.node, y.node = y.node, x.node
    x.node_row, y.node_row = y.node_row, x.node_row
    x.device, y.device = y.device, x.device
    x.alike, y.alike = y.alike, x.alike
    x.cost, y.cost = y.cost, x.cost


@inner
def rows_of(state, ask, score, task, n):
    """Write rows for all candidates of all variants of a task, from row n on; BAD when a cost is no number."""
    counts = state.counts[0]
    form = state.shapes[state.tasks[task].form]
    pinned = state.tasks[task].pinned_variant
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        if pinned >= 0 and v - form.variant_first != pinned:
            continue
        found = fit.candidates(state, v, task)
        if found == 0:
            continue
        cost = state.cost[:found]
        if state.rules[0].has_score == 1:
            counts.candidate_n = found
            score(state, task, v, cost)
            counts.scored += found
        else:
            cost[:] = 0.0
        for c in range(found):
            if math.isnan(cost[c]):
                state.choice[0].bad_task = task
                state.choice[0].bad_variant = v
                return np.int64(BAD)
        n = _place_rows(state, ask, task, v, found, n)
    return n
