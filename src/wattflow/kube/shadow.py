"""Shadow mode: each pod's real node against the one that we would have chosen, and the watts between them.

Another scheduler may bind a pod before our next step, or in the very batch that tells us of it. What is told of such a
pod is kept back until we have decided about it too, so that every pod is compared.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from wattflow.kube import accounting, objects
from wattflow.kube.book import Book
from wattflow.kube.power import Watts
from wattflow.kube.reflect import DELETED

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Shadow:
    """Compare our choices with another scheduler's, and sum the difference.

    Attributes:
        pods: How many went to the ``same`` node, to an ``other`` one, to one whose watts or ours are ``unknown``, or
            were placed where we would have had them ``wait``.
        saved_w: Modelled watts that the others' nodes drew more than ours would have, over pods that went elsewhere.
    """

    book: Book
    watts: Watts
    clock: Callable[[], float] = time.monotonic
    pods: Counter[str] = field(default_factory=Counter)
    saved_w: float = 0.0
    _later: dict[str, objects.Pod] = field(default_factory=dict)
    _running: dict[str, tuple[float, float]] = field(default_factory=dict)
    _done_j: float = 0.0

    @property
    def saved_j(self) -> float:
        """Sum the modelled joules so far: each pod's watts for as long as it has run."""
        now_s = self.clock()
        return self._done_j + sum(watts * (now_s - since_s) for watts, since_s in self._running.values())

    def keeps(self, kind: str, pod: objects.Pod) -> bool:
        """Tell whether what is told of a pod waits until we have decided about it."""
        uid = pod.metadata.uid
        if kind == DELETED or pod.ended or not pod.spec.node_name:
            self._later.pop(uid, None)
            # Zeros for one that is not compared: nothing is added.
            watts, since_s = self._running.pop(uid, (0.0, 0.0))
            self._done_j += watts * (self.clock() - since_s)
            return False
        if uid in self.book.waiting:
            self._later[uid] = pod
            return True
        self._compare(pod)
        return False

    def settle(self) -> None:
        """Take over what was kept, after a step has been made."""
        for pod in self._later.values():
            self._compare(pod)
            self.book.on_pod("MODIFIED", pod)
        self._later.clear()

    def _compare(self, pod: objects.Pod) -> None:
        record, node = self.book.records.get(pod.metadata.uid), pod.spec.node_name
        if record is None:
            # We have looked at it and would have had it wait.
            if pod.metadata.uid in self.book.waiting:
                self.pods["wait"] += 1
            return
        # Compared before, or bound when we came.
        if not record.assumed:
            return
        if record.node == node:
            self.pods["same"] += 1
            return
        ours, theirs = (self.book.cluster.nodes.get(name) for name in (record.node, node))
        cpu = record.amounts.get(accounting.CPU, 0)
        # our node counts the pod already, theirs not yet
        mine = None if ours is None else self.watts.added_w(ours, -cpu)
        other = None if theirs is None else self.watts.added_w(theirs, cpu)
        if mine is None or other is None:
            self.pods["unknown"] += 1
            log.info("%s: ours %s, theirs %s, watts unknown", pod.key, record.node, node)
            return
        self.pods["other"] += 1
        # `mine` is negative: what our node would draw less without the pod.
        self.saved_w += other + mine
        self._running[pod.metadata.uid] = (other + mine, self.clock())
        log.info("%s: ours %s, theirs %s, %+.1f W", pod.key, record.node, node, other + mine)
