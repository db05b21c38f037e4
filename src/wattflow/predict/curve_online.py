"""A node's P(k), corrected as it is observed: each observation moves the two points of the curve that it lies between.

A least mean squares update over hat functions: quick enough for a server's loop, exact for a curve that is linear
between its points, and without memory of what the node drew long ago. Points that nothing was observed near are moved
by the mean of the others, because a curve that is off is mostly off everywhere (another supply, other memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wattflow.predict.observations import Floats

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
