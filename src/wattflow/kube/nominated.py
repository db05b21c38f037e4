"""Room on nodes that is kept for pods until they are bound: others were evicted for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wattflow.kube import accounting, objects
from wattflow.kube.filters import feasible, snapshot


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
