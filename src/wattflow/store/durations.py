"""How long something took, again and again, in counts: a quantile costs the same after a minute and after a month."""

from __future__ import annotations

import math

LEAST_S = 1e-5
STEPS = 12
"""Buckets in an octave: 6 % wide each."""
BUCKETS = 24 * STEPS
"""From ten microseconds to three minutes; what is beyond is in the last one."""


class Durations:
    """Counts of durations.

    Attributes:
        count: How many there were.
        longest_s: The longest of them, exactly.
    """

    __slots__ = ("_buckets", "count", "longest_s")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._buckets = [0] * BUCKETS
        self.count, self.longest_s = 0, 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.longest_s = max(self.longest_s, seconds)
        bucket = math.ceil(STEPS * math.log2(seconds / LEAST_S)) if seconds > LEAST_S else 0
        self._buckets[min(bucket, BUCKETS - 1)] += 1

    def quantile(self, share: float) -> float | None:
        """A duration that this share of all did not exceed, up to 6 % too long and never too short."""
        if self.count == 0:
            return None
        wanted, seen = max(1, math.ceil(share * self.count)), 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= wanted and bucket < BUCKETS - 1:
                return min(self.longest_s, LEAST_S * 2 ** (bucket / STEPS))
        return self.longest_s
