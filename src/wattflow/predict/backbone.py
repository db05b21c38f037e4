"""The backbone of a runtime prediction: per task a line in input size, times a factor per machine.

    runtime ≈ (a + b · size) · exp(offset[task, machine])

Lines are fitted to relative error (every row divided by its runtime) with iterated weights, so that an hour does not
outweigh a second and one stuck task does not bend the line. A negative intercept is allowed: it is how a task that
grows faster than linearly looks between the sizes seen; a floor keeps the result positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Floats, Ints

SIZE_UNIT = 1e9
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
        """Natural log of seconds at offset 0. An unknown size is taken as the middle of what was seen."""
        middle = np.sqrt(np.maximum(self.lowest[task], 1.0) * np.maximum(self.highest[task], 1.0))
        known = np.where(np.isfinite(size), size, middle) / SIZE_UNIT
        line = self.intercept[task] + self.slope[task] * known
        return np.log(np.maximum(line, self.floor[task]))

    def predict(self, task: Ints, machine: Ints, size: Floats) -> Floats:
        """Natural log of seconds; NaN where the task never ran on the machine."""
        return self.curve(task, size) + self.offset[task, machine]


def relative_line(x: Floats, t: Floats) -> tuple[float, float]:
    """(a, b) that make a + b·x close to t in relative error, by iteratively reweighted least squares."""
    one, slope, weight = 1.0 / t, x / t, np.ones(len(t))
    a, b = 0.0, 0.0
    for _ in range(_REWEIGHTS):
        s00, s01, s11 = (weight * one * one).sum(), (weight * one * slope).sum(), (weight * slope * slope).sum()
        r0, r1 = (weight * one).sum(), (weight * slope).sum()
        determinant = s00 * s11 - s01 * s01
        if determinant <= 1e-9 * s00 * s11:  # one size only: a constant
            a, b = r0 / s00, 0.0
        else:
            a, b = (r0 * s11 - r1 * s01) / determinant, (r1 * s00 - r0 * s01) / determinant
        weight = 1.0 / np.maximum(np.abs(a * one + b * slope - 1.0), _TOLERANCE)
    return float(a), float(b)


def medians(values: Floats, group: Ints, count: int) -> Floats:
    """Median of the values of each group 0 … count − 1; NaN for an empty one."""
    result = np.full(count, np.nan)
    order = np.argsort(group, kind="stable")
    found, start = np.unique(group[order], return_index=True)
    for g, part in zip(found.tolist(), np.split(values[order], start[1:]), strict=False):
        result[g] = np.median(part)
    return result


def fit_backbone(task: Ints, machine: Ints, size: Floats, log_s: Floats, counts: tuple[int, int]) -> Backbone:
    """Fit all tasks. ``counts`` is (tasks, machines); indices without rows stay NaN."""
    tasks, machines = counts
    line = np.full((3, tasks), np.nan)
    extent = np.full((2, tasks), np.nan)
    offset = np.full((tasks, machines), np.nan)
    for k in np.unique(task).tolist():
        rows = np.flatnonzero(task == k)
        known = np.where(np.isfinite(size[rows]), size[rows], np.nanmedian(np.append(size[rows], 0.0)))
        line[:, k], offset[k] = _fit_task(known / SIZE_UNIT, log_s[rows], machine[rows], machines)
        extent[:, k] = known.min(), known.max()
    return Backbone(line[0], line[1], line[2], offset, extent[0], extent[1])


def _fit_task(x: Floats, log_s: Floats, machine: Ints, machines: int) -> tuple[tuple[float, float, float], Floats]:
    offset = medians(log_s, machine, machines)
    a, b, floor = 1.0, 0.0, 1.0
    for _ in range(_ROUNDS):
        scaled = np.exp(log_s - offset[machine])
        a, b = relative_line(x, scaled)
        floor = 0.5 * float(scaled.min())
        curve = np.log(np.maximum(a + b * x, floor))
        offset = medians(log_s - curve, machine, machines)
    return (a, b, floor), offset
