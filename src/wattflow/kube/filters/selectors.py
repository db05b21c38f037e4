"""Label selectors and node selector terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from wattflow.kube import objects

# Within 64 bits, as the API parses them; a longer text is no number.
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: objects.LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the labels meet the selector. None selects nothing, an empty selector everything."""
    # A missing selector and an empty one are opposites in the API.
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(requirement(one, labels) for one in selector.match_expressions)


def is_empty(selector: objects.LabelSelector) -> bool:
    """Tell whether it asks nothing."""
    return not selector.match_labels and not selector.match_expressions


def requirement(one: objects.Requirement, labels: Mapping[str, str]) -> bool:
    """One expression over labels; an operator that the API does not know is never met."""
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value is None or value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(one.operator, value, one.values)
    return False


def _compares(operator: str, value: str, bounds: list[str]) -> bool:
    # The API allows one value for Gt and Lt.
    if len(bounds) != 1 or not _WHOLE.fullmatch(value) or not _WHOLE.fullmatch(bounds[0]):
        return False
    return int(value) > int(bounds[0]) if operator == "Gt" else int(value) < int(bounds[0])


def node_terms(selector: objects.NodeSelector | None, node: objects.Node) -> bool:
    """Tell whether any term selects the node; None asks nothing, a selector without terms selects nothing."""
    if selector is None:
        return True
    # Terms are alternatives, expressions within one must all hold.
    return any(node_term(term, node) for term in selector.node_selector_terms)


def node_term(term: objects.NodeSelectorTerm, node: objects.Node) -> bool:
    """Tell whether one term selects the node; one that asks nothing selects nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    return all(requirement(one, labels) for one in term.match_expressions) and _fields(term.match_fields, node)


def _fields(fields: Iterable[objects.Requirement], node: objects.Node) -> bool:
    # `metadata.name` is the only field that the API allows here.
    known = {"metadata.name": node.metadata.name}
    for one in fields:
        if one.operator not in ("In", "NotIn") or len(one.values) != 1:
            return False
        if (known.get(one.key, "") == one.values[0]) != (one.operator == "In"):
            return False
    return True


def node_affinity(pod: objects.Pod, node: objects.Node) -> bool:
    """Node selector and required node affinity of a pod."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return True
    return node_terms(affinity.node_affinity.required, node)


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
