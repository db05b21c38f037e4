"""Placers that steal: one that has nothing to do takes half of the longest queue among some others.

A pod is taken by writing our number into its label, as it was read; a pod that its owner binds at the same moment is
bound once all the same, since the API server binds a pod only once. Gangs stay whole where they are.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import aiohttp

from wattflow.kube import accounting, gangs, objects
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.filters import feasible
from wattflow.kube.frame.role import PLACER, Role

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Thief:
    """One placer's theft.

    Attributes:
        since: When each pod of others was first seen waiting; one that has not waited for a while is left to its owner.
    """

    client: Client
    name: str
    role: Role
    book: Book
    stolen: int = 0
    since: dict[str, float] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.Random)

    @property
    def pause_s(self) -> float:
        assert self.role.frame.stealing is not None
        return self.role.frame.stealing.retry_s

    def victims(self, pods: Iterable[objects.Pod], now_s: float) -> dict[int, list[objects.Pod]]:
        """Find pods that wait with other placers for at least a pause, oldest first."""
        found: dict[int, list[objects.Pod]] = {}
        seen: dict[str, float] = {}
        for pod in pods:
            spec, uid = pod.spec, pod.metadata.uid
            if spec.scheduler_name != self.name or spec.node_name or spec.scheduling_gates or pod.ended:
                continue
            owner = self.role.owner_of(pod)
            if owner is None or owner == self.role.index or pod.metadata.deletion_timestamp or gangs.gang_of(pod):
                continue
            # Rebuilt at each look, so that pods which are gone leave no trace.
            seen[uid] = self.since.get(uid, now_s)
            if uid not in self.book.records and now_s - seen[uid] >= self.pause_s:
                found.setdefault(owner, []).append(pod)
        self.since = seen
        for queue in found.values():
            # Oldest first, as its owner would go: of equal ages by name.
            queue.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
        return found

    def choose(self, queues: dict[int, list[objects.Pod]]) -> list[objects.Pod]:
        """Take half of the longest queue among those asked, as far as we have room for them."""
        others = [k for k in range(self.role.count) if k != self.role.index]
        # A sample, not the longest of all queues: several thieves would go to the same victim.
        asked = self.rng.sample(others, min(self.role.asks, len(others)))
        longest = max((queues.get(k, []) for k in asked), key=len, default=[])
        # The larger half: a queue of one can be stolen too.
        return self._fitting(longest[: (len(longest) + 1) // 2])

    def _fitting(self, pods: list[objects.Pod]) -> list[objects.Pod]:
        free = {
            name: {key: value - view.requested.get(key, 0) for key, value in view.allocatable.items()}
            for name, view in self.book.cluster.nodes.items()
            if self.role.serves(view.node)
        }
        taken = []
        for pod in pods:
            needs = accounting.pod_requests(pod)
            for name, room in free.items():
                fits = all(room.get(key, 0) >= value for key, value in needs.items())
                if fits and feasible.standing(pod, self.book.cluster.nodes[name].node) is None:
                    for key, value in needs.items():
                        # Counted as taken, so that we steal no more than we can place.
                        room[key] -= value
                    taken.append(pod)
                    break
        return taken

    async def run(
        self, idle: Callable[[], bool], pods: Callable[[], Iterable[objects.Pod]], clock: Callable[[], float]
    ) -> None:
        """Take work from others whenever there is nothing to do."""
        while True:
            await asyncio.sleep(self.pause_s)
            chosen = self.choose(self.victims(pods(), clock())) if idle() else []
            if chosen:
                log.info("stole %d of %d pods", await self.take(chosen), len(chosen))

    async def take(self, pods: list[objects.Pod]) -> int:
        """Write our number into their labels; how many became ours."""
        got = sum(await asyncio.gather(*(self._take(pod) for pod in pods)))
        self.stolen += got
        return got

    async def _take(self, pod: objects.Pod) -> bool:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        # The version is a precondition: another thief, or its owner's binding, makes it 409.
        version = pod.metadata.resource_version
        body = {"metadata": {"resourceVersion": version, "labels": {PLACER: str(self.role.index)}}}
        try:
            await self.client.call("PATCH", path, body, content=MERGE)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            if not (isinstance(error, ApiError) and error.code in (404, 409)):
                log.warning("%s: not stolen: %s", pod.key, error)
            return False
        return True
