"""Tells pods that wait why they do: a condition and an event, again only when the reason has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.decider_port import Decider
from wattflow.kube.prometheus_text import Metrics

# Most pods are placed within half a second and need no word. Twenty in a round: each is a write.
_AFTER_S, _AGAIN_S, _AT_ONCE = 0.5, 20.0, 20


@dataclass(slots=True)
class Teller:
    """Writes for one scheduler."""

    book: Book
    decider: Decider
    binder: Binder
    metrics: Metrics
    scheduler: str
    clock: Callable[[], float]
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Write into pods that have waited a while, a few at a time."""
        while True:
            await asyncio.sleep(_AFTER_S)
            if not may_write():
                continue
            now_s = self.clock()
            due = [
                uid
                for uid in self.book.waiting
                if now_s - self.book.since_s.get(uid, now_s) >= _AFTER_S
                and now_s - self._told.get(uid, ("", -1e9))[1] >= _AGAIN_S
            ]
            for uid in due[:_AT_ONCE]:
                await self.tell(uid, now_s)

    async def tell(self, uid: str, now_s: float) -> None:
        """Write the reason into one pod, if it is another than before."""
        pod = self.book.waiting.get(uid)
        if pod is None:
            return
        text = self.why(uid)
        before = self._told.get(uid, ("", 0.0))[0]
        # Also where it is the same, so that it is not due again at once.
        self._told[uid] = (text, now_s)
        if text == before:
            return
        self.metrics.attempts.add(result="unschedulable", profile=self.scheduler)
        await self.binder.unschedulable(pod, text)
        self.binder.event(pod, "Warning", "FailedScheduling", text)

    def why(self, uid: str) -> str:
        """Return what keeps a pod waiting."""
        return self.book.refused.get(uid) or self.decider.why(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that waits no more."""
        self._told.pop(uid, None)
