"""Show the filters nodes with their pods and host ports, labels of namespaces, claims, volumes and devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattflow.kube import accounting, gpus, objects
from wattflow.kube.dra.device_ledger import Devices
from wattflow.kube.filters import volumes

Port = tuple[str, str, int]
"""Address, protocol, port; the address 0.0.0.0 means all."""
_ALL = "0.0.0.0"


def host_ports(pod: objects.Pod) -> tuple[Port, ...]:
    """Host ports of containers and sidecars, without repeats."""
    # Init containers that end before the others start hold no port by then; sidecars do.
    sidecars = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    found = {
        # A dict as an ordered set: two containers may name one port.
        (port.host_ip or _ALL, port.protocol or "TCP", port.host_port): None
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(found)


def ports_collide(wanted: Port, used: Port) -> bool:
    """Tell whether both cannot stand on one node."""
    same = wanted[1:] == used[1:]
    return same and (wanted[0] == used[0] or _ALL in (wanted[0], used[0]))


def ports_free(wanted: Iterable[Port], used: Iterable[Port]) -> bool:
    """Tell whether none of the wanted ports collides with one in use."""
    taken = tuple(used)
    return not any(ports_collide(port, other) for port in wanted for other in taken)


_STAMPS = itertools.count(1)


@dataclass(slots=True)
class NodeView:
    """One node with the pods on it, whoever bound them. Sums are kept as pods come and go.

    Attributes:
        shy: Those of its pods that keep others away.
        stamp: Another number after every change of the pods, unique among all views: what was counted then holds.
    """

    node: objects.Node
    allocatable: accounting.Amounts = field(default_factory=dict)
    requested: accounting.Amounts = field(default_factory=dict)
    pods: dict[str, objects.Pod] = field(default_factory=dict)
    taken: dict[str, accounting.Amounts] = field(default_factory=dict)
    gpus: dict[str, gpus.Held] = field(default_factory=dict)
    used_ports: dict[str, tuple[Port, ...]] = field(default_factory=dict)
    shy: dict[str, objects.Pod] = field(default_factory=dict)
    stamp: int = field(default_factory=lambda: next(_STAMPS))

    @classmethod
    def of(cls, node: objects.Node, pods: Iterable[objects.Pod] = ()) -> NodeView:
        """A node with these pods; ended ones count no more."""
        view = cls(node, accounting.node_allocatable(node))
        for pod in pods:
            if not pod.ended:
                view.add(pod)
        return view

    def copy(self) -> NodeView:
        """Return a view whose pods may come and go without a trace here."""
        tables = (self.requested, self.pods, self.taken, self.gpus, self.used_ports, self.shy)
        return NodeView(self.node, self.allocatable, *(dict(table) for table in tables))  # type: ignore[arg-type]

    def add(self, pod: objects.Pod, amounts: accounting.Amounts | None = None) -> None:
        """Account a pod, or account it anew after a change."""
        uid = pod.metadata.uid or pod.key
        self.remove(uid)
        self.stamp = next(_STAMPS)
        self.pods[uid] = pod
        if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None:
            self.shy[uid] = pod
        holding = gpus.held(pod)
        if holding is not None:
            self.gpus[uid] = holding
        wanted = host_ports(pod)
        if wanted:
            self.used_ports[uid] = wanted
        self.taken[uid] = accounting.pod_requests(pod) if amounts is None else amounts
        for name, value in self.taken[uid].items():
            self.requested[name] = self.requested.get(name, 0) + value

    def remove(self, uid: str) -> None:
        """Give back what a pod took; nothing where it is not here."""
        if self.pods.pop(uid, None) is None:
            return
        self.stamp = next(_STAMPS)
        self.used_ports.pop(uid, None)
        self.shy.pop(uid, None)
        self.gpus.pop(uid, None)
        for name, value in self.taken.pop(uid).items():
            self.requested[name] -= value

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels


@dataclass(slots=True)
class Snapshot:
    """A cluster at one moment."""

    nodes: dict[str, NodeView]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage: volumes.Storage | None = None
    devices: Devices | None = None
    counted: dict[bytes, Any] = field(default_factory=dict, compare=False)
    """Counts of `spread`, of the pods that were last asked for."""

    def among(self, nodes: dict[str, NodeView]) -> Snapshot:
        """Return the same cluster with other views of its nodes."""
        return Snapshot(nodes, self.namespaces, self.storage, self.devices)

    def assume(self, pod: objects.Pod, node: objects.Node) -> str | None:
        """Give a pod the volumes and devices that it is to have on a node; the reason where that cannot be."""
        reasons = (one.assume(pod, node) for one in (self.storage, self.devices) if one is not None)
        return next((why for why in reasons if why is not None), None)

    def forget(self, uid: str) -> None:
        """Take back what was only assumed for a pod."""
        for one in (self.storage, self.devices):
            if one is not None:
                one.forget(uid)

    @classmethod
    def of(
        cls,
        nodes: Iterable[objects.Node],
        pods: Iterable[objects.Pod],
        namespaces: Iterable[objects.Namespace] = (),
        storage: volumes.Storage | None = None,
    ) -> Snapshot:
        """Nodes with the pods that name them."""
        placed: dict[str, list[objects.Pod]] = {}
        for pod in pods:
            placed.setdefault(pod.spec.node_name, []).append(pod)
        views = {node.metadata.name: NodeView.of(node, placed.get(node.metadata.name, ())) for node in nodes}
        return cls(views, {one.metadata.name: one.metadata.labels for one in namespaces}, storage)
