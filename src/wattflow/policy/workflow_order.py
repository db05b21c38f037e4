"""Orders of the queue by workflow, for the setting ``order`` of a policy: least work or shortest critical path first.

Both keep a stream of workflows moving as SJF keeps a stream of jobs moving. Estimates at the cluster's mean speed;
computed once per workload in O(tasks + edges). Ties in the queue go to the task that entered first (so a workflow's
own tasks are first in, first out).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import levels, view
from wattflow.policy.base import Policy, vectorised


@vectorised
def by_work(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return core seconds of the task's workflow."""
    return levels.levels(workflow, cluster).work


@vectorised
def by_path(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return the critical path of the task's workflow."""
    return levels.levels(workflow, cluster).path


def path_first(state, task):
    """Return the critical path of the task's workflow."""
    return view.path_s(state, task)


ORDERS = {"work": by_work, "path": by_path}


def ordered(policy: Policy, order: str) -> Policy:
    """Give a policy another order of its queue.

    A score that reads `view.rank` keeps its own ranks: there the priority is replaced, which knows critical paths only.

    Raises:
        InvalidInput: No such order, or a policy that plans, whose queue follows the plan.
    """
    if order not in ORDERS:
        raise InvalidInput(policy.name, f"order is one of {', '.join(ORDERS)}, not {order!r}")
    if policy.plan is not None:
        raise InvalidInput(policy.name, "plans ahead, so its queue follows the plan; order is for policies that do not")
    # A rank is an order by itself: nothing of the policy's own is lost.
    if policy.priority is None and policy.rank is None:
        return replace(policy, rank=ORDERS[order])
    if order == "path":
        return replace(policy, priority=path_first, slack=True)
    raise InvalidInput(policy.name, f"has ranks of its own, which order={order} would replace; it takes order=path")
