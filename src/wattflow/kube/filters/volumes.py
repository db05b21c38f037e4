"""Volumes: which kinds need nothing from the scheduler, and what is refused because we do not decide on it."""

from __future__ import annotations

from wattflow.kube import objects

PLAIN = frozenset({
    "emptyDir", "hostPath", "configMap", "secret", "projected", "downwardAPI", "nfs", "image", "gitRepo",
})  # fmt: skip
"""Kinds that exist on every node alike."""


def unsupported(pod: objects.Pod) -> str | None:
    """Why this scheduler does not place the pod at all, or None. It refuses with an event rather than ignore."""
    for volume in pod.spec.volumes:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if kind not in PLAIN:
            return f"a volume of kind {kind} is not supported by this scheduler"
    if pod.spec.resource_claims:
        return "resource claims (dynamic resource allocation) are not supported by this scheduler"
    return None
