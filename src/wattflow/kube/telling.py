"""Tells pods about themselves: those that wait why they do, again only when the reason has changed; the others by what
a binding writes into them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import accounting, gangs, gpus
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book, Record
from wattflow.kube.decider_port import Decider
from wattflow.kube.power import Watts
from wattflow.kube.prometheus_text import Metrics
from wattflow.kube.tenant import PREFIX
from wattflow.live.protocol import Why

DECISION = f"{PREFIX}decision"

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


def placement_note(book: Book, watts: Watts, record: Record, policy: str, more: dict[str, object]) -> dict[str, str]:
    """Return what the pod carries about its own placement; the binding writes it at no extra cost."""
    view = book.cluster.nodes.get(record.node)
    note: dict[str, object] = {"policy": policy, "node": record.node}
    if view is not None and (total := watts.node_w(view)) is not None:
        before = watts.node_w(view, -record.amounts.get(accounting.CPU, 0)) or 0.0
        note |= {"node_w": round(total, 2), "added_w": round(total - before, 2)}
    known = record.pod.metadata.annotations
    found = {key: known[key] for key in (gpus.INDEX, gangs.STARTED) if key in known}
    return {DECISION: msgspec.json.encode(note | more).decode()} | found


_LACK = {
    "cores": "lack cores",
    "memory": "lack memory",
    "kind of node": "are of another kind",
    "devices": "lack devices",
}
_PLAIN = ("asleep", "down", "draining")


def waiting(why: Why) -> str:
    """Write one line as kube-scheduler does: how many nodes can take the pod, and what is against the others."""
    if not why.reasons:
        return why.state
    fitting = why.nodes - sum(why.reasons.values())
    # Most frequent first, then by name: equal states must give equal texts, or each would be a new
    # event.
    against = sorted(why.reasons.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{count} {_words(reason)}" for reason, count in against)
    return f"{fitting}/{why.nodes} nodes are available: {said}"


def _words(reason: str) -> str:
    if reason in _LACK:
        return _LACK[reason]
    return f"are {reason}" if reason in _PLAIN else f"({reason})"


def asked(amounts: Mapping[str, int]) -> str:
    """Spell amounts for a person: cores, bytes, pieces."""
    parts = []
    for name, value in amounts.items():
        if name == accounting.CPU:
            parts.append(f"{value / 1000:g} cores")
        elif name in (accounting.MEMORY, accounting.EPHEMERAL):
            parts.append(f"{value / 2**20:,.4g} MiB of {name}")
        # Every pod is one pod.
        elif name != accounting.PODS:
            parts.append(f"{value} {name}")
    return ", ".join(parts) or "nothing"
