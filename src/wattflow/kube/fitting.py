"""Node curves from what a monitoring system recorded: watts against busy threads, with noise, gaps and restarts.

Samples are sorted into bins of busy threads, each bin gives its median, medians are made monotone (pool adjacent
violators, weighted by the number of samples), idle is what the bend of the lower half says, and full load is prolonged
with the nearest slope. Busy threads are those of the whole node, so that load which no pod explains shifts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, Scope

_EDGES = np.array([0, 0.01, 0.02, 0.035, 0.05, 0.075, *np.arange(0.1, 0.99, 0.05)])
"""Where bins begin, in parts of all threads: finer near idle, where curves bend most."""
_LEAST, _LEAST_IN_BIN = 60, 5
_LEAST_SPAN = 0.1
"""Part of the threads over which samples must spread; else only a constant is known."""
_BENDS = np.arange(0.3, 2.01, 0.05)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A curve and how well it is known.

    Attributes:
        below, above: Nine tenths of the samples lie within these parts of the curve, such as 0.96 and 1.05.
        samples: How many were used.
        newest_s: When the last was taken, since 1970.
    """

    curve: PowerProfile
    below: float
    above: float
    samples: int
    newest_s: float


def fit(samples: Sequence[tuple[float, float, float]], threads: int, source: str, scope: Scope = Scope.PACKAGE) -> Fit:
    """Fit a curve to (time, busy threads, watts).

    Raises:
        InvalidInput: too few samples, or all at one load.
    """
    table: Floats = np.asarray(samples, float).reshape(-1, 3)
    # A rate over a counter may exceed the threads a little; more is a broken sample.
    good = np.isfinite(table).all(axis=1) & (table[:, 2] > 0) & (table[:, 1] >= 0) & (table[:, 1] <= 1.05 * threads)
    table = table[good]
    if len(table) < _LEAST:
        raise InvalidInput(source, f"{len(table)} usable samples; {_LEAST} are needed")
    at, watts, counts = _binned(np.minimum(table[:, 1], threads), table[:, 2], threads)
    if len(at) < 2 or at[-1] - at[0] < _LEAST_SPAN * threads:
        raise InvalidInput(source, f"all samples are at {at[0]:.1f} of {threads} threads: a curve needs more loads")
    watts = _monotone(watts, counts)
    busy, curve = _prolonged(at, watts, threads, _idle_w(at, watts, counts, threads))
    made = PowerProfile(tuple(busy), tuple(curve), scope, Provenance.MEASURED, source)
    parts = table[:, 2] / np.interp(table[:, 1], busy, curve)
    below, above = np.quantile(parts, (0.05, 0.95))
    return Fit(made, float(below), float(above), len(table), float(table[:, 0].max()))


def _binned(busy: Floats, watts: Floats, threads: int) -> tuple[Floats, Floats, Floats]:
    """Return the medians of bins that have enough samples."""
    # A sample that lies on an edge belongs above it, whatever the division has rounded.
    number = np.searchsorted(_EDGES, busy / threads + 1e-9, side="right") - 1
    found = []
    for one in range(len(_EDGES)):
        inside = number == one
        if inside.sum() >= _LEAST_IN_BIN:
            found.append((np.median(busy[inside]), np.median(watts[inside]), float(inside.sum())))
    table: Floats = np.asarray(found, float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _monotone(watts: Floats, weights: Floats) -> Floats:
    """Pool neighbours that fall until none does."""
    # Value, weight and length of a block: the result must have as many points as there were.
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(watts.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.repeat([value for value, _, _ in blocks], [count for _, _, count in blocks])


def _idle_w(at: Floats, watts: Floats, counts: Floats, threads: int) -> float:
    """Return the watts without load by idle + slope · busy^bend, the bend that fits the lower half of the loads best.

    A node is hardly ever without any load, and a curve rises most steeply there: a straight line through the two
    lowest bins told 80 W of idle as 87 W (bend 0.6).
    """
    low = at <= max(at[min(3, len(at) - 1)], 0.5 * threads)
    best = (math.inf, float(watts[0]))
    for bend in _BENDS:
        raised = (at[low] / threads) ** bend
        mean_x, mean_w = np.average(raised, weights=counts[low]), np.average(watts[low], weights=counts[low])
        slope = np.sum(counts[low] * (raised - mean_x) * (watts[low] - mean_w)) / max(
            1e-12, np.sum(counts[low] * (raised - mean_x) ** 2)
        )
        idle_w = mean_w - slope * mean_x
        missed = float(np.sum(counts[low] * (idle_w + slope * raised - watts[low]) ** 2))
        best = min(best, (missed, float(idle_w)))
    return min(max(0.0, best[1]), float(watts[0]))


def _prolonged(at: Floats, watts: Floats, threads: int, idle_w: float) -> tuple[list[float], list[float]]:
    """The curve from idle to all threads; the slope at its end is that of the last quarter."""
    span = max(2, math.ceil(len(at) / 4) + 1)
    last = (watts[-1] - watts[-span]) / (at[-1] - at[-span])
    busy, curve = at.tolist(), watts.tolist()
    if busy[0] > 1e-9:
        busy, curve = [0.0, *busy], [idle_w, *curve]
    else:
        busy[0] = 0.0
    if busy[-1] < threads:
        busy, curve = [*busy, float(threads)], [*curve, curve[-1] + last * (threads - busy[-1])]
    return busy, curve
