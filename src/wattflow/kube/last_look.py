"""Look once more at a placement before it is assumed or sent: the filters decide, whatever the engine has counted."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from wattflow.kube import accounting, objects
from wattflow.kube.filters import feasible, interpod, snapshot

log = logging.getLogger(__name__)


class Refuses(Protocol):
    """Whoever keeps waiting pods."""

    def refuse(self, uid: str, reason: str) -> None:
        """Place a waiting pod nowhere until something of it changes."""


R = TypeVar("R", bound=Refuses)
Tell = Callable[..., None]


def failed(pod: objects.Pod, error: Exception) -> str:
    """Log that a filter failed over a pod; returns what is told of it."""
    log.error("pod %s: a filter failed", pod.key, exc_info=error)
    return f"this scheduler failed on the pod ({type(error).__name__}: {str(error)[:200]}); it goes on without it"


def costs_one_pod(tell: Callable[[R, objects.Pod, bool], None]) -> Tell:
    """Have a fault of ours over one pod cost that pod alone: it is refused with the reason, all others go on."""

    @functools.wraps(tell)
    def careful(keeper: R, pod: objects.Pod, turn: bool = False) -> None:
        try:
            tell(keeper, pod, turn)
        except Exception as error:  # whatever it is: one pod must not end the process
            keeper.refuse(pod.metadata.uid, failed(pod, error))

    return careful


@dataclass(frozen=True, slots=True)
class Nominated:
    """Room for one pod."""

    node: str
    pod: objects.Pod
    amounts: accounting.Amounts


class Nominations(dict[str, Nominated]):
    """Kept room by the uid of the pod."""

    def keep_off(self, pod: objects.Pod, amounts: accounting.Amounts, view: snapshot.NodeView) -> bool:
        """Tell whether the pod would take room that is kept for another."""
        wanted = dict(amounts)
        for one in self._before(pod):
            if one.node == view.node.metadata.name:
                for name, value in one.amounts.items():
                    wanted[name] = wanted.get(name, 0) + value
        return feasible.lacking(wanted, view) is not None

    def counted(self, pod: objects.Pod, cluster: snapshot.Snapshot) -> snapshot.Snapshot:
        """Return the cluster as the pod has to see it: those that room is kept for count on their nodes."""
        nodes = dict(cluster.nodes)
        for one in self._before(pod):
            if one.node in nodes:
                if nodes[one.node] is cluster.nodes[one.node]:
                    nodes[one.node] = nodes[one.node].copy()
                nodes[one.node].add(one.pod, one.amounts)
        return cluster.among(nodes)

    def _before(self, pod: objects.Pod) -> Iterator[Nominated]:
        """Those whose room the pod must leave alone.

        Equal priority counts, as in kube-scheduler: else a newcomer takes the room of one that waits for its victims to
        end, which then has more evicted, and so on.
        """
        for uid, one in self.items():
            if uid != pod.metadata.uid and one.pod.spec.priority >= pod.spec.priority:
                yield one


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
        try:
            return self._against(pod, amounts, view)
        except Exception as error:  # as in `costs_one_pod`: the placement is undone, the pod waits
            return failed(pod, error)

    def _against(self, pod: objects.Pod, amounts: accounting.Amounts, view: snapshot.NodeView) -> str | None:
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
