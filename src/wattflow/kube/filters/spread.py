"""Topology spread constraints with ``DoNotSchedule``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import objects
from wattflow.kube.filters import selectors, snapshot

_MOST_KEPT = 64
"""Kinds of pods whose counts are kept: each is a row for every node."""


def hard(pod: objects.Pod) -> list[objects.SpreadConstraint]:
    """The constraints that forbid."""
    return [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]


def soft(pod: objects.Pod) -> list[objects.SpreadConstraint]:
    """The constraints that only prefer."""
    return [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "ScheduleAnyway"]


@dataclass(slots=True)
class Spread:
    """One constraint of an incoming pod with the matching pods per domain."""

    constraint: objects.SpreadConstraint
    selector: objects.LabelSelector | None
    per_domain: dict[str, int]
    itself: int
    fewest: int = 0
    """Pods of the domain that has the fewest: found once, as every node is asked about."""

    def count(self, per_domain: dict[str, int]) -> None:
        """Take over what was counted."""
        self.per_domain = per_domain
        # Too few domains: the global minimum counts as 0, so pods wait for further domains (KEP-3022).
        enough = len(per_domain) >= (self.constraint.min_domains or 1)
        self.fewest = min(per_domain.values(), default=2**31 - 1) if enough else 0

    def skew(self, domain: str) -> int:
        """Tell what the skew would be with the pod in this domain."""
        return self.per_domain.get(domain, 0) + self.itself - self.fewest


@dataclass(slots=True)
class Counted:
    """Counts of pods that are alike, on each node and in sum per domain, for each of their constraints.

    A node whose pods and facts are as they were is not counted again: a placement changes one node of thousands.
    """

    of_node: dict[str, tuple[int, objects.Node, list[tuple[str, int] | None]]] = field(default_factory=dict)
    sums: list[dict[str, tuple[int, int]]] = field(default_factory=list)
    """By domain: matching pods, and nodes that count; a domain without a node is none."""

    def bring_up(self, pod: objects.Pod, found: list[Spread], cluster: snapshot.Snapshot) -> None:
        """Count the nodes that have changed since the last time."""
        self.sums = self.sums or [{} for _ in found]
        for name, view in cluster.nodes.items():
            known = self.of_node.get(name)
            if known is None or known[0] != view.stamp or known[1] is not view.node:
                self._put(name, (view.stamp, view.node, _counts(pod, found, view)))
        if len(self.of_node) > len(cluster.nodes):
            for name in self.of_node.keys() - cluster.nodes.keys():
                self._put(name, None)

    def _put(self, name: str, new: tuple[int, objects.Node, list[tuple[str, int] | None]] | None) -> None:
        old = self.of_node.pop(name, None)
        for row, sign in ((old, -1), (new, 1)):
            for at, one in enumerate(row[2] if row is not None else ()):
                if one is None:
                    continue
                pods, nodes = self.sums[at].get(one[0], (0, 0))
                self.sums[at][one[0]] = pods + sign * one[1], nodes + sign
                if nodes + sign == 0:
                    del self.sums[at][one[0]]
        if new is not None:
            self.of_node[name] = new


def spreads(pod: objects.Pod, cluster: snapshot.Snapshot) -> list[Spread]:
    """Count the matching pods of every domain for each constraint of the pod."""
    found = []
    for one in hard(pod):
        selector = selector_of(one, pod)
        itself = int(selectors.matches(selector, pod.metadata.labels))
        found.append(Spread(one, selector, {}, itself))
    if not found:
        return found
    spec, kept = pod.spec, cluster.counted
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    key = msgspec.msgpack.encode((
        pod.metadata.namespace, [(one.constraint, one.selector) for one in found],
        spec.node_selector, affinity, spec.tolerations,
    ))  # fmt: skip
    counted = kept.pop(key, None) or Counted()
    kept[key] = counted  # behind all others: the one that was asked for longest ago goes
    if len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]
    counted.bring_up(pod, found, cluster)
    for spread, sums in zip(found, counted.sums, strict=True):
        spread.count({domain: pods for domain, (pods, _) in sums.items()})
    return found


def _counts(pod: objects.Pod, found: list[Spread], view: snapshot.NodeView) -> list[tuple[str, int] | None]:
    """Return domain and matching pods of a node for each constraint; None for those that it does not count for."""
    labels = view.labels
    # As kube-scheduler: a node that lacks one of the keys counts for none of the constraints.
    if not all(spread.constraint.topology_key in labels for spread in found):
        return [None] * len(found)
    return [
        (labels[spread.constraint.topology_key], matching(view, spread.selector, pod.metadata.namespace))
        if included(spread.constraint, pod, view.node)
        else None
        for spread in found
    ]


def selector_of(one: objects.SpreadConstraint, pod: objects.Pod) -> objects.LabelSelector | None:
    """The constraint's selector with the values of ``matchLabelKeys`` joined to it."""
    joined = {key: pod.metadata.labels[key] for key in one.match_label_keys if key in pod.metadata.labels}
    # `matchLabelKeys` needs a selector; the API refuses one without the other.
    if not joined or one.label_selector is None:
        return one.label_selector
    extra = [objects.Requirement(key=key, operator="In", values=[value]) for key, value in joined.items()]
    return objects.LabelSelector(
        match_labels=one.label_selector.match_labels,
        match_expressions=[*one.label_selector.match_expressions, *extra],
    )


def included(one: objects.SpreadConstraint, pod: objects.Pod, node: objects.Node) -> bool:
    """Tell whether the node's domain counts for this pod."""
    if (one.node_affinity_policy or "Honor") == "Honor" and not selectors.node_affinity(pod, node):
        return False
    honours_taints = (one.node_taints_policy or "Ignore") == "Honor"
    return not (honours_taints and selectors.untolerated(pod.spec.tolerations, node.spec.taints))


def matching(view: snapshot.NodeView, selector: objects.LabelSelector | None, namespace: str) -> int:
    """How many pods of a node count for a selector; an empty one counts none."""
    # An empty selector counts nobody here, while elsewhere it selects everybody.
    if selector is None or selectors.is_empty(selector):
        return 0
    return sum(
        pod.metadata.namespace == namespace
        # Pods that are on their way out leave their domain.
        and pod.metadata.deletion_timestamp is None
        and selectors.matches(selector, pod.metadata.labels)
        for pod in view.pods.values()
    )


def why_not(labels: Mapping[str, str], counted: list[Spread]) -> str | None:
    """The reason against a node with these labels, or None."""
    for spread in counted:
        domain = labels.get(spread.constraint.topology_key)
        if domain is None:
            return "no topology label"
        if spread.skew(domain) > spread.constraint.max_skew:
            return "topology spread"
    return None
