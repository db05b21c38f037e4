"""Online correction: after each finished task the log error of its prediction moves a small linear model.

    log(true / predicted) ≈ machine effect + task effect + task slope · (log size − typical)

solved by recursive least squares with forgetting (Ljung, *System Identification*, 1999, chapter 11). A slower machine
moves one coefficient, so a handful of tasks of any kind is enough. A refit in the background replaces the model only
when it did better on the tasks that finished meanwhile (`shadow_test`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wattflow.predict.observations import Floats

# A node's P(k), corrected as it is observed: each observation moves the two points of the curve that it lies between.
#
# A least mean squares update over hat functions: quick enough for a server's loop, exact for a curve that is linear
# between its points, and without memory of what the node drew long ago. Points that nothing was observed near are
# moved by the mean of the others, because a curve that is off is mostly off everywhere (another supply, other
# memory).

# About the last five observations near a point count.
RATE = 0.2
ENOUGH = 20
"""Observations before a correction is believed."""


@dataclass(slots=True)
class CurveCorrector:
    """Learns watts at the points of a curve.

    Args:
        busy, watts: The curve that was announced.
    """

    busy: Floats
    watts: Floats
    seen: Floats = field(init=False)
    off: Floats = field(init=False)
    learned: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.learned, self.seen = self.watts.copy(), np.zeros(len(self.watts))
        self.off = np.zeros(len(self.watts))

    @classmethod
    def of(cls, busy: Sequence[float], watts: Sequence[float]) -> CurveCorrector:
        """Make a corrector for a curve as a node tells it."""
        return cls(np.asarray(busy, float), np.asarray(watts, float))

    def observe(self, busy: float, watts: float) -> None:
        """Learn that the node drew so much while so many threads were busy."""
        hats = self._hats(busy)
        error = watts - float(hats @ self.learned)
        # Before the update: how far the curve as it stood was off.
        self.off = self.off + RATE * hats * (error * error - self.off)
        # Divided by the hats' square norm, so that one observation moves the curve there by RATE of the
        # error, wherever it lies between two points.
        self.learned = self.learned + RATE * error * hats / float(hats @ hats)
        self.seen = self.seen + hats

    @property
    def curve(self) -> Floats | None:
        """Return watts at the points; None before enough was observed. Never falls, never below 0."""
        if self.seen.sum() < ENOUGH:
            return None
        # Weights of observations add up to one near the point.
        known = self.seen >= 1.0
        if not known.any():
            return None
        ratio = float(np.mean(self.learned[known] / np.maximum(self.watts[known], 1e-9)))
        found = np.where(known, self.learned, self.watts * ratio)
        # P(k) does not fall; noise at one point must not make it do so.
        return np.asarray(np.maximum.accumulate(np.maximum(found, 0.0)))

    @property
    def deviation(self) -> Floats:
        """Return how far the latest observations near each point lay from the curve: root mean square in watts, NaN at
        points that nothing was observed near."""
        return np.where(self.seen >= 1.0, np.sqrt(self.off), np.nan)

    def _hats(self, busy: float) -> Floats:
        """Return weights of the points at a place; they sum to 1."""
        hats = np.zeros(len(self.busy))
        place = float(np.clip(busy, self.busy[0], self.busy[-1]))
        # At least 1: the first interval also serves its left end.
        right = int(np.clip(np.searchsorted(self.busy, place), 1, len(self.busy) - 1)) if len(self.busy) > 1 else 0
        if right == 0:
            hats[0] = 1.0
            return hats
        width = self.busy[right] - self.busy[right - 1]
        hats[right] = (place - self.busy[right - 1]) / width
        hats[right - 1] = 1.0 - hats[right]
        return hats


# Prior deviations: machines differ by about a third, a task's own error and slope by a tenth.
_MACHINE, _TASK, _SLOPE = 0.3, 0.1, 0.1
_LEAST_NOISE, _CLIP = 0.03, 3.0
_LOOK, _WIDEST = 0.25, 1e4
_RATE_LEAST, _RATE_FIRST, _FACTOR_MOST, _LEAST_WIDTH, _BELIEVED = 0.05, 16, 3.0, 1e-3, 0.5


class RecursiveLeastSquares:
    """Coefficients of a linear model, exact after every observation.

    With ``forgetting`` 1 the result is that of ridge regression on all observations so far, with penalty 1 / variance.
    """

    def __init__(self, variance: Floats, forgetting: float = 1.0) -> None:
        if not 0.5 < forgetting <= 1.0:
            raise ValueError(f"forgetting must lie in (0.5, 1], not {forgetting}")
        self.weight = np.zeros(len(variance))
        self.covariance = np.diag(np.asarray(variance, np.float64))
        self.forgetting = forgetting
        self._prior, self._since = np.asarray(variance, np.float64), 0

    def update(self, x: Floats, y: float, noise: float = 1.0) -> None:
        """Fold in one observation ``y ≈ x · weight`` with this noise variance."""
        px = self.covariance @ x
        # Forgetting weighs the past down before the new observation is added.
        gain = px / (self.forgetting * noise + float(x @ px))
        self.weight += gain * (y - float(x @ self.weight))
        self.covariance = (self.covariance - np.outer(gain, px)) / self.forgetting
        self._since += 1
        # Looking costs an inverse: only after a quarter of the memory has been replaced.
        if self._since * (1.0 - self.forgetting) >= _LOOK:
            self._since = 0
            self._bound()

    def _bound(self) -> None:
        """Forget no further than to a ten-thousandth of what was known at first. Else the variance of what no
        observation tells about (a slope where no size is given) grows until it overflows: covariance windup."""
        if (self.covariance.diagonal() > _WIDEST * self._prior).any():
            # Symmetric first: rounding makes a covariance drift away from it.
            known = np.linalg.inv((self.covariance + self.covariance.T) / 2) + np.diag(1.0 / (_WIDEST * self._prior))
            self.covariance = np.linalg.inv(known)

    def grow(self, variance: Floats) -> None:
        """Add coefficients with these prior variances."""
        old = len(self.weight)
        self.weight = np.append(self.weight, np.zeros(len(variance)))
        wider = np.zeros((len(self.weight), len(self.weight)))
        wider[:old, :old] = self.covariance
        wider[old:, old:] = np.diag(variance)
        self.covariance = wider
        self._prior = np.append(self._prior, variance)


@dataclass(slots=True)
class Corrector:
    """Corrects log predictions by machine, task and size from what finished. Names are learned as they come."""

    forgetting: float = 0.995
    machines: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    typical: dict[str, float] = field(default_factory=dict)
    solver: RecursiveLeastSquares = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.solver = RecursiveLeastSquares(np.zeros(0), self.forgetting)

    def finished(
        self, task: str, machine: str, log_error: float, size: float = float("nan"), scale: float = 0.1
    ) -> None:
        """Learn from a finished task: ``log_error`` = log(true / predicted), ``scale`` its expected size."""
        self._learn(task, machine, size)
        x = self._row(task, machine, size)
        noise = max(scale, _LEAST_NOISE)
        expected = float(x @ self.solver.weight)
        spread = float(np.sqrt(noise**2 + x @ self.solver.covariance @ x))
        # A wild run moves the model by at most three expected deviations.
        error = expected + float(np.clip(log_error - expected, -_CLIP * spread, _CLIP * spread))
        self.solver.update(x, error, noise**2)
        self.count += 1

    def correction(self, task: str, machine: str, size: float = float("nan")) -> float:
        """Return what to add to the log prediction; 0 where nothing has finished."""
        # Nothing of it has finished: no row to answer with.
        if machine not in self.machines and task not in self.tasks:
            return 0.0
        return float(self._row(task, machine, size) @ self.solver.weight)

    def _learn(self, task: str, machine: str, size: float) -> None:
        if machine not in self.machines:
            self.machines[machine] = len(self.solver.weight)
            self.solver.grow(np.array([_MACHINE**2]))
        if task not in self.tasks:
            self.tasks[task] = len(self.solver.weight)
            # The first size seen is the middle: slopes are then nearly independent of the task's own effect.
            self.typical[task] = float(np.log(size)) if size > 0 else float("nan")
            self.solver.grow(np.array([_TASK**2, _SLOPE**2]))

    def _row(self, task: str, machine: str, size: float) -> Floats:
        x = np.zeros(len(self.solver.weight))
        if machine in self.machines:
            x[self.machines[machine]] = 1.0
        if task in self.tasks:
            place = self.tasks[task]
            x[place] = 1.0
            if size > 0 and np.isfinite(self.typical[task]):
                x[place + 1] = float(np.clip(np.log(size) - self.typical[task], -8.0, 8.0))
        return x


@dataclass(slots=True)
class AdaptiveWidth:
    """Keeps intervals honest as tasks finish: a factor on their log width that follows the quantile it should cover.

    Each finished task says how much wider or narrower its interval as fitted would have had to be. A miss moves the
    factor up, a hit a little down, so that over time misses come as often as promised, whatever the errors do (Gibbs
    and Candès 2021, arXiv 2106.00072; the width is followed instead of the level, and a task that took long to finish
    is judged by the factor of now, so that many that started together do not all push the same way).
    """

    level: float = 0.9
    log_factor: float = 0.0
    count: int = 0
    kinds: set[str] = field(default_factory=set)

    def interval(self, kind: str, point: float, low: float, high: float) -> tuple[float, float]:
        """Move both ends from or towards the point.

        What other kinds of tasks earned narrows one of which none has finished by half only.
        """
        # Wider is believed at once, narrower only with evidence of this kind of task.
        believed = 1.0 if self.log_factor > 0 or kind in self.kinds else _BELIEVED
        factor = math.exp(believed * self.log_factor)
        return point * (low / point) ** factor, point * (high / point) ** factor

    def finished(self, kind: str, true: float, point: float, low: float, high: float) -> None:
        """Learn from a finished task; the interval is the one as fitted."""
        if not (true > 0 and 0 < low <= point <= high):
            return
        apart = math.log(true / point)
        # The two sides have widths of their own.
        side = math.log(high / point) if apart > 0 else math.log(point / low)
        needed = abs(apart) / max(side, _LEAST_WIDTH)
        # Quick at first, then steady: from some 400 tasks on the rate is the least one.
        rate = max(_RATE_LEAST, (self.count + _RATE_FIRST) ** -0.5)
        moved = self.log_factor + rate * ((needed > math.exp(self.log_factor)) - (1.0 - self.level))
        self.log_factor = min(max(moved, -_FACTOR_MOST), _FACTOR_MOST)
        self.kinds.add(kind)
        self.count += 1


def shadow_test(current: Sequence[float], candidate: Sequence[float], least: int = 30, gain: float = 0.02) -> bool:
    """Tell whether a refitted model replaces the current one: absolute log errors of both on the same finished tasks.

    The candidate must win by ``gain`` in the mean and not lose by a paired sign count.
    """
    ours, theirs = np.abs(np.asarray(current, np.float64)), np.abs(np.asarray(candidate, np.float64))
    if len(ours) != len(theirs):
        raise ValueError(f"errors of the same tasks are compared, not {len(ours)} and {len(theirs)}")
    # Fewer say nothing either way.
    if len(ours) < least:
        return False
    # Both: a mean may be moved by one task, a count of wins by nobody.
    return bool(theirs.mean() < ours.mean() * (1.0 - gain) and np.sum(theirs < ours) >= np.sum(theirs > ours))
