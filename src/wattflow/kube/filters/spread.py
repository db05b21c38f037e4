"""Topology spread constraints with ``DoNotSchedule``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattflow.kube import objects
from wattflow.kube.filters import selectors, snapshot


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

    def skew(self, domain: str) -> int:
        """Tell what the skew would be with the pod in this domain."""
        fewest = min(self.per_domain.values(), default=2**31 - 1)
        if len(self.per_domain) < (self.constraint.min_domains or 1):
            # Too few domains: the global minimum counts as 0, so pods wait for further domains (KEP-3022).
            fewest = 0
        return self.per_domain.get(domain, 0) + self.itself - fewest


def spreads(pod: objects.Pod, cluster: snapshot.Snapshot) -> list[Spread]:
    """Count the matching pods of every domain for each constraint of the pod."""
    constraints = hard(pod)
    found = []
    for one in constraints:
        selector = selector_of(one, pod)
        itself = int(selectors.matches(selector, pod.metadata.labels))
        found.append(Spread(one, selector, {}, itself))
    keys = [one.topology_key for one in constraints]
    for view in cluster.nodes.values():
        labels = view.labels
        # As kube-scheduler: a node that lacks one of the keys counts for none of the constraints.
        if not all(key in labels for key in keys):
            continue
        for spread in found:
            if included(spread.constraint, pod, view.node):
                domain = labels[spread.constraint.topology_key]
                count = matching(view, spread.selector, pod.metadata.namespace)
                spread.per_domain[domain] = spread.per_domain.get(domain, 0) + count
    return found


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
