"""Hold a cap on the watts of the whole cluster while placements are taken."""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.kube import accounting
from wattflow.kube.book import Book
from wattflow.kube.decider_port import Choice
from wattflow.kube.power import Watts


@dataclass(slots=True)
class ClusterCap:
    """Refuses what would draw more than the cap; none where ``cap_w`` is None."""

    watts: Watts
    book: Book
    cap_w: float | None = None
    _drawn_w: float = 0.0

    def look(self, cap_w: float | None) -> None:
        """Take up the cap, which a new configuration may change, and sum what the cluster draws before a step."""
        self.cap_w = cap_w
        if cap_w is not None:
            self._drawn_w = self.watts.cluster_w(self.book.cluster)

    def against(self, choice: Choice) -> str | None:
        """Return why a placement must not be taken, or None; one that is taken counts for those after it."""
        view, pod = self.book.cluster.nodes.get(choice.node), self.book.waiting.get(choice.uid)
        if self.cap_w is None or view is None or pod is None:
            return None
        added = self.watts.added_w(view, accounting.pod_requests(pod).get(accounting.CPU, 0)) or 0.0
        if self._drawn_w + added > self.cap_w:
            return "the cluster's power cap"
        # what is refused after all is counted until the next step: never too little
        self._drawn_w += added
        return None
