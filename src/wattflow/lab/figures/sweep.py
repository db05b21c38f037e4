"""Sums over time of intervals with weights, by group: how many cores, shares or watts are busy when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """A piecewise-constant value per group: from ``time_s[i]`` on, group ``group[i]`` has ``value[i]``.

    Rows are ordered by group, then time; one row per distinct time.
    """

    group: Ints
    time_s: Floats
    value: Floats

    def held_s(self, end_s: float) -> Floats:
        """Return how long each row's value holds; the last one of a group until ``end_s``."""
        if not len(self.time_s):
            return np.zeros(0)
        following = np.append(self.time_s[1:], end_s)
        last = np.append(self.group[1:] != self.group[:-1], True)
        # A row may lie behind the end that is asked for: it holds for no time, never for less.
        following[last] = np.maximum(end_s, self.time_s[last])
        return following - self.time_s


def sweep(group: NDArray[np.integer], start_s: Floats, end_s: Floats, weight: Floats) -> Steps:
    """Sum the weights of the intervals [start, end) that cover each moment, for each group. O(n log n)."""
    # Intervals without length would leave a step up and down at one moment.
    used = end_s > start_s
    group, start_s, end_s, weight = group[used], start_s[used], end_s[used], weight[used]
    return accumulate(
        np.concatenate([group, group]), np.concatenate([start_s, end_s]), np.concatenate([weight, -weight])
    )


def accumulate(group: NDArray[np.integer], time_s: Floats, change: Floats) -> Steps:
    """Running sum over time of the changes of each group; values within 1e-9 of 0 are 0."""
    order = np.lexsort((time_s, group))
    groups, times = group[order].astype(np.int64), time_s[order]
    if not len(groups):
        return Steps(groups, times, np.zeros(0))
    total = np.cumsum(change[order])
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    # One running sum over all groups, less what stood before each: no loop over groups.
    before = np.where(first > 0, total[first - 1], 0.0)
    total -= np.repeat(before, np.diff(np.append(first, len(groups))))
    last = np.append((groups[1:] != groups[:-1]) | (times[1:] != times[:-1]), True)
    value = total[last]
    # Floats that are added and taken away again leave a trifle.
    value[np.abs(value) < 1e-9] = 0.0
    return Steps(groups[last], times[last], value)
