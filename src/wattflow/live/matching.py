"""What a node itself says of a constraint: names, labels and taints."""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.live.protocol import BadEvent, Constraint, Match, Taint, Toleration
from wattflow.model.cluster import Node

HARD = ("NoSchedule", "NoExecute")
"""Effects of taints that keep tasks away; another effect only makes a node less liked."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What Python keeps of a node: description, labels, taints, countable resources. Forks share it: it is replaced."""

    node: Node
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    counts: dict[str, int]


def holds(match: Match, labels: dict[str, str]) -> bool:
    """Tell whether a node's labels meet one condition."""
    value = labels.get(match.key)
    if match.op == "exists":
        return value is not None
    if match.op == "absent":
        return value is None
    if match.op == "in":
        return value in match.values
    if match.op == "not-in":
        return value not in match.values
    if match.op in ("gt", "lt"):
        return value is not None and _compares(match, value)
    raise BadEvent(f"match on {match.key!r}: {match.op!r} is none of in, not-in, exists, absent, gt, lt")


def _compares(match: Match, value: str) -> bool:
    try:
        have, than = int(value), int(match.values[0])
    except (ValueError, IndexError):
        return False
    return have > than if match.op == "gt" else have < than


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Tell whether a taint does not matter to someone with these tolerations."""
    return any(
        (not one.key or one.key == taint.key)
        and (one.value is None or one.value == taint.value)
        and (not one.effect or one.effect == taint.effect)
        for one in tolerations
    )


def allows(constraint: Constraint, facts: NodeFacts) -> bool:
    """Tell whether a node may be used, as far as the node itself says."""
    if constraint.nodes and facts.node.name not in constraint.nodes:
        return False
    if constraint.any_of and not any(all(holds(m, facts.labels) for m in term) for term in constraint.any_of):
        return False
    return all(taint.effect not in HARD or tolerates(constraint.tolerates, taint) for taint in facts.taints)
