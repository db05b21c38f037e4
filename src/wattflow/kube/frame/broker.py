"""The broker of a delegated frame: it gives each pod and each node to a placer, by a label.

It decides nothing else, holds a lease of its own, and may be down for a while: placers go on with what they have.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

from wattflow.frames.frame import Frame
from wattflow.kube import accounting, gangs, objects, tenant
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.frame.role import OBJECT, PLACER, hash_key, labelled, number
from wattflow.kube.leader import Leader
from wattflow.kube.reflect import DELETED, Mirror
from wattflow.kube.settings import SchedulerSettings

log = logging.getLogger(__name__)
# At most 32 writes under way, so that the lease is looked at between batches.
_AT_ONCE, _AGAIN_S, _MOST_GANGS = 32, 2.0, 10_000


@dataclass(slots=True)
class Broker:
    """Labels what has no placer yet. `run` goes on until cancelled."""

    client: Client
    settings: SchedulerSettings
    frame: Frame
    leader: Leader
    given: Counter[str] = field(default_factory=Counter)
    pods: Mirror[objects.Pod] = field(init=False)
    nodes: Mirror[objects.Node] = field(init=False)
    _turn: int = -1
    _waits: dict[str, objects.Pod] = field(default_factory=dict)
    _bare: dict[str, objects.Node] = field(default_factory=dict)
    _queued: dict[str, int] = field(default_factory=dict)
    _cores: dict[str, tuple[int, int]] = field(default_factory=dict)
    _gangs: dict[str, int] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        wake = self._wake.set
        self.pods = Mirror(self.client, "/api/v1/pods", objects.Pod, self._on_pod, after_batch=wake)
        self.nodes = Mirror(self.client, "/api/v1/nodes", objects.Node, self._on_node, after_batch=wake)

    @property
    def count(self) -> int:
        return self.frame.placers.count

    @property
    def mirrors(self) -> tuple[Mirror[objects.Node], Mirror[objects.Pod]]:
        return self.nodes, self.pods

    def _on_pod(self, kind: str, pod: objects.Pod) -> None:
        uid = pod.metadata.uid
        self._waits.pop(uid, None)
        self._queued.pop(uid, None)
        if kind == DELETED or pod.ended or pod.spec.node_name or pod.spec.scheduler_name != self.settings.name:
            return
        placer = labelled(pod.metadata.labels, self.count)
        if placer is None:
            self._waits[uid] = pod
            return
        self._queued[uid] = placer
        gang = gangs.gang_of(pod)
        if gang is not None:  # one who was broker before us gave it
            # Its other members must follow it, also those that come after a change of brokers.
            self._together(gang[0], placer)

    def _on_node(self, kind: str, node: objects.Node) -> None:
        name, placer = node.metadata.name, labelled(node.metadata.labels, self.count)
        self._bare.pop(name, None)
        self._cores.pop(name, None)
        if kind == DELETED:
            return
        if placer is not None:
            self._cores[name] = (placer, accounting.node_allocatable(node).get(accounting.CPU, 0))
        elif self.frame.placers.partition == "disjoint":
            self._bare[name] = node

    async def run(self) -> None:
        """Follow the cluster, take the lease, label."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self.mirrors:
                tasks.create_task(mirror.run())
            for mirror in self.mirrors:
                await mirror.synced.wait()
            tasks.create_task(self.leader.run(self._lost))
            await self.leader.elected.wait()
            log.info("leading as %s", self.settings.who)
            while True:
                await self.label()
                self._wake.clear()
                try:
                    async with asyncio.timeout(_AGAIN_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _lost(self) -> None:
        raise SystemExit("lost the lease: stopping, another broker may label now")

    async def label(self) -> None:
        """Give away everything that nobody has."""
        for name in sorted(self._bare):
            if name in self._bare and self.leader.leads:
                # Before the write; a node whose write failed is bare again at its next status.
                node = self._bare.pop(name)
                placer = self.poorest()
                self._cores[name] = (placer, accounting.node_allocatable(node).get(accounting.CPU, 0))
                await self._write(f"/api/v1/nodes/{name}", node.metadata, placer)
        # Oldest first, by name among equals: the order of the watch must not matter.
        waiting = sorted(self._waits.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
        for start in range(0, len(waiting), _AT_ONCE):
            if not self.leader.leads:
                return
            await asyncio.gather(*(self._give(pod) for pod in waiting[start : start + _AT_ONCE]))

    def poorest(self) -> int:
        """Return the placer whose nodes have the fewest cores; the lower number among equals."""
        has = Counter({k: 0 for k in range(self.count)})
        for placer, cores in self._cores.values():
            has[placer] += cores
        return min(range(self.count), key=lambda k: (has[k], k))

    def choose(self, pod: objects.Pod) -> int:
        """Choose the placer of a pod, by the frame's split; pods of one gang have the same."""
        gang = gangs.gang_of(pod)
        if gang is not None and gang[0] in self._gangs:
            return self._gangs[gang[0]]
        placer = self._split(pod)
        if gang is not None:
            self._together(gang[0], placer)
        return placer

    def _together(self, gang: str, placer: int) -> None:
        self._gangs[gang] = placer
        if len(self._gangs) > _MOST_GANGS:
            # The oldest: dicts keep the order of insertion.
            del self._gangs[next(iter(self._gangs))]

    def _split(self, pod: objects.Pod) -> int:
        how = self.frame.broker.split if self.frame.broker is not None else "round-robin"
        if how == "random":
            return random.randrange(self.count)
        if how == "hash":
            return number(hash_key(pod), self.count)
        if how == "object":
            named = pod.metadata.annotations.get(OBJECT) or pod.metadata.uid
            # a number goes by its remainder, as in the simulator
            found = tenant.count(named)
            return number(named, self.count) if found is None else found % self.count
        if how == "shortest-queue":
            long = Counter(self._queued.values())
            # Ties go to the lower number.
            return min(range(self.count), key=lambda k: (long[k], k))
        self._turn += 1
        return self._turn % self.count

    async def _give(self, pod: objects.Pod) -> None:
        uid = pod.metadata.uid
        # Labelled by somebody else while an earlier batch was written.
        if self._waits.pop(uid, None) is None:
            return
        placer = self._queued[uid] = self.choose(pod)
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        if not await self._write(path, pod.metadata, placer):
            self._queued.pop(uid, None)
            # As the watch knows it now, if it is the same pod still.
            now = self.pods.items.get(pod.key)
            if now is not None and now.metadata.uid == uid:
                self._on_pod("MODIFIED", now)

    async def _write(self, path: str, known: objects.Metadata, placer: int) -> bool:
        """Write the label onto what has the uid that we saw."""
        # The uid is a precondition: a new pod of that name is not given away unseen.
        body = {"metadata": {"uid": known.uid, "labels": {PLACER: str(placer)}}}
        try:
            await self.client.call("PATCH", path, body, content=MERGE)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            if not (isinstance(error, ApiError) and error.code == 404):
                log.warning("%s: label not written: %s", path, error)
            return False
        self.given[str(placer)] += 1
        return True
