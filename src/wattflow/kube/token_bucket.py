"""A token bucket: how many requests a second we allow ourselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """At most ``burst`` at once and ``per_s`` a second on average; infinite means no limit.

    Waiters are served in order: each takes its token at once, on credit, and waits until it is due.
    """

    per_s: float
    burst: float
    clock: Callable[[], float]
    tokens: float = field(init=False)
    updated_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst
        self.updated_s = self.clock()

    def delay_s(self) -> float:
        """Take one token; seconds until it may be used."""
        if self.per_s == float("inf"):
            return 0.0
        now = self.clock()
        # Never more than a burst is saved up, however long nobody asked.
        self.tokens = min(self.burst, self.tokens + (now - self.updated_s) * self.per_s)
        self.updated_s = now
        # Below zero is a debt: whoever comes next waits longer, which keeps their order.
        self.tokens -= 1
        return max(0.0, -self.tokens / self.per_s)

    async def take(self) -> None:
        """Wait for a token."""
        delay = self.delay_s()
        if delay > 0:
            await asyncio.sleep(delay)
