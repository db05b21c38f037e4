"""Items that raised, set aside: no exception of one item ends the loop, turn or process that works it off."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from wattflow.runtime.texts import plain

log = logging.getLogger(__name__)
LATEST = 100
TOLD = 20
"""Of one kind so many are logged with their traceback; the counters go on."""


@dataclass(slots=True)
class Aside:
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
