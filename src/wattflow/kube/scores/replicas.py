"""Services and controllers of replicas: by which selector a pod is spread where it names no constraint itself.

As kube-scheduler deduces it: the labels that the Services of the pod select by, and the selector of the ReplicaSet,
StatefulSet or ReplicationController that owns it. Pods of Jobs, DaemonSets and workflows are not spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from wattflow.kube import objects
from wattflow.kube.client import Client
from wattflow.kube.filters import selectors
from wattflow.kube.reflect import DELETED, Mirror, Receiver

_OWNERS = {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("v1", "ReplicationController")}
PATHS = {
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicationController": "/api/v1/replicationcontrollers",
}
SERVICES = "/api/v1/services"
RIGHTS = tuple(
    (group, resource, verb)
    for group, resource in (
        ("", "services"), ("", "replicationcontrollers"), ("apps", "replicasets"), ("apps", "statefulsets"),
    )
    for verb in ("list", "watch")
)  # fmt: skip
"""Rights it needs: group, resource, verb."""


@dataclass(slots=True)
class Replicas:
    """Selectors of pods that serve together. Empty until `mirrors` are followed."""

    _services: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], objects.LabelSelector] = field(default_factory=dict)
    followed: bool = False

    def mirrors(self, client: Client) -> list[Mirror[objects.Service] | Mirror[objects.Replicas]]:
        """Return what keeps this up to date."""
        self.followed = True
        found: list[Mirror[objects.Service] | Mirror[objects.Replicas]] = [
            Mirror(client, path, objects.Replicas, self.on_owner(kind), optional=True) for kind, path in PATHS.items()
        ]
        return [Mirror(client, SERVICES, objects.Service, self.on_service, optional=True), *found]

    def on_service(self, change: str, service: objects.Service) -> None:
        """Take up a Service; one without a selector selects nothing."""
        about = service.metadata
        known = self._services.setdefault(about.namespace, {})
        # A Service without a selector has its endpoints from elsewhere.
        if change == DELETED or not service.spec.selector:
            known.pop(about.name, None)
        else:
            known[about.name] = service.spec.selector

    def on_owner(self, kind: str) -> Receiver[objects.Replicas]:
        """Return a receiver of controllers of one kind."""

        def receive(change: str, owner: objects.Replicas) -> None:
            if change == DELETED:
                self._owners.pop((kind, owner.key), None)
            else:
                self._owners[kind, owner.key] = _selector(kind, owner)

        return receive

    def awaited(self, pod: objects.Pod) -> bool:
        """Tell whether the pod's controller must exist and has not been seen: watches do not keep order."""
        owner = _controller(pod)
        # Only what is followed can be awaited.
        return self.followed and owner is not None and owner not in self._owners

    def selector(self, pod: objects.Pod) -> objects.LabelSelector | None:
        """Return the selector of the pods that serve with this one, or None."""
        labels = pod.metadata.labels
        together: dict[str, str] = {}
        for wanted in self._services.get(pod.metadata.namespace, {}).values():
            # Labels of several Services are joined, as kube-scheduler's DefaultSelector does.
            if all(labels.get(key) == value for key, value in wanted.items()):
                together |= wanted
        owner = _controller(pod)
        own = self._owners.get(owner) if owner is not None else None
        if own is None:
            return objects.LabelSelector(match_labels=together) if together else None
        # as an expression each, so that one which contradicts a Service's selects nothing
        exact = [objects.Requirement(key=key, operator="In", values=[value]) for key, value in own.match_labels.items()]
        both = objects.LabelSelector(match_labels=together, match_expressions=[*exact, *own.match_expressions])
        return None if selectors.is_empty(both) else both


def _controller(pod: objects.Pod) -> tuple[str, str] | None:
    owners = [one for one in pod.metadata.owner_references if one.controller]
    if not owners or (owners[0].api_version, owners[0].kind) not in _OWNERS:
        return None
    return owners[0].kind, f"{pod.metadata.namespace}/{owners[0].name}"


def _selector(kind: str, owner: objects.Replicas) -> objects.LabelSelector:
    raw = owner.spec.selector
    if kind == "ReplicationController":
        return objects.LabelSelector(match_labels=msgspec.convert(raw, dict[str, str]))
    return msgspec.convert(msgspec.to_builtins(raw), objects.LabelSelector)
