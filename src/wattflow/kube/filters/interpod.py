"""Required affinity and anti-affinity between pods.

Both directions count: the pod's own terms against those that run, and the anti-affinity terms of those that run
against the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wattflow.kube import objects
from wattflow.kube.filters import selectors, snapshot

Pair = tuple[str, str]
"""A topology key and its value."""


def affinity_terms(pod: objects.Pod) -> list[objects.PodAffinityTerm]:
    """Required affinity terms."""
    affinity = pod.spec.affinity
    return affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else []


def anti_affinity_terms(pod: objects.Pod) -> list[objects.PodAffinityTerm]:
    """Required anti-affinity terms."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return []
    return affinity.pod_anti_affinity.required


def preferred_terms(pod: objects.Pod) -> list[tuple[int, objects.PodAffinityTerm]]:
    """Preferred terms with their weights; those of anti-affinity have negative ones."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    wanted = affinity.pod_affinity.preferred if affinity.pod_affinity is not None else []
    unwanted = affinity.pod_anti_affinity.preferred if affinity.pod_anti_affinity is not None else []
    return [(one.weight, one.pod_affinity_term) for one in wanted] + [
        (-one.weight, one.pod_affinity_term) for one in unwanted
    ]


def selects(
    term: objects.PodAffinityTerm,
    owner: objects.Pod,
    other: objects.Pod,
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    """Tell whether a term of ``owner`` speaks of ``other``."""
    if not _in_namespaces(term, owner, other.metadata.namespace, namespaces):
        return False
    return selectors.matches(term.label_selector, other.metadata.labels)


def selects_as_newcomer(
    term: objects.PodAffinityTerm,
    owner: objects.Pod,
    other: objects.Pod,
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    """Tell whether a term of a pod that is being placed speaks of ``other``.

    kube-scheduler 1.36 asks the namespace selector of such a term about empty labels too, so one that only excludes
    (``DoesNotExist``, ``NotIn``) selects every namespace; pods of running owners are asked about the real labels. We
    do the same, or the two schedulers would contradict each other on one cluster.
    """
    if term.namespace_selector is not None and selectors.matches(term.namespace_selector, {}):
        return selectors.matches(term.label_selector, other.metadata.labels)
    return selects(term, owner, other, namespaces)


def _in_namespaces(
    term: objects.PodAffinityTerm, owner: objects.Pod, namespace: str, known: Mapping[str, Mapping[str, str]]
) -> bool:
    if term.namespace_selector is None:
        # Without a selector and without names a term means its owner's own namespace.
        return namespace in (term.namespaces or [owner.metadata.namespace])
    return namespace in term.namespaces or selectors.matches(term.namespace_selector, known.get(namespace, {}))


@dataclass(slots=True)
class Counts:
    """For one incoming pod: how many pods match, by topology pair."""

    affinity: dict[Pair, int] = field(default_factory=dict)
    anti_affinity: dict[Pair, int] = field(default_factory=dict)
    existing_anti: dict[Pair, int] = field(default_factory=dict)
    matches_itself: bool = False

    @classmethod
    def of(cls, pod: objects.Pod, cluster: snapshot.Snapshot) -> Counts:
        """Count over the whole cluster."""
        counts = cls()
        wanted, unwanted = affinity_terms(pod), anti_affinity_terms(pod)
        names = cluster.namespaces
        for view in cluster.nodes.values():
            # who wants nobody near or far is only kept off by those who want it so
            for other in (view.pods if wanted or unwanted else view.shy).values():
                refused = [term for term in anti_affinity_terms(other) if selects(term, other, pod, names)]
                _note(counts.existing_anti, refused, view.labels)
                # One pod must meet all terms to count: kube-scheduler counts affinity so, and anti-affinity term by
                # term.
                if wanted and all(selects_as_newcomer(term, pod, other, names) for term in wanted):
                    _note(counts.affinity, wanted, view.labels)
                if unwanted:
                    met = [term for term in unwanted if selects_as_newcomer(term, pod, other, names)]
                    _note(counts.anti_affinity, met, view.labels)
        counts.matches_itself = bool(wanted) and all(selects_as_newcomer(term, pod, pod, names) for term in wanted)
        return counts


def _note(table: dict[Pair, int], terms: Iterable[objects.PodAffinityTerm], labels: Mapping[str, str]) -> None:
    for term in terms:
        value = labels.get(term.topology_key)
        # A node without the label is in no domain, so its pods count for none.
        if value is not None:
            pair = (term.topology_key, value)
            table[pair] = table.get(pair, 0) + 1


def why_not(pod: objects.Pod, labels: Mapping[str, str], counts: Counts) -> str | None:
    """The reason against a node with these labels, or None."""
    if not _affinity_met(affinity_terms(pod), labels, counts):
        return "pod affinity"
    for term in anti_affinity_terms(pod):
        value = labels.get(term.topology_key)
        if value is not None and counts.anti_affinity.get((term.topology_key, value)):
            return "pod anti-affinity"
    # By pairs, not by terms: any pod there whose term selects the newcomer keeps it away from the whole
    # domain.
    if any(labels.get(key) == value for key, value in counts.existing_anti):
        return "anti-affinity of pods there"
    return None


def _affinity_met(terms: list[objects.PodAffinityTerm], labels: Mapping[str, str], counts: Counts) -> bool:
    met = True
    for term in terms:
        value = labels.get(term.topology_key)
        # A node without the label can never meet the term.
        if value is None:
            return False
        met = met and counts.affinity.get((term.topology_key, value), 0) > 0
    # the first of a series that wants to be together with itself must start somewhere
    return met or (not counts.affinity and counts.matches_itself)
