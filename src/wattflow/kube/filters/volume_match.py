"""Volumes that were made by hand (or are left over) for claims that wait for their first pod: which one fits where.

As in kube-scheduler: claims from the smallest on, each gets the smallest volume of its class that is free, large enough
and reachable from the node; one that somebody has already tied to the claim goes before all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from wattflow.kube import objects, quantity
from wattflow.kube.filters import selectors

_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_SIZE = "storage"


def match(
    claims: Iterable[objects.PersistentVolumeClaim],
    volumes: Collection[objects.PersistentVolume],
    labels: Mapping[str, str],
    promised: Collection[str],
) -> dict[str, str]:
    """Return volumes by claim for a node with these labels; claims that none fits are left out.

    Args:
        claims: Claims of one pod without a volume.
        volumes: All volumes.
        labels: The node's.
        promised: Volumes that other pods' claims are about to get.
    """
    found: dict[str, str] = {}
    for claim in sorted(claims, key=lambda one: (_exact(one.spec.resources.requests), one.key)):
        taken = {*promised, *found.values()}
        named = next((one for one in volumes if tied(one, claim)), None)
        if named is not None:
            if named.key not in taken and _large_enough(named, claim) and reachable(named, labels):
                found[claim.key] = named.key
            continue  # who is tied to a volume gets that one or none
        fit = [one for one in volumes if one.key not in taken and _fits(one, claim) and reachable(one, labels)]
        if fit:
            found[claim.key] = min(fit, key=lambda one: (_exact(one.spec.capacity), one.key)).key
    return found


def tied(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    """Tell whether a volume names the claim: this very one, or any of its name where it says no more."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.namespace, ref.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return ref.uid in ("", claim.metadata.uid)


def reachable(volume: objects.PersistentVolume, labels: Mapping[str, str]) -> bool:
    """Tell whether a volume's node affinity allows a node; its name is not asked for, as elsewhere."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(selectors.requirement(one, labels) for one in term.match_expressions)
        for term in affinity.required.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def _fits(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    spec, wanted = volume.spec, claim.spec
    return (
        spec.claim_ref is None
        and volume.status.phase == "Available"
        and volume.metadata.deletion_timestamp is None
        and volume.metadata.annotations.get(_OLD_CLASS, spec.storage_class_name) == (wanted.storage_class_name or "")
        and (wanted.selector is None or selectors.matches(wanted.selector, volume.metadata.labels))
        and set(wanted.access_modes) <= set(spec.access_modes)
        and spec.volume_mode == wanted.volume_mode
        and (spec.volume_attributes_class_name or "") == (wanted.volume_attributes_class_name or "")
        and _large_enough(volume, claim)
    )


def _large_enough(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    return _exact(volume.spec.capacity) >= _exact(claim.spec.resources.requests)


def _exact(amounts: Mapping[str, str]) -> int:
    return quantity.whole(amounts.get(_SIZE, "0"))
