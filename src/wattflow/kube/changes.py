"""Changes of pods and nodes: what of them placement can feel."""

from __future__ import annotations

import msgspec

from wattflow.kube import gpus, objects


def noted(pod: objects.Pod, notes: dict[str, str | None]) -> objects.Pod:
    """Return the pod with these annotations, or, where they are None, without."""
    # Most pods carry none of these notes: the same object then, and no copy.
    if not any(value is not None or key in pod.metadata.annotations for key, value in notes.items()):
        return pod
    found = {key: value for key, value in {**pod.metadata.annotations, **notes}.items() if value is not None}
    # Pods are shared between the mirror, the book and the engine's side: never change one in place.
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=found))


def same_needs(old: objects.Pod, new: objects.Pod) -> bool:
    """Tell whether two states of a pod surely take the same: most changes are of its status, and reckoning is dear."""
    before, after = old.spec, new.spec
    return (
        before.containers == after.containers
        # Statuses may tell of a resize, which `accounting` has to look at; whether they differ does not
        # matter.
        and not (old.status.container_statuses or new.status.container_statuses)
        and before.init_containers == after.init_containers
        # Pod-level resources can be resized too, so they are never "surely the same".
        and before.resources is None
        and after.resources is None
        and before.overhead == after.overhead
        and old.metadata.annotations.get(gpus.SHARE) == new.metadata.annotations.get(gpus.SHARE)
        and old.metadata.annotations.get(gpus.MEMORY) == new.metadata.annotations.get(gpus.MEMORY)
    )


def matters(old: objects.Node, new: objects.Node) -> bool:
    """Tell whether a change of a node is one that placement can feel; heartbeats are not."""
    # Conditions are left out: heartbeats live there. What a condition means for placement the node
    # controller writes as a taint, which is in `spec`.
    return (
        old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or old.status.capacity != new.status.capacity
    )


def wishes(pod: objects.Pod) -> tuple[object, ...]:
    """Tell what of a waiting pod may change and matters."""
    spec = pod.spec
    return (
        spec.containers,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.priority,
        pod.metadata.labels,
        spec.scheduling_gates,
        pod.metadata.annotations,
    )
