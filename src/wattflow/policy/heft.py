"""HEFT with insertion: highest upward rank first, on the node where it ends first.

Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for heterogeneous computing. IEEE TPDS
13(3), 2002, 10.1109/71.993206. Streams of workflows are planned together, each task not before its release.

O(tasks × node classes + edges) for the ranks, O(tasks × nodes × slots in a node) for the slots. Ties: of equal ranks
the task nearer the entry, then the lower index; of equal ends the lower node, then the earlier variant.
"""

from __future__ import annotations

from collections.abc import Mapping

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning.facts import Slots


def fill(problem: planning.PlanningProblem, params: Mapping[str, float]) -> tuple[planning.PlanningProblem, Slots]:
    """Plan a slot for every task."""
    # The problem goes back with the slots: other planners fill a changed one (`dewts` closes nodes).
    return problem, planning.schedule(problem, planning.upward_rank(problem))


def plan(workflow: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Plan a workflow at its arrival."""
    return planning.follow(workflow, cluster, committed, fill)


HEFT = Policy(
    "heft",
    "earliest finish by upward rank, with insertion",
    "10.1109/71.993206",
    plan=plan,
    params=planning.PARAMS,
)
