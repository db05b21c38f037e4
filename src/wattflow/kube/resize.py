"""Long-running pods: their watts as the node fills and empties, and their guarantee raised where there is room.

Under the HPE rule (label ``wattflow.io/guarantee: hpe``) a pod requests 80 % of its CPU limit. The paper decides once,
when a job starts, and leaves jobs open that outlive the crowd around them. Here a pod that has run for a while gets its
request raised towards its limit while nobody waits and the node (and its cap) has room; when a pod waits that would fit
on what was given, it is taken back to 80 %. A request is never raised to the limit itself where that would change the
pod's class of service, which the API forbids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import aiohttp

from wattflow.kube import accounting, objects
from wattflow.kube.book import Book, Record
from wattflow.kube.client import STRATEGIC, ApiError, Client
from wattflow.kube.filters import feasible, snapshot
from wattflow.kube.power import Watts
from wattflow.kube.tenant import PREFIX

log = logging.getLogger(__name__)
GUARANTEE = f"{PREFIX}guarantee"
# Less than 10 milli-cores is not worth a write; of many that wait only the first 16 are looked at.
_SHARE_M, _LEAST_M, _MOST_WAITING = 800, 10, 16


def base_m(container: objects.Container) -> int:
    """Tell what the rule guarantees: 80 % of the CPU limit, in milli-cores, rounded down as at admission."""
    return accounting.amount(accounting.CPU, container.resources.limits[accounting.CPU]) * _SHARE_M // 1000


def most_m(container: objects.Container) -> int:
    """Return the most that may be guaranteed: a hair below the limit, so that the pod stays burstable."""
    return accounting.amount(accounting.CPU, container.resources.limits[accounting.CPU]) - 1


def asked_m(container: objects.Container) -> int:
    """Tell what it requests now."""
    return accounting.amount(accounting.CPU, container.resources.requests.get(accounting.CPU, "0"))


def flexible(pod: objects.Pod) -> list[objects.Container]:
    """Find containers whose guarantee may move."""
    if pod.metadata.labels.get(GUARANTEE) != "hpe" or pod.status.phase != "Running":
        return []
    if any(one.type == "PodResizePending" for one in pod.status.conditions):
        return []  # the kubelet has not answered the last wish yet, or cannot fulfil it
    return [one for one in pod.spec.containers if accounting.CPU in one.resources.limits]


@dataclass(frozen=True, slots=True)
class RequestChange:
    """A container's request becomes another."""

    pod: objects.Pod
    container: str
    cpu_m: int


@dataclass(slots=True)
class Raiser:
    """Moves guarantees on all nodes that we use. ``since_s`` is when a pod was first seen running."""

    client: Client
    book: Book
    watts: Watts
    clock: Callable[[], float]
    after_s: float = 60.0
    every_s: float = 5.0
    raised: int = 0
    lowered: int = 0
    since_s: dict[str, float] = field(default_factory=dict)

    def plan(self, now_s: float) -> list[RequestChange]:
        """Tell what should change now: nothing is given while somebody waits, and given back where that helps them."""
        self._look(now_s)
        waiting = [pod for uid, pod in self.book.waiting.items() if uid not in self.book.refused]
        # While somebody waits, a raise could take the room that the next step would give them.
        if waiting:
            return [change for pod in waiting[:_MOST_WAITING] for change in self._back_for(pod)]
        return [change for view in self.book.cluster.nodes.values() for change in self._give(view)]

    def pod_watts(self) -> Iterator[tuple[objects.Pod, float]]:
        """Yield the watts of our long-running pods: the node's watts above idle, shared by its requested cores."""
        for uid in self.since_s:
            record = self.book.records.get(uid)
            view = self.book.cluster.nodes.get(record.node) if record is not None else None
            if record is None or view is None:
                continue
            total_m, own_m = view.requested.get(accounting.CPU, 0), record.amounts.get(accounting.CPU, 0)
            # Idle is the same curve with nothing requested.
            drawn_w, idle_w = self.watts.node_w(view), self.watts.node_w(view, -total_m)
            if drawn_w is not None and idle_w is not None and total_m:
                yield record.pod, (drawn_w - idle_w) * own_m / total_m

    async def run(self, may_act: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self.every_s)
            if may_act():
                for change in self.plan(self.clock()):
                    await self._write(change)

    def _look(self, now_s: float) -> None:
        ours = {
            uid: record
            for uid, record in self.book.records.items()
            if self.book.owns(record.pod) and record.pod.status.phase == "Running"
        }
        # Rebuilt, so that pods which ended are forgotten; those seen before keep their time.
        self.since_s = {uid: self.since_s.get(uid, now_s) for uid in ours}

    def _long(self, view: snapshot.NodeView) -> list[Record]:
        """List our flexible pods on a node that have run for a while, the oldest first."""
        now_s = self.clock()
        old = [uid for uid in view.pods if now_s - self.since_s.get(uid, now_s) >= self.after_s]
        found = [record for record in map(self.book.records.__getitem__, old) if flexible(record.pod)]
        # Oldest first, then by name, so that each look gives to the same ones.
        return sorted(found, key=lambda one: (self.since_s[one.pod.metadata.uid], one.pod.key))

    def _give(self, view: snapshot.NodeView) -> Iterator[RequestChange]:
        offered = self.watts.capped(view.node.metadata.name, view.allocatable)
        room_m = offered.get(accounting.CPU, 0) - view.requested.get(accounting.CPU, 0)
        for record in self._long(view):
            for container in flexible(record.pod):
                more_m = min(room_m, most_m(container) - asked_m(container))
                if more_m >= _LEAST_M:
                    room_m -= more_m
                    yield RequestChange(record.pod, container.name, asked_m(container) + more_m)

    def _back_for(self, pod: objects.Pod) -> Iterator[RequestChange]:
        """Give back on the first node on which that makes room for a pod that waits."""
        needs = accounting.pod_requests(pod)
        for view in self.book.cluster.nodes.values():
            # Only CPU can be given back: where something else lacks, it would help nobody.
            if feasible.standing(pod, view.node) is not None or feasible.lacking(needs, view) != accounting.CPU:
                continue
            changes = [
                RequestChange(record.pod, one.name, base_m(one))
                for record in self._long(view)
                for one in flexible(record.pod)
                if asked_m(one) > base_m(one)
            ]
            freed_m = sum(_now_m(change) - change.cpu_m for change in changes)
            short_m = needs.get(accounting.CPU, 0) + view.requested.get(accounting.CPU, 0)
            # Only where all of it makes room; else work is slowed for nothing.
            if changes and short_m - freed_m <= view.allocatable.get(accounting.CPU, 0):
                yield from changes
                return

    async def _write(self, change: RequestChange) -> None:
        pod, before_m = change.pod, _now_m(change)
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/resize"
        resources = {"requests": {accounting.CPU: f"{change.cpu_m}m"}}
        body = {
            "metadata": {"uid": pod.metadata.uid},
            "spec": {"containers": [{"name": change.container, "resources": resources}]},
        }
        try:
            await self.client.call("PATCH", path, body, content=STRATEGIC)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("%s: guarantee not moved: %s", pod.key, error)
            return
        log.info("%s: guarantee of %s from %d m to %d m", pod.key, change.container, before_m, change.cpu_m)
        if change.cpu_m > before_m:
            self.raised += 1
        else:
            self.lowered += 1


def _now_m(change: RequestChange) -> int:
    return next(asked_m(one) for one in change.pod.spec.containers if one.name == change.container)
