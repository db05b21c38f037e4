"""How a function responds to a clock: seconds and joules against the level, from a few runs, with intervals.

Seconds are a hinge in log-log: flat above a knee (bound by memory, by gaps, or by a power limit that holds the clock
down anyway), a power of the clock below it: ``t = t₀ · max(1, knee / f)^γ``. Joules are ``e₀ + e₁ · f³ + idle_w · t``:
work whose price does not depend on the clock, work whose price rises with voltage and clock, and the time the device is
held. A device that does not reach its clock at full level (a power limit) runs at the knee there, so f is at most that.
γ and e₀ : e₁ are drawn to 1 and 1 : 1 by a weak prior, which decides while there are fewer runs than parameters.
Between runs the curve is bent through them: its log-residuals are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CUBE = 3.0
# A run cannot slow down by much more than the clock falls; beyond is noise.
STEEPEST = 1.5
KNEES = 120
# Weak against a single run's squared log error (NOISE²), strong enough to decide where runs are
# missing.
PRIOR_SLOPE, PRIOR_JOULES = 4e-4, 0.02
THROTTLED = 0.97
NOISE, SPREAD, REACH = 0.01, 0.05, 0.12
"""Relative spread of one run, of the curve before anything is known of it, and the log distance over which it opens."""
Z95 = 1.96


@dataclass(frozen=True, slots=True)
class LevelRun:
    """One run at a level: what was asked, what it took, and the clock that was seen near its end (None: not told)."""

    level: float
    seconds: float
    joules: float
    clock_seen: float | None = None

    def __post_init__(self) -> None:
        for name in ("level", "seconds", "joules"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} of a run must be a number above 0, not {value}")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Curve:
    """Fitted parameters: log t₀, log knee, γ; e₀, e₁; the clock at which the device stays by itself."""

    time: tuple[float, float, float]
    work: tuple[float, float]
    full: float
    ceiling: float
    idle_w: float

    def seconds(self, levels: Floats) -> Floats:
        base, knee, slope = self.time
        return np.asarray(np.exp(base + slope * np.maximum(0.0, knee - np.log(levels))))

    def joules(self, levels: Floats) -> Floats:
        share = np.minimum(levels, self.ceiling) / self.full
        return np.asarray(self.work[0] + self.work[1] * share**CUBE + self.idle_w * self.seconds(levels))


class Response:
    """Response of a function over all levels, fitted to runs at some.

    Args:
        runs: At least one; the highest level is full clock. Of several runs at one level the mean counts.
        idle_w: Watts of the device that is held and does nothing.
    """

    def __init__(self, runs: Sequence[LevelRun], idle_w: float = 0.0) -> None:
        if not runs:
            raise ValueError("a response needs at least one run")
        if not (math.isfinite(idle_w) and idle_w >= 0):
            raise ValueError(f"idle_w must be a number of at least 0, not {idle_w}")
        self.runs, self.idle_w = tuple(runs), idle_w
        self._levels = np.array(sorted({run.level for run in runs}))
        self._seconds, self._joules = self._means("seconds"), self._means("joules")
        self._curve = self._fit(np.ones(self._levels.size, bool))
        self._bend_t = np.log(self._seconds / self._curve.seconds(self._levels))
        self._bend_j = np.log(self._joules / self._curve.joules(self._levels))
        self._spread = self._left_out()

    @property
    def full(self) -> float:
        """Return the level of full clock."""
        return float(self._levels[-1])

    @property
    def parameters(self) -> dict[str, float]:
        """Return the curve in numbers, for people."""
        base, knee, slope = self._curve.time
        return {
            "seconds": math.exp(base),
            "knee": math.exp(knee),
            "slope": slope,
            "fixed_j": self._curve.work[0],
            "clock_j": self._curve.work[1],
        }

    def seconds(self, level: float) -> Estimate:
        """Estimate the seconds at a level."""
        return self._estimate(level, self._curve.seconds, self._bend_t, self._spread[0])

    def joules(self, level: float) -> Estimate:
        """Estimate the joules at a level."""
        return self._estimate(level, self._curve.joules, self._bend_j, self._spread[1])

    def under_cap(self, cap_w: float) -> tuple[Estimate, Estimate] | None:
        """Estimate seconds and joules under a power limit; None where it is below the watts of the lowest run.

        A device that is held to a limit lowers its clock until it draws no more, so a limit is the clock that draws
        that many watts. Nothing is said of clocks below those that were run: there the memory's clock may fall, too.
        """
        low, high = float(self._levels[0]), self.full
        if self._watts(high) <= cap_w:
            return self.seconds(high), self.joules(high)
        if self._watts(low) > cap_w:
            return None
        # Halved 40 times: far finer than any clock.
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._watts(middle) <= cap_w else (low, middle)
        return self.seconds(low), self.joules(low)

    def _watts(self, level: float) -> float:
        return self.joules(level).value / self.seconds(level).value

    def best(self, levels: Sequence[float], slowdown: float) -> float:
        """Choose the level of the fewest joules among those not slower than ``slowdown`` times full clock.

        Ties go to the faster; full clock is always allowed.
        """
        # A trifle, so that full clock is within a slowdown of 1.
        limit_s = slowdown * self.seconds(self.full).value * (1 + 1e-9)
        allowed = [level for level in levels if self.seconds(level).value <= limit_s] or [self.full]
        return min(allowed, key=lambda level: (self.joules(level).value, -level))

    def _means(self, name: str) -> Floats:
        return np.array(
            [np.mean([getattr(run, name) for run in self.runs if run.level == level]) for level in self._levels]
        )

    def _fit(self, use: NDArray[np.bool_]) -> _Curve:
        levels, seconds, joules = self._levels[use], self._seconds[use], self._joules[use]
        full = float(levels[-1])
        time = _fit_seconds(levels, seconds)
        # Only the run at full level: there a lower clock means a power limit, elsewhere it is the ceiling
        # that was set.
        seen = [run.clock_seen for run in self.runs if run.level == full and run.clock_seen is not None]
        throttled = bool(seen) and float(np.median(seen)) < THROTTLED * full
        ceiling = min(full, math.exp(time[1])) if throttled else full
        # Work cannot cost less than nothing: where the device's idle watts are too high for it, they are lowered.
        idle_w = min(self.idle_w, 0.9 * float(np.min(joules / seconds)))
        work = _fit_work(np.minimum(levels, ceiling) / full, joules - idle_w * seconds, joules)
        return _Curve(time, work, full, ceiling, idle_w)

    def _left_out(self) -> tuple[float, float]:
        """Estimate how far off the curve is where nothing was run: each run below full clock left out once."""
        errors: list[tuple[float, float]] = []
        # The last level is full clock, which the curve is anchored to; it is never left out.
        for left in range(self._levels.size - 1):
            use = np.arange(self._levels.size) != left
            if use.sum() >= 2:
                curve, level = self._fit(use), self._levels[left : left + 1]
                errors.append(
                    (
                        math.log(self._seconds[left] / curve.seconds(level)[0]),
                        math.log(self._joules[left] / curve.joules(level)[0]),
                    )
                )
        # As if two runs had been off by SPREAD: with few runs the prior speaks, with many the errors do.
        squares = [2 * SPREAD**2 + sum(error[i] ** 2 for error in errors) for i in (0, 1)]
        return math.sqrt(squares[0] / (2 + len(errors))), math.sqrt(squares[1] / (2 + len(errors)))

    def _estimate(self, level: float, curve: Callable[[Floats], Floats], bend: Floats, spread: float) -> Estimate:
        at = np.array([level])
        bent = np.interp(np.log(at), np.log(self._levels), bend)
        value = float(curve(at)[0] * math.exp(bent[0]))
        # Zero at a level that was run; at REACH away the whole spread, never more than twice of it.
        gap = float(np.min(np.abs(np.log(self._levels) - math.log(level)))) / REACH
        half = Z95 * math.hypot(NOISE, spread * min(2.0, gap))
        return Estimate(value, value * math.exp(-half), value * math.exp(half))


def _fit_seconds(levels: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Fit the hinge: a grid over the knee, least squares in logarithms for the rest."""
    logs, times = np.log(levels), np.log(seconds)
    if levels.size == 1:
        return float(times[0]), float(logs[0]), 1.0
    best = (math.inf, 0.0, 0.0, 0.0)
    # Just above the lowest level: a knee there or below would leave nothing on the slope.
    for knee in np.linspace(logs[0] + 0.01, logs[-1], KNEES):
        below = np.maximum(0.0, knee - logs)
        spread = below - below.mean()
        square = float(spread @ spread)
        # Least squares with a weak pull of the slope to 1.
        slope = (float(spread @ times) + PRIOR_SLOPE) / (square + PRIOR_SLOPE)
        slope = min(STEEPEST, max(0.0, slope))
        base = float((times - slope * below).mean())
        error = float(((times - base - slope * below) ** 2).sum()) + PRIOR_SLOPE * (slope - 1.0) ** 2
        # Strictly better: of equal knees the lowest, whatever the rounding.
        if error < best[0] - 1e-12:
            best = (error, base, float(knee), slope)
    return best[1:]


def _fit_work(shares: Floats, dynamic_j: Floats, joules: Floats) -> tuple[float, float]:
    """Fit e₀ and e₁ by least squares of relative errors, drawn to equal parts."""
    half = max(float(dynamic_j[-1]) / 2, 1e-12)
    rows = np.column_stack((np.ones_like(shares), shares**CUBE)) / joules[:, None]
    prior = np.eye(2) * PRIOR_JOULES / half
    found, *_ = np.linalg.lstsq(
        np.vstack((rows, prior)), np.concatenate((dynamic_j / joules, prior @ [half, half])), rcond=None
    )
    # Work never costs less than nothing; least squares may say so where runs are few.
    return max(0.0, float(found[0])), max(0.0, float(found[1]))
