"""How often one may ask: token buckets, one for each token, and for each address that shows none."""

from __future__ import annotations

import time
from collections.abc import Callable

PER_S = {"user": 1000.0, "viewer": 100.0, "agent": 20_000.0, "operator": 3000.0, "": 50.0}
"""Requests a second, by role; an address without a valid token is ``""``."""
BURST_S = 2.0
"""A bucket that was left alone holds so many seconds of it."""
MOST = 20_000
"""Buckets that are kept; beyond it all begin anew, which costs nobody more than a full bucket."""


class Rates:
    """All buckets.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def takes(self, who: str, role: str) -> bool:
        """Take one request of ``who`` out of its bucket; False where that is empty."""
        rate, now_s = PER_S[role], self._clock()
        level, at_s = self._buckets.get(who, (rate * BURST_S, now_s))
        level = min(rate * BURST_S, level + (now_s - at_s) * rate)
        if len(self._buckets) > MOST:
            self._buckets.clear()
        self._buckets[who] = (max(0.0, level - 1.0), now_s)
        return level >= 1.0
