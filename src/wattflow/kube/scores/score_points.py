"""Points from 0 to 100 that kube-scheduler's default plugins give the nodes that could take a pod, and their weights.

Each function gets the feasible nodes, since points are relative to those, and returns a whole number for each. The
formulas are those of version 1.36 (pkg/scheduler/framework/plugins); ImageLocality is not there: nodes' lists of images
are not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wattflow.kube import accounting, objects
from wattflow.kube.filters import interpod, selectors, snapshot, spread, taints

HIGHEST = 100
TAINT, NODE_AFFINITY, SPREAD, INTERPOD, ROOM, BALANCE = 3, 2, 2, 2, 1, 1
"""Weights of the default profile."""
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SYSTEM_DEFAULT = ((HOSTNAME, 3), (ZONE, 5))
"""Keys and greatest skews by which replicas are spread that name no constraint."""
_NO_CPU_M, _NO_MEMORY = 100, 200 << 20
"""Request assumed of a container without one where free room is scored."""
Views = Sequence[snapshot.NodeView]
Counter = Callable[[snapshot.NodeView], int]
Matching = Callable[[objects.LabelSelector | None, str], Counter]
"""Returns what counts the pods of a node that a selector finds in a namespace."""
Test = Callable[[snapshot.NodeView], bool]


def of_taints(pod: objects.Pod, views: Views) -> list[int]:
    """Fewer points the more ``PreferNoSchedule`` taints are not tolerated: 100 − 100 · count / most."""
    counts = [soft_taints(pod, view.node.spec.taints) for view in views]
    most = max(counts)
    # Whole numbers, divided as Go divides them: rounding must be kube-scheduler's.
    return [HIGHEST - (HIGHEST * count // most if most else 0) for count in counts]


def soft_taints(pod: objects.Pod, found: Sequence[objects.Taint]) -> int:
    """Count the ``PreferNoSchedule`` taints that a pod does not tolerate."""
    soft = [one for one in found if one.effect == "PreferNoSchedule"]
    return sum(not any(taints.tolerates(one, taint) for one in pod.spec.tolerations) for taint in soft)


def of_node_affinity(pod: objects.Pod, views: Views) -> list[int]:
    """Sum of the weights of the preferred terms that a node meets: 100 · sum / most."""
    terms = preferred_nodes(pod)
    sums = [sum(one.weight for one in terms if selectors.node_term(one.preference, view.node)) for view in views]
    most = max(sums)
    return [HIGHEST * value // most if most else 0 for value in sums]


def preferred_nodes(pod: objects.Pod) -> list[objects.PreferredNode]:
    """Return the preferred terms that count: those with a weight and something asked."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    return [
        one for one in affinity.node_affinity.preferred
        if one.weight and (one.preference.match_expressions or one.preference.match_fields)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spreading:
    """Soft constraints of a pod.

    Attributes:
        whole: Nodes must have the labels of all constraints, or get no points; not so for the system's default.
        included: Tells which nodes' domains count for a constraint.
    """

    constraints: Sequence[objects.SpreadConstraint]
    whole: bool
    included: Callable[[objects.SpreadConstraint], Test]

    @classmethod
    def of(
        cls,
        pod: objects.Pod,
        replicas: objects.LabelSelector | None,
        included: Callable[[objects.SpreadConstraint], Test],
    ) -> Spreading | None:
        """Return the pod's own, or those of replicas that name none; None where there are none."""
        if pod.spec.topology_spread_constraints:
            own = spread.soft(pod)
            return cls(own, True, included) if own else None
        if replicas is None:
            return None
        made = [
            objects.SpreadConstraint(
                max_skew=skew, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=replicas
            )
            for key, skew in SYSTEM_DEFAULT
        ]
        return cls(made, False, included)


def of_spread(pod: objects.Pod, views: Views, everywhere: Views, spreading: Spreading, matching: Matching) -> list[int]:
    """Fewer points the more pods alike are in a node's domains: 100 · (most + least − s) / most.

    s sums over the constraints: pods in the domain · ln(domains + 2) + greatest skew − 1, rounded.
    """
    rules = spreading.constraints
    # Ignored nodes get 0 points, but are not among those that set most and least.
    ignored = [spreading.whole and not all(rule.topology_key in view.labels for rule in rules) for view in views]
    kept = [view for view, out in zip(views, ignored, strict=True) if not out]
    if spreading.whole:
        everywhere = [view for view in everywhere if all(rule.topology_key in view.labels for rule in rules)]
    sums = [0.0] * len(views)
    for rule in rules:
        key, count = rule.topology_key, matching(spread.selector_of(rule, pod), pod.metadata.namespace)
        domains = {} if key == HOSTNAME else _per_domain(rule, kept, everywhere, count, spreading.included(rule))
        # Two more than the domains, so that the logarithm is positive for one domain as well.
        weight = math.log((len(kept) if key == HOSTNAME else len(domains)) + 2)
        for i, view in enumerate(views):
            domain = view.labels.get(key)
            if domain is not None:
                alike = count(view) if key == HOSTNAME else domains.get(domain, 0)
                sums[i] += alike * weight + rule.max_skew - 1
    return _fewest_best([_rounded(value) for value in sums], ignored)


def _per_domain(
    rule: objects.SpreadConstraint, kept: Views, everywhere: Views, count: Counter, included: Test
) -> dict[str, int]:
    """Pods alike in each domain that a feasible node is in; nodes without the label are a domain of their own."""
    counts = {view.labels.get(rule.topology_key, ""): 0 for view in kept}
    for view in everywhere:
        domain = view.labels.get(rule.topology_key, "")
        if domain in counts and included(view):
            counts[domain] += count(view)
    return counts


def _rounded(value: float) -> int:
    """Halves go up, which ``round`` would do every other time."""
    # Go's math.Round, for the positive values that come here.
    return math.floor(value + 0.5)


def _fewest_best(sums: Sequence[int], ignored: Sequence[bool]) -> list[int]:
    kept = [value for value, out in zip(sums, ignored, strict=True) if not out]
    most, least = max(kept, default=0), min(kept, default=0)
    return [
        # No pod alike anywhere: all nodes are equally good.
        0 if out else HIGHEST if most == 0 else HIGHEST * (most + least - value) // most
        for value, out in zip(sums, ignored, strict=True)
    ]


Pairs = Mapping[interpod.Pair, int]


def of_neighbours(views: Views, weights: Pairs) -> list[int]:
    """Points by the summed weights of a node's domains (`neighbours`): 100 · (s − least) / (most − least)."""
    keys = {key for key, _ in weights}
    sums = [sum(weights.get((key, view.labels[key]), 0) for key in keys if key in view.labels) for view in views]
    least, most = min(sums), max(sums)
    # Towards zero, as a conversion to int64 in Go.
    return [int(HIGHEST * ((value - least) / (most - least))) if most > least else 0 for value in sums]


def of_room(amounts: accounting.Amounts, pod: objects.Pod, views: Views) -> list[int]:
    """Mean of the free parts of processor and memory with the pod there (``LeastAllocated``)."""
    wanted = _at_least_usual(amounts, pod)
    found = []
    for view in views:
        parts = []
        for name in (accounting.CPU, accounting.MEMORY):
            all_of = view.allocatable.get(name, 0)
            if all_of:
                # With something assumed for containers that request nothing: else empty requests would look free.
                used = wanted[name] + sum(_at_least_usual(view.taken[uid], one)[name] for uid, one in view.pods.items())
                parts.append((all_of - used) * HIGHEST // all_of if used <= all_of else 0)
        found.append(sum(parts) // len(parts) if parts else 0)
    return found


def _at_least_usual(amounts: accounting.Amounts, pod: objects.Pod) -> accounting.Amounts:
    """A pod's processor and memory, with something for each container that requests none."""
    found = {name: amounts.get(name, 0) for name in (accounting.CPU, accounting.MEMORY)}
    if pod.spec.resources is None:
        for one in pod.spec.containers:
            asked = one.resources.requests
            found[accounting.CPU] += 0 if accounting.CPU in asked else _NO_CPU_M
            found[accounting.MEMORY] += 0 if accounting.MEMORY in asked else _NO_MEMORY
    return found


def of_balance(amounts: accounting.Amounts, views: Views) -> list[int]:
    """How much the pod evens out the used parts of processor and memory: 75 where it changes nothing."""
    if not amounts.get(accounting.CPU) and not amounts.get(accounting.MEMORY):
        # A pod that requests neither changes no balance, and kube-scheduler skips the plugin.
        return [0] * len(views)
    half, found = HIGHEST // 2, []
    for view in views:
        after = _evenness(view, amounts)
        found.append(half + int((half + after - _evenness(view, {})) / 2))
    return found


def _evenness(view: snapshot.NodeView, more: accounting.Amounts) -> int:
    parts = [
        # More than all is no more than full.
        min(1.0, (view.requested.get(name, 0) + more.get(name, 0)) / view.allocatable[name])
        for name in (accounting.CPU, accounting.MEMORY)
        if view.allocatable.get(name, 0)
    ]
    # The standard deviation of two numbers is half of their distance.
    apart = abs(parts[0] - parts[1]) / 2 if len(parts) == 2 else 0.0
    return int((1 - apart) * HIGHEST)
