"""Preemption: a pod that fits nowhere may have pods of lower priority evicted, never against a PodDisruptionBudget.

Who goes is chosen as kube-scheduler does: on each node all pods of lower priority are thought away, as many as possible
are let back, those of highest priority first, and the node is taken whose victims matter least. Two things differ:
nodes on which a budget would be broken are left out, and victims are evicted, not deleted, so that the API server
enforces the budgets itself. The room is kept for the pod until it is bound or gone.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import accounting, gangs, objects
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.filters import feasible, selectors, snapshot
from wattflow.kube.nominated import Nominated
from wattflow.kube.reflect import DELETED, Mirror

log = logging.getLogger(__name__)
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_LOOK_S, _AFTER_S, _AGAIN_S = 1.0, 1.0, 10.0
_MOST_NODES = 100
"""Nodes on which victims are looked for, at a time."""


class BudgetSpec(objects.Object):
    selector: objects.LabelSelector | None = None


class BudgetStatus(objects.Object):
    disruptions_allowed: int = 0


class Budget(objects.Object):
    """A PodDisruptionBudget: how many of the pods that it selects may be disturbed now."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def covers(self, pod: objects.Pod) -> bool:
        """Tell whether the budget is about a pod."""
        return self.metadata.namespace == pod.metadata.namespace and selectors.matches(
            self.spec.selector, pod.metadata.labels
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Victims on one node."""

    node: str
    victims: Sequence[objects.Pod]

    @property
    def cost(self) -> tuple[int, int, int, str]:
        """Compare plans: highest priority among the victims, sum of priorities, their number; ties by name."""
        levels = [pod.spec.priority for pod in self.victims]
        return max(levels), sum(level + 2**31 for level in levels), len(levels), self.node


def plan(
    pod: objects.Pod, cluster: snapshot.Snapshot, budgets: Iterable[Budget], serves: Callable[[objects.Node], bool]
) -> Plan | None:
    """Choose the node whose victims matter least, or None where no eviction would help within the budgets."""
    known = list(budgets)
    found = itertools.islice(_plans(pod, cluster, known, serves), _MOST_NODES)
    return min(found, key=lambda one: one.cost, default=None)


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
    # who is on the way out already is counted as gone: room comes by itself
    rest = [one for one in lower if one.metadata.deletion_timestamp is None]
    full = [budget for budget in budgets if budget.status.disruptions_allowed < 1]
    tight = {one.metadata.uid for one in rest if any(budget.covers(one) for budget in full)}
    # those whom a budget protects come back first, then the others; the higher the priority the sooner
    rest.sort(key=lambda one: (one.metadata.uid not in tight, -one.spec.priority, one.status.start_time or ""))
    victims = [one for one in rest if not trial.lets_back(one)]
    left = {budget.key: budget.status.disruptions_allowed for budget in budgets}
    for one in victims:
        for budget in budgets:
            if budget.covers(one):
                left[budget.key] -= 1
    return victims if all(count >= 0 for count in left.values()) else []


@dataclass(slots=True)
class _Trial:
    """One node with some of its pods thought away."""

    pod: objects.Pod
    amounts: accounting.Amounts
    cluster: snapshot.Snapshot
    name: str
    view: snapshot.NodeView = field(init=False)

    def __post_init__(self) -> None:
        view = self.cluster.nodes[self.name]
        self.view = copy.copy(view)
        for table in ("requested", "pods", "taken", "gpus", "used_ports"):
            setattr(self.view, table, dict(getattr(view, table)))

    def fits(self) -> bool:
        if feasible.lacking(self.amounts, self.view) is not None:
            return False
        nodes = {**self.cluster.nodes, self.name: self.view}
        asked = feasible.Question.of(self.pod, snapshot.Snapshot(nodes, self.cluster.namespaces, self.cluster.storage))
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

    client: Client
    book: Book
    binder: Binder
    clock: Callable[[], float]
    budgets: dict[str, Budget] = field(default_factory=dict)
    _tried_s: dict[str, float] = field(default_factory=dict)

    def mirror(self) -> Mirror[Budget]:
        """Return what follows the budgets."""
        return Mirror(self.client, BUDGETS, Budget, self.on_budget)

    def on_budget(self, change: str, budget: Budget) -> None:
        """Take up a budget."""
        if change == DELETED:
            self.budgets.pop(budget.key, None)
        else:
            self.budgets[budget.key] = budget

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if may_write():
                await self.look()

    async def look(self) -> None:
        """Consider the waiting pod of highest priority that has not been considered lately."""
        now_s, book = self.clock(), self.book
        waited = [
            pod for uid, pod in book.waiting.items()
            if now_s - book.since_s.get(uid, now_s) >= _AFTER_S
            and now_s - self._tried_s.get(uid, -_AGAIN_S) >= _AGAIN_S and self._may(pod)
        ]  # fmt: skip
        self._tried_s = {uid: at_s for uid, at_s in self._tried_s.items() if uid in book.waiting}
        for pod in sorted(waited, key=lambda one: -one.spec.priority)[:1]:
            self._tried_s[pod.metadata.uid] = now_s
            found = self.plan(pod)
            if found is not None:
                await self._carry_out(pod, found)

    def _may(self, pod: objects.Pod) -> bool:
        refused = pod.metadata.uid in self.book.refused
        return not refused and pod.spec.preemption_policy != "Never" and gangs.gang_of(pod) is None

    def plan(self, pod: objects.Pod) -> Plan | None:
        """Return whom to evict; nobody where a node could take the pod as it is: then something else keeps it."""
        cluster, serves = self.book.cluster, self.book.serves
        reasons = feasible.feasible(pod, cluster)
        if any(why is None and serves(cluster.nodes[name].node) for name, why in reasons.items()):
            return None
        return plan(pod, cluster, self.budgets.values(), serves)

    async def _carry_out(self, pod: objects.Pod, found: Plan) -> None:
        amounts = accounting.pod_requests(pod)
        self.book.nominated[pod.metadata.uid] = Nominated(found.node, pod.spec.priority, amounts)
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        body: Mapping[str, object] = {
            "status": {"nominatedNodeName": found.node},
            "metadata": {"uid": pod.metadata.uid},
        }
        try:
            await self.client.call("PATCH", path, body, content=MERGE)
            for victim in found.victims:
                await self._evict(victim, pod, found.node)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            self.book.nominated.pop(pod.metadata.uid, None)
            log.warning("%s: preemption on %s was not carried out: %s", pod.key, found.node, error)

    async def _evict(self, victim: objects.Pod, pod: objects.Pod, node: str) -> None:
        about = victim.metadata
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": about.name, "namespace": about.namespace},
            "deleteOptions": {"preconditions": {"uid": about.uid}},
        }  # fmt: skip
        await self.client.call("POST", f"/api/v1/namespaces/{about.namespace}/pods/{about.name}/eviction", body)
        self.binder.event(victim, "Normal", "Preempted", f"Preempted by {pod.key} on {node}")
