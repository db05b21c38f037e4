"""Room on nodes that is kept for pods until they are bound: others were evicted for them."""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.kube import accounting, objects
from wattflow.kube.filters import feasible, snapshot


@dataclass(frozen=True, slots=True)
class Nominated:
    """Room for one pod."""

    node: str
    priority: int
    amounts: accounting.Amounts


class Nominations(dict[str, Nominated]):
    """Kept room by the uid of the pod."""

    def keep_off(self, pod: objects.Pod, amounts: accounting.Amounts, view: snapshot.NodeView) -> bool:
        """Tell whether the pod would take room that is kept for one of higher priority."""
        wanted = dict(amounts)
        for uid, one in self.items():
            higher = one.node == view.node.metadata.name and one.priority > pod.spec.priority
            if higher and uid != pod.metadata.uid:
                for name, value in one.amounts.items():
                    wanted[name] = wanted.get(name, 0) + value
        return feasible.lacking(wanted, view) is not None
