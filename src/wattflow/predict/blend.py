"""Weights of an ensemble's members from what each missed on rows left out of its training.

Greedy forward selection with replacement (Caruana et al., 2004, doi 10.1145/1015330.1015432): start with the best
member, then again and again add the one that helps the mean most. Weights are counts; a member that never helps has
none, and a blend is never worse than the best single member on the rows it was chosen on. Where it is asked to be sure,
it takes the place of that member only if it gains more than so many standard errors: less may be chance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wattflow.predict.observations import Floats, Ints

_STEPS, _BAGS, _ROWS_MOST, _LEAST_BLOCKS = 10, 5, 800, 15
_LEAST_GAIN = 2e-3
Cost = Callable[[Floats], float]


def relative_cost(residual: Floats) -> float:
    """Score log residuals: the median plus the mean of relative errors, of which each counts at most 4."""
    error = errors(residual, 4.0)
    return float(np.median(error) + error.mean())


def errors(residual: Floats, most: float) -> Floats:
    # Clipped before `expm1`: a residual of 50 would overflow, and counts as "at most" anyway.
    return np.minimum(np.abs(np.expm1(-np.clip(residual, -2.0, 5.0))), most)


def choose(
    residual: Floats,
    block: Ints | None = None,
    cost: Cost = relative_cost,
    handicap: Floats | None = None,
    sure: float = 0.0,
) -> Floats:
    """Choose weights [member] that sum to 1, from log residuals [row, member] without gaps.

    Selection runs on several samples of the blocks (tasks: their rows err together) and its counts are averaged, so
    that members that are nearly as good share the weight instead of the luckiest taking all of it.

    Args:
        block: Which rows belong together; none: each row for itself.
        handicap: Raises the cost of members whose advantage on these rows is known to be partly chance.
        sure: A blend must gain this many standard errors over the best single member to take its place.
    """
    burden = np.zeros(residual.shape[1]) if handicap is None else handicap
    # Without blocks each row stands for itself.
    blocks = np.arange(len(residual)) if block is None else np.unique(block, return_inverse=True)[1]
    number = int(blocks.max()) + 1
    # Resampling a handful of blocks draws mostly the same one.
    if number < _LEAST_BLOCKS:
        return _or_single(_greedy(residual, cost, burden), residual, blocks, cost, burden, sure)
    # A fixed seed: the same rows give the same weights, and the same model file.
    rng = np.random.default_rng(0)
    total = np.zeros(residual.shape[1])
    for _ in range(_BAGS):
        # Drawn with replacement, by block: rows of a task err together, so single rows would look too sure.
        drawn = np.bincount(rng.integers(0, number, number), minlength=number)
        rows = np.repeat(np.arange(len(residual)), drawn[blocks])
        total += _greedy(residual[rng.permutation(rows)[:_ROWS_MOST]], cost, burden)
    return _or_single(total / total.sum(), residual, blocks, cost, burden, sure)


def _or_single(weights: Floats, residual: Floats, blocks: Ints, cost: Cost, burden: Floats, sure: float) -> Floats:
    """Return the weights, or the best single member alone where they gain no more than chance."""
    if sure <= 0.0:
        return np.asarray(weights)
    single = [cost(residual[:, m]) * (1.0 + burden[m]) for m in range(residual.shape[1])]
    best = int(np.argmin(single))
    blended = residual @ weights
    # The blend carries the burden of its members, by their weights.
    gain = single[best] - cost(blended) * (1.0 + float(burden @ weights))
    if gain > sure * _standard_error(residual[:, best], blended, blocks):
        return np.asarray(weights)
    # Not more than chance: the best single member alone.
    alone = np.zeros(len(weights))
    alone[best] = 1.0
    return alone


def _greedy(residual: Floats, cost: Cost, burden: Floats) -> Floats:
    members = residual.shape[1]
    single = [cost(residual[:, m]) * (1.0 + burden[m]) for m in range(members)]
    count = np.zeros(members)
    count[int(np.argmin(single))] = 1.0
    best, chosen, total = min(single), count.copy(), residual @ count
    for _ in range(_STEPS):
        size, carried = count.sum() + 1.0, float(burden @ count)
        costs = [cost((total + residual[:, m]) / size) * (1.0 + (carried + burden[m]) / size) for m in range(members)]
        added = int(np.argmin(costs))
        total = total + residual[:, added]
        count[added] += 1.0
        # Each step is taken, but only one that gains clearly is kept: the mean may get worse before it gets
        # better.
        if costs[added] < best * (1.0 - _LEAST_GAIN):
            best, chosen = costs[added], count.copy()
    return np.asarray(chosen / chosen.sum())


def _standard_error(one: Floats, other: Floats, blocks: Ints) -> float:
    """Estimate the standard error of the mean difference between two answers on the same rows, by blocks."""
    apart = errors(one, 4.0) - errors(other, 4.0)
    # Sums by block, not rows: the standard error of clustered data.
    sums = np.bincount(blocks, weights=apart - apart.mean())
    return float(np.sqrt((sums**2).sum()) / len(apart))
