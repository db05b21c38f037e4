"""Workloads that Kueue holds back because nodes of its topology sleep, and the nodes that are woken for them.

Kueue counts, where a flavor has a topology, only nodes that are ready and that pods may go to. A workload that needs
sleeping ones would wait for ever, since no pod of it exists that would wake them. Quotas alone ask for no nodes: there
pods come and wake what they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.late_pods import PATIENCE_S
from wattflow.kube.objects import ClusterWide, Object, Spaced
from wattflow.kube.reflect import Mirror
from wattflow.kube.sleeping import Sleeper

_GROUP = "/apis/kueue.x-k8s.io/v1beta2"
_KINDS = ("workloads", "localqueues", "clusterqueues", "resourceflavors")
RIGHTS = tuple(("kueue.x-k8s.io", kind, verb) for kind in _KINDS for verb in ("list", "watch"))
_HOLD_S = 60.0
"""Beyond a wake: Kueue sees the nodes, admits, and the Job's pods come."""
_MOST_PODS, _MOST_TRIES = 200, 10


class Template(Object):
    spec: objects.PodSpec = msgspec.field(default_factory=objects.PodSpec)


class PodSet(Object):
    count: int = 1
    template: Template = msgspec.field(default_factory=Template)


class WorkloadSpec(Object):
    queue_name: str = ""
    pod_sets: list[PodSet] = msgspec.field(default_factory=list)
    active: bool = True


class WorkloadStatus(Object):
    conditions: list[objects.Condition] = msgspec.field(default_factory=list)


class Workload(Spaced):
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def lacks_nodes(self) -> bool:
        """Tell whether it waits, and Kueue says that it is for the nodes of a topology, not for quota."""
        said = {one.type: one for one in self.status.conditions}
        reserved = said.get("QuotaReserved")
        if not self.spec.active or "Finished" in said or reserved is None:
            return False
        return reserved.status != "True" and "topology" in reserved.message


class LocalQueueSpec(Object):
    cluster_queue: str = ""


class LocalQueue(Spaced):
    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)


class ResourceGroup(Object):
    flavors: list[objects.Named] = msgspec.field(default_factory=list)


class ClusterQueueSpec(Object):
    resource_groups: list[ResourceGroup] = msgspec.field(default_factory=list)


class ClusterQueue(ClusterWide):
    spec: ClusterQueueSpec = msgspec.field(default_factory=ClusterQueueSpec)


class FlavorSpec(Object):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    topology_name: str = ""


class Flavor(ClusterWide):
    spec: FlavorSpec = msgspec.field(default_factory=FlavorSpec)


class QueuedWork:
    """Wakes nodes for what Kueue cannot admit while they sleep, and keeps them on until it has.

    Args:
        wake_s: What a wake usually takes.
        woken: Called with a node that was told to wake.
    """

    def __init__(
        self,
        client: Client,
        sleeper: Sleeper,
        book: Book,
        clock: Callable[[], float],
        wake_s: float,
        woken: Callable[[str], None],
    ) -> None:
        self._sleeper, self._book, self._clock, self._wake_s, self._woken = sleeper, book, clock, wake_s, woken
        # A cluster without Kueue has none of it.
        self.workloads = Mirror(client, f"{_GROUP}/workloads", Workload, _kept, optional=True)
        self.local = Mirror(client, f"{_GROUP}/localqueues", LocalQueue, _kept, optional=True)
        self.queues = Mirror(client, f"{_GROUP}/clusterqueues", ClusterQueue, _kept, optional=True)
        self.flavors = Mirror(client, f"{_GROUP}/resourceflavors", Flavor, _kept, optional=True)
        self._tries: dict[str, tuple[int, float]] = {}
        """How often nodes were woken for a workload, and when the next time may come."""
        self._held: dict[str, float] = {}
        """Flavors whose nodes stay on, and until when."""

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(1.0)
            if may_write():
                self.look()

    def look(self) -> None:
        """Wake nodes for what has waited for as long as a pod may; each time without success for twice as many."""
        now_s = self._clock()
        lacking = {key: one for key, one in self.workloads.items.items() if one.lacks_nodes}
        self._tries = {key: one for key, one in self._tries.items() if key in lacking}
        for key, workload in lacking.items():
            tries, due_s = self._tries.setdefault(key, (0, now_s + PATIENCE_S))
            if now_s < due_s:
                continue
            self._tries[key] = min(_MOST_TRIES, tries + 1), now_s + self._wake_s + PATIENCE_S * 2**tries
            for flavor in self._flavors_for(workload):
                self._held[flavor.key] = now_s + self._wake_s + _HOLD_S
                for name in self._sleeper.wake_for(list(_pods(workload, flavor, 2**tries)), self._book):
                    self._woken(name)

    def awaits(self, node: objects.Node) -> bool:
        """Tell whether a node was woken, or stays on, for what Kueue is about to admit."""
        now_s, labels = self._clock(), node.metadata.labels
        held = (self.flavors.items.get(name) for name, until_s in self._held.items() if now_s < until_s)
        return any(one is not None and labels.items() >= one.spec.node_labels.items() for one in held)

    def _flavors_for(self, workload: Workload) -> list[Flavor]:
        """Return the flavors with a topology that a workload may get."""
        local = self.local.items.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        queue = self.queues.items.get(local.spec.cluster_queue) if local is not None else None
        names = [one.name for group in queue.spec.resource_groups for one in group.flavors] if queue is not None else []
        found = (self.flavors.items.get(name) for name in names)
        return [one for one in found if one is not None and one.spec.topology_name]


def _pods(workload: Workload, flavor: Flavor, times: int) -> Iterator[objects.Pod]:
    """Make the pods that would come, with the labels of the flavor; so many times as many where fewer did not do."""
    left = _MOST_PODS
    for pods in workload.spec.pod_sets:
        spec = pods.template.spec
        spec = msgspec.structs.replace(spec, node_selector=spec.node_selector | flavor.spec.node_labels)
        for _ in range(min(left, pods.count * times)):
            left -= 1
            yield objects.Pod(metadata=workload.metadata, spec=spec)


def _kept(kind: str, one: object) -> None:
    """Do nothing: the objects that the mirror keeps are all that is looked at."""
