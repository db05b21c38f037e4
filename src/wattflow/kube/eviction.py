"""Evictions: PodDisruptionBudgets as the API server holds them, and the one call that sends a pod away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.filters import selectors
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
