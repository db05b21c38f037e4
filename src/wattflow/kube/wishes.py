"""A pod's standing wishes in the engine's words: node selector, affinity, tolerations, preferences."""

from __future__ import annotations

from collections.abc import Iterable

from wattflow.kube import objects
from wattflow.kube.grouping import NONE, Rules
from wattflow.live import protocol

NAME = "metadata.name"
"""Label that every node has for the engine, so that fields are matched like labels."""
_OPERATORS = {"In": "in", "NotIn": "not-in", "Exists": "exists", "DoesNotExist": "absent", "Gt": "gt", "Lt": "lt"}
_CORDON = protocol.Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# In none of no values: never true.
_NEVER = (protocol.Match(NAME, "in", ()),)


def constraint(pod: objects.Pod, nodes: tuple[str, ...] | None, rules: Rules = NONE) -> protocol.Constraint:
    """Say where the pod may go, as far as nodes themselves and the engine's counters say.

    ``nodes`` narrows it to what the filters that count pods allow.
    """
    # None left is not "no limit", which an empty tuple means to the engine.
    if nodes is not None and not nodes:
        return protocol.Constraint(any_of=(_NEVER,))
    return protocol.Constraint(
        any_of=_any_of(pod),
        nodes=nodes or (),
        # An operator that the API does not know tolerates nothing.
        tolerates=tuple(_toleration(one) for one in pod.spec.tolerations if one.operator in ("", "Equal", "Exists")),
        apart=rules.apart,
        together=rules.together,
        prefer=tuple(_preferences(pod)),
    )


def _any_of(pod: objects.Pod) -> tuple[tuple[protocol.Match, ...], ...]:
    # Sorted: equal wishes must become one shape, whatever the order of their keys.
    always = tuple(protocol.Match(key, "in", (value,)) for key, value in sorted(pod.spec.node_selector.items()))
    if pod.spec.node_name:
        always += (protocol.Match(NAME, "in", (pod.spec.node_name,)),)
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    if required is None:
        return (always,) if always else ()
    terms = [term for term in required.node_selector_terms if term.match_expressions or term.match_fields]
    found = tuple(always + matches for matches in map(_matches, terms) if matches is not None)
    # Terms of which none can hold are not the same as no terms.
    return found or (_NEVER,)


def _matches(term: objects.NodeSelectorTerm) -> tuple[protocol.Match, ...] | None:
    """Translate a term into matches, or None where it can never hold."""
    found = []
    for one in (*term.match_expressions, *term.match_fields):
        if one.operator not in _OPERATORS:
            return None
        found.append(protocol.Match(one.key, _OPERATORS[one.operator], tuple(one.values)))
    return tuple(found)


def _toleration(one: objects.Toleration) -> protocol.Toleration:
    return protocol.Toleration(one.key, None if one.operator == "Exists" else one.value, one.effect)


def _preferences(pod: objects.Pod) -> Iterable[tuple[float, tuple[protocol.Match, ...]]]:
    affinity = pod.spec.affinity
    for one in affinity.node_affinity.preferred if affinity is not None and affinity.node_affinity is not None else ():
        matches = _matches(one.preference)
        # An empty preference asks nothing; kube-scheduler gives no points for it either.
        if matches:
            yield float(one.weight), matches


def labels(node: objects.Node) -> dict[str, str]:
    """Return a node's labels for the engine."""
    return {**node.metadata.labels, NAME: node.metadata.name}


def taints(node: objects.Node) -> tuple[protocol.Taint, ...]:
    """Return a node's taints for the engine; a cordon is one of them."""
    found = tuple(protocol.Taint(one.key, one.value, one.effect) for one in node.spec.taints)
    # The node controller writes the same taint a moment after a cordon.
    return (*found, _CORDON) if node.spec.unschedulable and _CORDON not in found else found
