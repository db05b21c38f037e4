"""Failures that are told and survived: what raised is set aside, what is away is told of once a minute."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from wattflow.runtime.logs import plain

log = logging.getLogger(__name__)
LATEST = 100
TOLD = 20
"""Of one kind so many are logged with their traceback; the counters go on."""


@dataclass(slots=True)
class SetAside:
    """Keep what was set aside: how many of each kind, and the latest with their reasons.

    Attributes:
        counts: How many, by kind of item; for metrics.
        latest: Kind, item and reason of the last ones; for people.
    """

    counts: Counter[str] = field(default_factory=Counter)
    latest: deque[tuple[str, str, str]] = field(default_factory=lambda: deque(maxlen=LATEST))

    def put(self, kind: str, item: object, error: BaseException) -> str:
        """Set an item aside; returns the reason in words."""
        reason = plain(f"{type(error).__name__}: {error}", 500)
        self.counts[kind] += 1
        self.latest.append((kind, str(item), reason))
        # A poisoned queue would fill the disk with tracebacks; the counters go on.
        told = error if self.counts[kind] <= TOLD else None
        log.error("%s %s is set aside: %s", kind, item, reason, exc_info=told)
        return reason

    @contextlib.contextmanager
    def guard(self, kind: str, item: object) -> Iterator[None]:
        """Work one item off; where that raises, the item is set aside and the caller goes on with the next."""
        try:
            yield
        except Exception as error:
            self.put(kind, item, error)


EVERY_S = 60.0


class Background(set[asyncio.Task[None]]):
    """Work under way that nobody awaits. The loop keeps only weak references: what nobody holds may be collected."""

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done while the caller goes on."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)


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
