"""Intervals that hold their coverage: split-conformal quantiles of residuals that the model did not see.

Residuals come from grouped folds (a run, a source or a machine left out), are divided by a scale of their task, and
their quantiles, with the finite-sample correction, give the interval (Lei et al., 2018, doi
10.1080/01621459.2017.1307116). The two tails are calibrated separately, so the interval need not be symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

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


_PRIOR_ROWS, _KEPT, _NORMALS = 5.0, 1001, 101
_SHIFTS = (0.0, 0.25, 0.5, 0.75, 1.0)
SHIFT_MOST = 0.1


def upper_quantile(scores: Floats, level: float) -> float:
    """Return the ⌈(n + 1)·level⌉-th smallest score; infinite where n is too small to promise the level."""
    # The (n + 1) is what makes coverage hold for a finite sample, not only in the limit.
    rank = math.ceil((len(scores) + 1) * level)
    # Beyond n no score can promise the level, and infinity says so.
    return float(np.sort(scores)[rank - 1]) if 1 <= rank <= len(scores) else (math.inf if rank > 0 else -math.inf)


def split_conformal(residual: Floats, level: float) -> tuple[float, float]:
    """Return (low, high) to add to a prediction so that ``level`` of new residuals fall between."""
    tail = (1.0 - level) / 2.0
    # Each tail gets half of what may be missed.
    return -upper_quantile(-residual, 1.0 - tail), upper_quantile(residual, 1.0 - tail)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How wrong predictions of one kind are.

    Attributes:
        scale: Typical size of the log residual of each task.
        scores: Sorted residuals divided by their scale, thinned.
        shift: The point prediction is lowered by ``shift · scale²``: for relative error the best point is not the
            median but the median weighted by 1/runtime, which for log-normal errors lies σ² lower.
        count: Residuals it was made from.
        median_error, mean_error: Relative error of the point on those left-out rows; NaN where there were too few.
    """

    scale: Floats
    scores: Floats
    shift: float
    count: int
    median_error: float = math.nan
    mean_error: float = math.nan

    def point(self, log_value: Floats, task: Ints) -> Floats:
        """Return the point of least expected relative error."""
        # Bounded: where errors are huge the log-normal picture is wrong, and a point lowered by half would
        # be too.
        return log_value - self.shift * np.minimum(self.scale[task] ** 2, SHIFT_MOST)

    def interval(
        self, log_value: Floats, task: Ints, level: float, extra: float | Floats = 0.0
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper end on the log scale.

        ``extra`` is the standard deviation of a further, independent error of each row: it counts as a normal one at
        least, however narrow the scores of exact data are.
        """
        low, high = split_conformal(self.scores, level)
        scale, most = self.scale[task], NormalDist().inv_cdf(0.5 + level / 2.0)
        # Independent errors add by squares.
        below = np.hypot(low * scale, max(-low, most) * np.asarray(extra))
        above = np.hypot(high * scale, max(high, most) * np.asarray(extra))
        # Without a further error the scores' own quantiles count, which need not be those of a normal law.
        far = np.asarray(extra) > 0
        return (
            log_value - np.where(far, below, -low * scale),
            log_value + np.where(far, above, high * scale),
        )


def unknown(tasks: int, count: int = 0) -> Calibration:
    """Return a calibration of nothing measured: wide, and the same for all."""
    # From -3 to 3 at scale 1: factors of twenty either way.
    return Calibration(np.full(tasks, 1.0), np.linspace(-3, 3, 61), 0.0, count)


def calibrate(residual: Floats, task: Ints, group: Ints, tasks: int) -> Calibration:
    """Calibrate from residuals left out group by group; a row's score never uses its own group's scale."""
    known = np.isfinite(residual)
    residual, task, group = residual[known], task[known], group[known]
    if len(residual) < 20:
        return unknown(tasks, len(residual))
    scores = np.zeros(len(residual))
    for g in np.unique(group).tolist():
        out = group == g
        # A single group: its own rows must do.
        if not (~out).any():
            out = np.zeros(len(residual), bool)
        scale = _scales(residual[~out], task[~out], tasks)
        rows = group == g
        # Scores by scales of the other groups: a row must not shrink its own score.
        scores[rows] = residual[rows] / scale[task[rows]]
    scale = _scales(residual, task, tasks)
    lower = np.minimum(scale[task] ** 2, SHIFT_MOST)
    # The smallest shift of equal cost, since the tuple rises from 0.
    shift = min(_SHIFTS, key=lambda c: relative_cost(residual + c * lower))
    ordered = np.sort(scores)
    # Thinned to quantiles: files stay small, and a thousand points say all that intervals need.
    if len(ordered) > _KEPT:
        ordered = np.quantile(ordered, (np.arange(_KEPT) + 0.5) / _KEPT)
    error = _relative_errors(residual, shift * lower)
    return Calibration(scale, ordered, shift, len(residual), float(np.median(error)), float(np.mean(error)))


def widened(calibration: Calibration, extra: float | Floats) -> Calibration:
    """Widen the scale by a further, independent, normal error of this size on the log scale.

    The scores are those of the sum, at the ratio of the two errors that is typical of the tasks.
    """
    scale = np.hypot(calibration.scale, extra)
    kept = float(np.median(calibration.scale / np.maximum(scale, 1e-12)))
    shift = calibration.shift * kept**2  # the point stays where it was
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / _NORMALS) for i in range(_NORMALS)])
    # All sums of a score and a normal quantile: the distribution of the sum, without drawing.
    both = (kept * calibration.scores[:, None] + np.sqrt(max(1.0 - kept**2, 0.0)) * normal[None, :]).ravel()
    scores = np.quantile(both, (np.arange(_KEPT) + 0.5) / _KEPT)
    return replace(calibration, scale=scale, scores=scores, shift=shift, median_error=math.nan, mean_error=math.nan)


def calibrate_worst_group(residual: Floats, group: Ints) -> Calibration:
    """Calibrate for rows of a whole new group (a workflow): as wrong as the worst group left out, in both directions.

    A handful of groups cannot promise a level for the next one, so the interval is wide on purpose.
    """
    known = np.isfinite(residual)
    residual, group = residual[known], group[known]
    if not len(residual):
        return Calibration(np.ones(1), np.linspace(-9, 9, 61), 0.0, 0)
    parts = [residual[group == g] for g in np.unique(group).tolist()]
    worst = max(parts, key=lambda part: float(np.quantile(np.abs(part), 0.9)))
    scores = np.sort(np.concatenate([worst, -worst]))
    # Few rows would make every quantile infinite; repeated, the worst of them is the bound.
    if len(scores) < 40:
        scores = np.sort(np.repeat(scores, -(-40 // len(scores))))
    return Calibration(np.ones(1), scores, 0.0, len(residual))


def _scales(residual: Floats, task: Ints, tasks: int) -> Floats:
    """Average the squared residuals of each task, drawn on the log scale towards those of the typical task."""
    count = np.bincount(task, minlength=tasks)
    # Clipped: one wild run must not widen its task's intervals for ever.
    total = np.bincount(task, weights=np.clip(residual, -2.0, 2.0) ** 2, minlength=tasks)
    own = 0.5 * np.log(total / np.maximum(count, 1) + 1e-8)
    typical = float(np.median(own[count > 0])) if (count > 0).any() else 0.0
    # On the log scale: scales of tasks differ by factors, and the mean of logs is their typical one.
    return np.asarray(np.exp((_PRIOR_ROWS * typical + count * own) / (_PRIOR_ROWS + count)))


def _relative_errors(residual: Floats, lowered: Floats) -> Floats:
    return np.asarray(np.abs(np.exp(-lowered - residual) - 1.0))
