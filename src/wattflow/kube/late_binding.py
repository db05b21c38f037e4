"""Late binding: pods chosen for nodes that still wake are decided once more, together, when one of these is on.

A wake takes minutes, and a choice that was right when it was ordered no longer is when the node is on: room has come
free on nodes that were on all the time, others wake too, and pods that came since would fill them better together. In a
burst, which wakes many nodes for pods that come one by one, it leaves nodes on for one pod each. Only pods of known
runtime take part, and only while they have waited for little longer than a wake: then they go where they were meant to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from wattflow.kube import gangs, objects, sleep_facts
from wattflow.kube.book import Book, Record
from wattflow.model.cluster import Sleep

Waiting = tuple[str, str, float]
"""Uid, node, and when it was decided."""
_TIMES = 1.5
"""Of the time that the node is expected to take: for so long a pod may be moved to another node."""
_MOST = 100
"""Pods of other nodes that are decided again at a time: in a burst that wakes hundreds of nodes bindings come first."""


@dataclass(slots=True)
class LateBinding:
    """Pods that wait for nodes to wake.

    Attributes:
        runtime_s: Tells how long a pod runs; None where unknown.
        usual: How nodes sleep of which nothing was learned.
    """

    book: Book
    runtime_s: Callable[[objects.Pod], float | None]
    usual: Sleep
    _nodes: dict[str, list[Waiting]] = field(default_factory=dict)

    def wait(self, waiting: Waiting) -> None:
        """Have a pod wait for its node."""
        self._nodes.setdefault(waiting[1], []).append(waiting)

    def take(self, node: str) -> list[tuple[Waiting, Record]]:
        """Take what waits for a node and is still meant for it."""
        found = ((one, self._meant(one)) for one in self._nodes.pop(node, ()))
        return [(one, record) for one, record in found if record is not None]

    def decide_again(self, node: str, now_s: float) -> None:
        """Put back what waits for a node that is on now, and for others: the next step chooses for all of them."""
        others = (one for name, some in self._nodes.items() if name != node for one in some)
        looked = [*self._nodes.get(node, ()), *itertools.islice(others, _MOST)]
        again = {one for one in looked if self._moves(one[0], one[1], now_s)}
        for name in {meant for _, meant, _ in again}:
            self._nodes[name] = [one for one in self._nodes[name] if one not in again]
        for uid in sorted(uid for uid, _, _ in again):
            self.book.forget(uid, now_s)
            self.book.decider.refused(uid, 0.0)

    def _meant(self, waiting: Waiting) -> Record | None:
        record = self.book.records.get(waiting[0])
        return record if record is not None and record.assumed and record.node == waiting[1] else None

    def _moves(self, uid: str, node: str, now_s: float) -> bool:
        record, view = self._meant((uid, node, now_s)), self.book.cluster.nodes.get(node)
        if record is None or view is None or gangs.gang_of(record.pod) is not None:
            return False
        longest_s = _TIMES * sleep_facts.of(view.node, self.usual).wake_s
        return now_s - self.book.since_s.get(uid, now_s) <= longest_s and self.runtime_s(record.pod) is not None
