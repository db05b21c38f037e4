"""The compiled half of `explain`: every candidate of a task, scored as a decision would score it."""

from __future__ import annotations

import numpy as np
from numba.np.numpy_support import from_dtype

from wattflow.engine import fit

ROW = np.dtype([
    ("node", "i8"), ("variant", "i8"), ("alike", "i8"), ("offer", "i8"), ("device", "i8"), ("cost", "f8"),
])  # fmt: skip
ROW_TYPE = from_dtype(ROW)


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
