"""Taints, tolerations and cordoned nodes."""

from __future__ import annotations

from collections.abc import Sequence

from wattflow.kube import objects

# A cordon is tolerated like the taint that the node controller makes of it.
_CORDON = objects.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: objects.Toleration, taint: objects.Taint) -> bool:
    """One toleration against one taint. Numeric operators are an alpha feature of the API and are not met here."""
    if toleration.effect and toleration.effect != taint.effect:
        # An empty effect or key matches any.
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def untolerated(tolerations: Sequence[objects.Toleration], taints: Sequence[objects.Taint]) -> objects.Taint | None:
    """The first taint that keeps the pod away, or None. ``PreferNoSchedule`` keeps nobody away."""
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def cordoned(pod: objects.Pod, node: objects.Node) -> bool:
    """Tell whether the node takes no new pods and this one does not tolerate that."""
    return node.spec.unschedulable and not any(tolerates(one, _CORDON) for one in pod.spec.tolerations)
