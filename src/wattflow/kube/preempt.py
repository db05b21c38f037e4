"""Preemption: a pod that fits nowhere may have pods of lower priority evicted, never against a PodDisruptionBudget.

Who goes is chosen as kube-scheduler does: on each node all pods of lower priority are thought away, as many as possible
are let back, those of highest priority first, and the node is taken whose victims matter least. Two things differ:
nodes on which a budget would be broken are left out, and victims are evicted, not deleted, so that the API server
enforces the budgets itself. The room is kept for the pod until it is bound or gone, or until evictions would not help
it any more. While a victim takes its time to end, nobody else is evicted for the same pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import accounting, gangs, objects
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.filters import feasible, selectors, snapshot
from wattflow.kube.last_look import Nominated
from wattflow.kube.reflect import DELETED, Mirror

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


class BudgetSpec(objects.Object):
    selector: objects.LabelSelector | None = None


class BudgetStatus(objects.Object):
    disruptions_allowed: int = 0


class Budget(objects.Spaced):
    """A PodDisruptionBudget: how many of the pods that it selects may be disturbed now."""

    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)

    def covers(self, pod: objects.Pod) -> bool:
        """Tell whether the budget is about a pod."""
        return self.metadata.namespace == pod.metadata.namespace and selectors.matches(
            self.spec.selector, pod.metadata.labels
        )


def protected(pods: Iterable[objects.Pod], budgets: Sequence[Budget]) -> set[str]:
    """Tell whose eviction would break a budget if all of those before went, by uid.

    The API server evicts no pod that several budgets cover, whatever they allow; so such a pod counts as protected.
    """
    left = {budget.key: budget.status.disruptions_allowed for budget in budgets}
    found: set[str] = set()
    for pod in pods:
        covering = [budget.key for budget in budgets if budget.covers(pod)]
        for key in covering:
            left[key] -= 1
        if len(covering) > 1 or any(left[key] < 0 for key in covering):
            found.add(pod.metadata.uid)
    return found


@dataclass(slots=True)
class Evictor:
    """Follows the budgets of a cluster and evicts pods; the API server has the last word on each."""

    client: Client
    budgets: dict[str, Budget] = field(default_factory=dict)

    def mirror(self) -> Mirror[Budget]:
        """Return what follows the budgets."""
        return Mirror(self.client, BUDGETS, Budget, self.on_budget)

    def on_budget(self, change: str, budget: Budget) -> None:
        """Take up a budget."""
        if change == DELETED:
            self.budgets.pop(budget.key, None)
        else:
            self.budgets[budget.key] = budget

    def protected(self, pods: Iterable[objects.Pod]) -> set[str]:
        """Tell whose eviction would break a budget, by uid; see the function of this name."""
        return protected(pods, list(self.budgets.values()))

    async def evict(self, pod: objects.Pod) -> None:
        """Send one pod away; one that is gone is what was wanted."""
        about = pod.metadata
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": about.name, "namespace": about.namespace},
            "deleteOptions": {"preconditions": {"uid": about.uid}},
        }  # fmt: skip
        try:
            await self.client.call("POST", f"/api/v1/namespaces/{about.namespace}/pods/{about.name}/eviction", body)
        except ApiError as error:
            if error.code != 404:
                raise


log = logging.getLogger(__name__)
_LOOK_S, _AFTER_S, _AGAIN_S = 1.0, 1.0, 10.0
_LOST = (ApiError, aiohttp.ClientError, TimeoutError, OSError)
_THINK_S = 0.2
"""How long plans may be made in one look: bindings wait meanwhile, for all runs in one loop. Writing counts not: it
leaves the loop to others, and a slow API server must not make us take one pod a second."""
_MOST_NODES = 100
"""Nodes on which victims are looked for, at a time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Victims on one node; those that are ending already only have to be waited for."""

    node: str
    victims: Sequence[objects.Pod]

    @property
    def evicted(self) -> list[objects.Pod]:
        """Return whom somebody has to send away."""
        return [one for one in self.victims if one.metadata.deletion_timestamp is None]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Compare plans: highest priority among the victims, sum of priorities, their number."""
        levels = [pod.spec.priority for pod in self.victims]
        return max(levels), sum(level + 2**31 for level in levels), len(levels)

    @property
    def since(self) -> str:
        """Return when the first of the most important victims started."""
        highest = max(pod.spec.priority for pod in self.victims)
        return min(pod.status.start_time or "" for pod in self.victims if pod.spec.priority == highest)


def plan(
    pod: objects.Pod, cluster: snapshot.Snapshot, budgets: Iterable[Budget], serves: Callable[[objects.Node], bool]
) -> Plan | None:
    """Choose the node whose victims matter least, or None where no eviction would help within the budgets.

    Of equal ones that whose victims have run for the shortest time, so that the least work is lost; then by name.
    """
    known = list(budgets)
    found = sorted(itertools.islice(_plans(pod, cluster, known, serves), _MOST_NODES), key=lambda one: one.node)
    least = min((one.cost for one in found), default=None)
    return max((one for one in found if one.cost == least), key=lambda one: one.since, default=None)


def _plans(
    pod: objects.Pod, cluster: snapshot.Snapshot, budgets: Sequence[Budget], serves: Callable[[objects.Node], bool]
) -> Iterator[Plan]:
    amounts = accounting.pod_requests(pod)
    for name, view in cluster.nodes.items():
        lower = [one for one in view.pods.values() if one.spec.priority < pod.spec.priority]
        if not lower or not serves(view.node) or feasible.standing(pod, view.node) is not None:
            continue
        trial = _Trial(pod, amounts, cluster, name)
        for one in lower:
            trial.view.remove(one.metadata.uid)
        if not trial.fits():
            continue
        victims = _victims(trial, lower, budgets)
        if victims:
            yield Plan(name, victims)


def _victims(trial: _Trial, lower: Sequence[objects.Pod], budgets: Sequence[Budget]) -> list[objects.Pod]:
    """Let back whom there is room for; nobody is evicted where a budget would be broken."""
    rest = sorted(lower, key=lambda one: (-one.spec.priority, one.status.start_time or ""))
    # no budget can keep who is on the way out already
    tight = protected([one for one in rest if one.metadata.deletion_timestamp is None], budgets)
    # those whom a budget protects come back first, then the others; the higher the priority the sooner
    rest.sort(key=lambda one: one.metadata.uid not in tight)
    victims = [one for one in rest if not trial.lets_back(one)]
    return victims if tight.isdisjoint(one.metadata.uid for one in victims) else []


@dataclass(slots=True)
class _Trial:
    """One node with some of its pods thought away."""

    pod: objects.Pod
    amounts: accounting.Amounts
    cluster: snapshot.Snapshot
    name: str
    view: snapshot.NodeView = field(init=False)

    def __post_init__(self) -> None:
        self.view = self.cluster.nodes[self.name].copy()

    def fits(self) -> bool:
        if feasible.lacking(self.amounts, self.view) is not None:
            return False
        nodes = {**self.cluster.nodes, self.name: self.view}
        asked = feasible.Question.of(self.pod, self.cluster.among(nodes))
        return feasible.counted_against(asked, self.view) is None

    def lets_back(self, other: objects.Pod) -> bool:
        self.view.add(other)
        if self.fits():
            return True
        self.view.remove(other.metadata.uid)
        return False


@dataclass(slots=True)
class Preemptor:
    """Looks for pods that wait in vain, and has victims evicted for them, one pod at a time."""

    evictor: Evictor
    book: Book
    binder: Binder
    clock: Callable[[], float]
    _tried_s: dict[str, float] = field(default_factory=dict)

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if may_write():
                await self.look()

    async def look(self) -> None:
        """Consider the waiting pods that have not been considered lately, those of highest priority first."""
        now_s, book = self.clock(), self.book
        waited = [
            pod for uid, pod in book.waiting.items()
            if now_s - book.since_s.get(uid, now_s) >= _AFTER_S
            and now_s - self._tried_s.get(uid, -_AGAIN_S) >= _AGAIN_S and self._may(pod)
        ]  # fmt: skip
        self._tried_s = {uid: at_s for uid, at_s in self._tried_s.items() if uid in book.waiting}
        thought_s = 0.0
        async with asyncio.TaskGroup() as writes:
            for pod in sorted(waited, key=lambda one: -one.spec.priority):
                began_s = self.clock()
                if thought_s > _THINK_S:
                    break
                if pod.metadata.uid in book.waiting:  # else placed while a plan before was carried out
                    self._tried_s[pod.metadata.uid] = now_s
                    order = self._consider(pod)
                    thought_s += self.clock() - began_s
                    if order is not None:
                        writes.create_task(order)
                        await asyncio.sleep(0)

    def _consider(self, pod: objects.Pod) -> Coroutine[None, None, None] | None:
        """Return what has to be written for a pod; the room is kept for it from now on."""
        uid, nominated = pod.metadata.uid, self.book.nominated
        if uid not in nominated and pod.status.nominated_node_name in self.book.cluster.nodes:
            # victims were evicted for it by a run of us before this one
            nominated[uid] = Nominated(pod.status.nominated_node_name, pod, accounting.pod_requests(pod))
        if self._awaits_victims(pod):
            return None
        found = self.plan(pod)
        if found is not None:
            nominated[uid] = Nominated(found.node, pod, accounting.pod_requests(pod))
            return self._carry_out(pod, found)
        if uid in nominated and not self._fits(pod):
            self.book.unkeep(uid)  # nothing helps it now: others may have the room
            return self._give_up(pod)
        return None

    async def _give_up(self, pod: objects.Pod) -> None:
        with contextlib.suppress(*_LOST):  # only a note; the next run of us would keep the room a while
            await self._note(pod, None)

    def _may(self, pod: objects.Pod) -> bool:
        refused = pod.metadata.uid in self.book.refused
        return not refused and pod.spec.preemption_policy != "Never" and gangs.gang_of(pod) is None

    def _awaits_victims(self, pod: objects.Pod) -> bool:
        """Tell whether pods still end on the node that is kept for it: evicting more elsewhere would be too much."""
        kept = self.book.nominated.get(pod.metadata.uid)
        view = self.book.cluster.nodes.get(kept.node) if kept is not None else None
        return view is not None and any(
            one.metadata.deletion_timestamp is not None and one.spec.priority < pod.spec.priority
            for one in view.pods.values()
        )

    def _fits(self, pod: objects.Pod) -> bool:
        """Tell whether a node could take the pod as it is, what is kept for others left alone."""
        cluster = self.book.nominated.counted(pod, self.book.cluster)
        reasons = feasible.feasible(pod, cluster)
        return any(why is None and self.book.serves(cluster.nodes[name].node) for name, why in reasons.items())

    def plan(self, pod: objects.Pod) -> Plan | None:
        """Return whom to evict; nobody where a node could take the pod as it is: then something else keeps it."""
        if self._fits(pod):
            return None
        cluster = self.book.nominated.counted(pod, self.book.cluster)
        return plan(pod, cluster, self.evictor.budgets.values(), self.book.serves)

    async def _carry_out(self, pod: objects.Pod, found: Plan) -> None:
        try:
            await self._note(pod, found.node)
            for victim in found.evicted:
                await self._evict(victim, pod, found.node)
        except _LOST as error:
            self.book.unkeep(pod.metadata.uid)
            log.warning("%s: preemption on %s was not carried out: %s", pod.key, found.node, error)

    async def _note(self, pod: objects.Pod, node: str | None) -> None:
        """Tell in the pod's status which node is kept for it, or that none is."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        body: Mapping[str, object] = {"status": {"nominatedNodeName": node}, "metadata": {"uid": pod.metadata.uid}}
        await self.evictor.client.call("PATCH", path, body, content=MERGE)

    async def _evict(self, victim: objects.Pod, pod: objects.Pod, node: str) -> None:
        await self.evictor.evict(victim)
        self.binder.event(victim, "Normal", "Preempted", f"Preempted by {pod.key} on {node}")
