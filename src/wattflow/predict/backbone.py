"""The backbone of a runtime prediction: per task a line in input size, times a factor per machine.

    runtime ≈ (a + b · size) · exp(offset[task, machine])

Lines are fitted to relative error (every row divided by its runtime) with iterated weights, so that an hour does not
outweigh a second and one stuck task does not bend the line. A negative intercept is allowed: it is how a task that
grows faster than linearly looks between the sizes seen; a floor keeps the result positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.predict.compiled import compiled
from wattflow.predict.observations import Floats, Ints

# Gigabytes, so that sums of squares of sizes stay near 1.
SIZE_UNIT = 1e9
# Offsets and lines are fitted in turn; four rounds settle both.
_ROUNDS, _REWEIGHTS, _TOLERANCE = 4, 15, 0.1


@dataclass(frozen=True, slots=True)
class Backbone:
    """Lines and machine offsets.

    Attributes:
        intercept, slope, floor: Seconds, seconds per 1e9 bytes and least seconds of each task at offset 0.
        offset: Natural log of the machine factor, [task, machine]; NaN where the task never ran.
        lowest, highest: Range of sizes seen, for each task.
    """

    intercept: Floats
    slope: Floats
    floor: Floats
    offset: Floats
    lowest: Floats
    highest: Floats

    def curve(self, task: Ints, size: Floats) -> Floats:
        """Return the natural log of seconds at offset 0. An unknown size is taken as the middle of what was seen."""
        # The geometric middle: sizes spread over orders of magnitude.
        middle = np.sqrt(np.maximum(self.lowest[task], 1.0) * np.maximum(self.highest[task], 1.0))
        known = np.where(np.isfinite(size), size, middle) / SIZE_UNIT
        line = self.intercept[task] + self.slope[task] * known
        # A line may fall below zero at small sizes; the floor is half of the fastest run.
        return np.log(np.maximum(line, self.floor[task]))

    def predict(self, task: Ints, machine: Ints, size: Floats) -> Floats:
        """Return the natural log of seconds; NaN where the task never ran on the machine."""
        return self.curve(task, size) + self.offset[task, machine]


@compiled
def relative_line(x: Floats, t: Floats) -> tuple[float, float]:
    """Fit (a, b) that make a + b·x close to t in relative error, by iteratively reweighted least squares."""
    weight = np.ones(t.size)
    a, b = 0.0, 0.0
    for _ in range(_REWEIGHTS):
        s00, s01, s11, r0, r1 = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(t.size):
            one, slope, w = 1.0 / t[i], x[i] / t[i], weight[i]
            s00 += w * one * one
            s01 += w * one * slope
            s11 += w * slope * slope
            r0 += w * one
            r1 += w * slope
        determinant = s00 * s11 - s01 * s01
        # Singular to rounding: then the slope cannot be told from the intercept.
        if determinant <= 1e-9 * s00 * s11:  # one size only: a constant
            a, b = r0 / s00, 0.0
        else:
            a, b = (r0 * s11 - r1 * s01) / determinant, (r1 * s00 - r0 * s01) / determinant
        for i in range(t.size):
            # Weights 1/error make squares into absolute errors; the tolerance keeps a perfect row from deciding
            # alone.
            weight[i] = 1.0 / max(abs((a + b * x[i]) / t[i] - 1.0), _TOLERANCE)
    return a, b


@compiled
def medians(values: Floats, group: Ints, count: int) -> Floats:
    """Return the median of the values of each group 0 … count − 1; NaN for an empty one."""
    # Counting sort into one array: a list per group would not compile.
    size = np.zeros(count + 1, np.int64)
    for g in group:
        size[g + 1] += 1
    start = np.cumsum(size)
    place, sorted_values = start[:-1].copy(), np.empty(values.size)
    for i in range(values.size):
        sorted_values[place[group[i]]] = values[i]
        place[group[i]] += 1
    result = np.full(count, np.nan)
    for g in range(count):
        if start[g + 1] > start[g]:
            result[g] = np.median(sorted_values[start[g] : start[g + 1]])
    return result


def fit_backbone(task: Ints, machine: Ints, size: Floats, log_s: Floats, counts: tuple[int, int]) -> Backbone:
    """Fit all tasks. ``counts`` is (tasks, machines); indices without rows stay NaN."""
    tasks, machines = counts
    line = np.full((3, tasks), np.nan)
    extent = np.full((2, tasks), np.nan)
    offset = np.full((tasks, machines), np.nan)
    for k in np.unique(task).tolist():
        rows = np.flatnonzero(task == k)
        # The appended 0 stands in where no size is known at all.
        known = np.where(np.isfinite(size[rows]), size[rows], np.nanmedian(np.append(size[rows], 0.0)))
        line[:, k], offset[k] = _fit_task(known / SIZE_UNIT, log_s[rows], machine[rows], machines)
        extent[:, k] = known.min(), known.max()
    return Backbone(line[0], line[1], line[2], offset, extent[0], extent[1])


@compiled
def _fit_task(x: Floats, log_s: Floats, machine: Ints, machines: int) -> tuple[tuple[float, float, float], Floats]:
    # Start with the machine's median; the line is then fitted to what is left.
    offset = medians(log_s, machine, machines)
    a, b, floor = 1.0, 0.0, 1.0
    for _ in range(_ROUNDS):
        scaled = np.exp(log_s - offset[machine])
        a, b = relative_line(x, scaled)
        # From the same scaled rows as the line, so that both belong to offset 0.
        floor = 0.5 * scaled.min()
        curve = np.log(np.maximum(a + b * x, floor))
        offset = medians(log_s - curve, machine, machines)
    return (a, b, floor), offset
