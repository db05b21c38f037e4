"""Weights of an ensemble's members from what each missed on rows left out of its training.

Greedy forward selection with replacement (Caruana et al., 2004, doi 10.1145/1015330.1015432): start with the best
member, then again and again add the one that helps the mean most. Weights are counts; a member that never helps has
none, and a blend is never worse than the best single member on the rows it was chosen on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wattflow.predict.observations import Floats

_STEPS = 16
_LEAST_GAIN = 2e-3
Cost = Callable[[Floats], float]


def relative_cost(residual: Floats) -> float:
    """Of log residuals: median plus mean relative error, each error at most 1, so that no wild row decides."""
    error = np.minimum(np.abs(np.expm1(-np.clip(residual, -1.0, 5.0))), 1.0)
    return float(np.median(error) + error.mean())


def choose(residual: Floats, cost: Cost = relative_cost) -> Floats:
    """Weights [member] that sum to 1, from log residuals [row, member] without gaps."""
    members = residual.shape[1]
    single = [cost(residual[:, m]) for m in range(members)]
    count = np.zeros(members)
    count[int(np.argmin(single))] = 1.0
    best, chosen, total = min(single), count.copy(), residual @ count
    for _ in range(_STEPS):
        costs = [cost((total + residual[:, m]) / (count.sum() + 1.0)) for m in range(members)]
        added = int(np.argmin(costs))
        total = total + residual[:, added]
        count[added] += 1.0
        if costs[added] < best * (1.0 - _LEAST_GAIN):
            best, chosen = costs[added], count.copy()
    return np.asarray(chosen / chosen.sum())
