"""Look once more at a placement before it is assumed or sent: the filters decide, whatever the engine has counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from wattflow.kube import accounting, objects
from wattflow.kube.filters import feasible, interpod, snapshot
from wattflow.kube.nominated import Nominations

KEPT = "room that is kept for a pod of higher priority"


@dataclass(slots=True)
class LastLook:
    """Reasons against placements, by what is known of a cluster now.

    Attributes:
        nominated: Room that is kept for others.
        shy: Placed pods with anti-affinity, by uid: they may keep others from their nodes.
    """

    cluster: snapshot.Snapshot
    nominated: Nominations
    shy: dict[str, objects.Pod] = field(default_factory=dict)

    def against(self, pod: objects.Pod, amounts: accounting.Amounts, view: snapshot.NodeView) -> str | None:
        """Return a reason: amounts always, standing reasons, and counted ones where there can be any.

        By the filters, also where the engine has counted itself: its counters save work, they are not trusted alone.
        """
        short = feasible.lacking(amounts, view)
        if short is not None:
            return f"too little {short}"
        if self.nominated and self.nominated.keep_off(pod, amounts, view):
            return KEPT
        reason = feasible.standing(pod, view.node) or feasible.unsupported(pod, self.cluster)
        if reason is None and self._is_counted(pod):
            reason = feasible.counted_against(feasible.Question.of(pod, self.cluster), view)
        return reason

    def _is_counted(self, pod: objects.Pod) -> bool:
        """Tell whether other pods may keep it from a node, whoever counts them."""
        if feasible.is_counted(pod):
            return True
        names = self.cluster.namespaces
        return any(
            interpod.selects(term, other, pod, names)
            for other in self.shy.values()
            for term in interpod.anti_affinity_terms(other)
        )
