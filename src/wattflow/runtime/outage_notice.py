"""Telling that something is away, without filling a log with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_S = 60.0


class Away:
    """Tell of something that is tried again until it is back: at first, then once a minute, and when it is back.

    Args:
        what: Its name in the log.
        now: A clock that never goes back.
    """

    def __init__(self, log: logging.Logger, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._what, self._now = log, what, now
        self._since_s: float | None = None
        self._told_s = 0.0

    def failed(self, error: Exception) -> None:
        """It could not be reached."""
        now_s = self._now()
        if self._since_s is None:
            self._since_s = now_s
        elif now_s - self._told_s < EVERY_S:
            return
        self._told_s = now_s
        self._log.warning("%s; trying again", error)

    def answered(self) -> None:
        """It was reached."""
        if self._since_s is not None:
            self._log.warning("%s is back after %.0f s", self._what, self._now() - self._since_s)
            self._since_s = None
