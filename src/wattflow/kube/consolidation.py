"""Nodes that are nearly empty, emptied so that they can sleep, where the joules saved exceed those of moving.

Off unless ``[sleep] consolidate`` and its right (``deploy/consolidate``) say so: this is the one part of sleep that
ends pods. Only pods that somebody makes anew are moved, through the eviction API, so that the API server itself holds
PodDisruptionBudgets; never one that says it must not be (safe-to-evict, do-not-disrupt) or that keeps data on its node.
One node at a time gets our taint, is emptied, and falls asleep by the policy like any idle node.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import accounting, gangs, objects, sleep_facts, sleeping
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import ApiError
from wattflow.kube.filters import feasible, snapshot
from wattflow.kube.power import Watts
from wattflow.kube.preempt import Evictor
from wattflow.kube.taint_writer import drop_taint, put_taint
from wattflow.kube.tenant import PREFIX
from wattflow.live.protocol import Power
from wattflow.model.cluster import Sleep

log = logging.getLogger(__name__)
EMPTYING = f"{PREFIX}emptying"
"""Taint of a node that is being emptied; its value is the scheduler's name."""
_LOOK_S, _LIMIT_S = 10.0, 600.0
_HORIZON_S = 3600.0
"""Load changes: no node is believed to stay asleep for longer than this."""
_RESTART_S = 60.0
"""A pod that is moved starts anew elsewhere, draws its watts and serves nobody for about so long."""
_MOST_PODS, _MOST_TRIALS = 10, 20
_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_STAY = "karpenter.sh/do-not-disrupt"
_LOCAL = ("emptyDir", "hostPath")


def stays(pod: objects.Pod) -> str | None:
    """Return why a pod must not be moved; None where it may."""
    notes = pod.metadata.annotations
    if notes.get(_SAFE) == "false" or notes.get(_STAY) == "true":
        return "it says so"
    if gangs.gang_of(pod) is not None:
        return "its gang would stand still"
    if notes.get(_SAFE) == "true":
        return None
    if not any(owner.controller for owner in pod.metadata.owner_references):
        return "nobody would make it anew"
    return "it keeps data on its node" if any(kind in one for one in pod.spec.volumes for kind in _LOCAL) else None


@dataclass(frozen=True, slots=True)
class Emptying:
    """A node that can be emptied, and what that is worth."""

    node: str
    pods: tuple[objects.Pod, ...]
    saved_j: float
    moved_j: float


@dataclass(slots=True)
class Consolidator:
    """Empties one node after another."""

    evictor: Evictor
    book: Book
    binder: Binder
    watts: Watts
    sleeper: sleeping.Sleeper
    usual: Sleep
    clock: Callable[[], float]
    wall: Callable[[], float] = time.time
    emptying: str = ""
    _since_s: float = 0.0
    _not_before_s: dict[str, float] = field(default_factory=dict)

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if may_write():
                try:
                    await self.look()
                except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                    log.warning("consolidation: %s", error)

    async def look(self) -> None:
        """Go on with the node that is being emptied, or begin with another; marks of a leader before us come off."""
        if self.emptying:
            await self._go_on()
            return
        left = [name for name, view in self.book.cluster.nodes.items() if self._marked(view.node)]
        for name in left:
            await drop_taint(self.evictor.client, name, EMPTYING, self.sleeper.owner)
        found = self.best() if not self.book.waiting else None  # who waits needs the room more
        if found is None or not await self._mark(found.node):
            return
        self.emptying, self._since_s = found.node, self.clock()
        text = (
            f"emptied to sleep: {len(found.pods)} pods move for {found.moved_j:.0f} J, {found.saved_j:.0f} J are saved"
        )
        view = self.book.cluster.nodes[found.node]
        self.binder.event_of("Node", view.node.metadata, "Normal", "Consolidating", text)
        log.info("node %s: %s", found.node, text)
        if not self.sleeper.dry_run:
            await self._evict(found.pods)

    def best(self) -> Emptying | None:
        """Return the node whose emptying saves most, within everybody's wishes; None where none is worth it."""
        found = [one for one in map(self._worth, list(self.book.cluster.nodes.values())) if one is not None]
        found.sort(key=lambda one: (one.saved_j - one.moved_j, one.node), reverse=True)
        # each trial copies all nodes: in a large full cluster hundreds of them would keep bindings waiting
        tried = itertools.islice(found, _MOST_TRIALS)
        return next((one for one in tried if self._fit_elsewhere(one.pods, one.node)), None)

    # inside

    def _worth(self, view: snapshot.NodeView) -> Emptying | None:
        name, sleeper = view.node.metadata.name, self.sleeper
        pods = tuple(one for one in view.pods.values() if not sleeping.is_daemon(one))
        if self.clock() < self._not_before_s.get(name, -math.inf):
            return None
        if not 0 < len(pods) <= _MOST_PODS or not sleeping.may_sleep(view.node) or name in sleeper.states:
            return None
        against = None if sleeper.allowance is None else sleeper.allowance.against(name)
        if against is not None or any(stays(one) is not None for one in pods) or self.evictor.protected(pods):
            return None
        idle_w = self.watts.node_w(view, -view.requested.get(accounting.CPU, 0))
        if idle_w is None:
            return None
        sleep = sleep_facts.of(view.node, self.usual)
        saved_j = (idle_w - sleep.watts) * _HORIZON_S - idle_w * (sleep.wake_s + sleep.enter_s)
        moved_j = sum(self._moving_j(one, view) for one in pods)
        return Emptying(name, pods, saved_j, moved_j) if saved_j > moved_j else None

    def _moving_j(self, pod: objects.Pod, view: snapshot.NodeView) -> float:
        """Joules of what is done twice: a start, and of a pod that runs to an end all that it has done."""
        cores_m = accounting.pod_requests(pod).get(accounting.CPU, 0)
        added_w = self.watts.node_w(view, 0) or 0.0
        added_w -= self.watts.node_w(view, -cores_m) or 0.0
        ends = any(owner.kind in ("Job", "Workflow") for owner in pod.metadata.owner_references)
        return max(0.0, added_w) * (_RESTART_S + (self._ran_s(pod) if ends else 0.0))

    def _ran_s(self, pod: objects.Pod) -> float:
        began = pod.status.start_time
        if not began:
            return 0.0
        return max(0.0, self.wall() - datetime.datetime.fromisoformat(began.replace("Z", "+00:00")).timestamp())

    def _fit_elsewhere(self, pods: Iterable[objects.Pod], name: str) -> bool:
        """Tell whether nodes that are on take them all, by the same filters as every binding, one after another."""
        nodes = {
            key: view.copy()
            for key, view in self.book.cluster.nodes.items()
            if key != name and self.sleeper.states.get(key, Power.ON) is Power.ON
        }
        cluster = self.book.cluster.among(nodes)
        for pod in pods:
            free = accounting.pod_requests(pod)
            bare = _as_new(pod)
            for view in nodes.values():
                # an empty node would only take the place of this one
                used = any(not sleeping.is_daemon(one) for one in view.pods.values())
                if not used or feasible.lacking(free, view) or feasible.standing(bare, view.node):
                    continue
                if feasible.counted_against(feasible.Question.of(bare, cluster), view) is None:
                    view.add(pod)
                    break
            else:
                return False
        return True

    async def _go_on(self) -> None:
        """Wait until the node sleeps or is given up; its pods are evicted once."""
        asleep = self.sleeper.states.get(self.emptying) is Power.ASLEEP
        gone = self.emptying not in self.book.cluster.nodes
        if asleep or gone or self.clock() - self._since_s > _LIMIT_S:
            if not gone:
                await drop_taint(self.evictor.client, self.emptying, EMPTYING, self.sleeper.owner)
            if not asleep:  # what kept it is likely to keep it: others are tried first
                self._not_before_s[self.emptying] = self.clock() + _LIMIT_S
            self.emptying = ""

    async def _evict(self, pods: Iterable[objects.Pod]) -> None:
        for pod in pods:
            try:
                await self.evictor.evict(pod)
            except ApiError as error:
                if error.code != 429:
                    raise
                self._since_s = -math.inf  # a budget: the rest stays, and with it the node
                return

    async def _mark(self, name: str) -> bool:
        """Put our taint on a node, unless it is somebody's by now: the watch that chose it may be behind."""
        taken = lambda node: self.sleeper.held(msgspec.convert(node, objects.Node)) is not None  # noqa: E731
        return await put_taint(self.evictor.client, name, EMPTYING, self.sleeper.owner, taken)

    def _marked(self, node: objects.Node) -> bool:
        return any(one.key == EMPTYING and one.value == self.sleeper.owner for one in node.spec.taints)


def _as_new(pod: objects.Pod) -> objects.Pod:
    """Return a pod as its controller would make it: without a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
