"""Series over time (carbon, caps, supply) in a policy's memory: one per zone, repeated when they end.

Policies put `BLOCKS` first among their notes, so the places are the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wattflow.model.cluster import Series
from wattflow.policy import view
from wattflow.policy.jit import jit

BLOCKS = ("series_first", "series_n", "series_step_s", "series_values")
_AT = view.notes(*BLOCKS)


def blocks(found: Sequence[Series]) -> dict[str, Any]:
    """Lay these series out as blocks for `view.lay_out`."""
    sizes = [len(one.values) for one in found]
    return {
        "series_first": np.cumsum([0, *sizes[:-1]]),
        "series_n": sizes,
        "series_step_s": [one.step_s for one in found],
        "series_values": np.concatenate([np.asarray(one.values, np.float64) for one in found]),
    }


@jit
def step_s(state, which):
    """Return seconds between two values of a series."""
    return view.recall(state, _AT.series_step_s, which)


@jit
def length(state, which):
    """Count the values of a series."""
    return int(view.recall(state, _AT.series_n, which))


@jit
def value(state, which, at_s):
    """Return a series at a time."""
    cell = math.floor(at_s / step_s(state, which)) % length(state, which)
    return view.recall(state, _AT.series_values, int(view.recall(state, _AT.series_first, which)) + cell)


@jit
def mean(state, which, from_s, run_s):
    """Return the mean of a series over a run; at most two rounds of it are walked."""
    first = int(view.recall(state, _AT.series_first, which))
    count = length(state, which)
    step = step_s(state, which)
    # At least a millisecond, or the mean of nothing would be asked for; two rounds are as good as more.
    run_s = max(1e-3, min(run_s, 2.0 * count * step))
    at = from_s
    end = from_s + run_s
    total = 0.0
    cell = math.floor(at / step)
    while at < end:
        until = min(end, (cell + 1) * step)
        # Rounding may put `until` before `at` at a step's edge.
        total += view.recall(state, _AT.series_values, first + cell % count) * max(0.0, until - at)
        at = until
        cell += 1
    return total / run_s
