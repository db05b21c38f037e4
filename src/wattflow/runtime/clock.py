"""A clock that looks like the wall's and never goes back."""

from __future__ import annotations

import time


class Clock:
    """Wall time at the start, carried on by the monotonic clock: steps of the wall clock do not touch it.

    Args:
        at_least_s: The last time that was told before a restart.
    """

    def __init__(self, at_least_s: float = 0.0) -> None:
        # Never before the last time that was told: the engine's journal has steps at it, and its clock cannot go
        # back.
        self._offset_s = max(time.time(), at_least_s) - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset_s + time.monotonic()

    def of_monotonic(self, monotonic_s: float) -> float:
        """The same moment on this clock."""
        return self._offset_s + monotonic_s

    def sane(self, time_s: float, at_least_s: float) -> float:
        """Another machine's time, kept within what can be: not before its cause, not in the future."""
        # An agent's clock may be wrong by hours; an attempt that ends before it begins would spoil every mean.
        return max(at_least_s, min(time_s, self.now()))
