"""CPOP: the tasks of the critical path share one processor, the others go where they end first.

Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for heterogeneous computing. IEEE TPDS
13(3), 2002, 10.1109/71.993206. A task's priority is its upward plus its downward rank; the ready task of highest
priority is next. Each workflow of a stream has its own critical path and its own processor for it: a node of the
class where the path is shortest, the one with the least such work so far (in the paper there is one workflow and the
nodes all differ).

O(tasks × node classes + edges) for the ranks, O(tasks × nodes × slots in a node) for the slots. Ties as in HEFT; of
equally quick classes and nodes the one with the lower index.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning.facts import Floats, Longs, Slots

_SAME = 1e-9
"""Priorities that differ by less, relatively, are those of one path."""


def priority(problem: planning.PlanningProblem) -> Floats:
    """rank_u + rank_d: the length of the longest path through a task."""
    return planning.upward_rank(problem) + planning.downward_rank(problem)


def critical_path(problem: planning.PlanningProblem, length: Floats, entry: int) -> list[int]:
    """From an entry along children whose priority is the path's."""
    facts = problem.facts
    path = [entry]
    while True:
        task = path[-1]
        children = facts.child[facts.child_start[task] : facts.child_start[task + 1]]
        # Sums of floats along two paths of one length differ in their last digits.
        on_path = children[length[children] >= length[entry] * (1.0 - _SAME)]
        if not len(on_path):
            return path
        path.append(int(on_path.min()))


def path_nodes(problem: planning.PlanningProblem, length: Floats) -> Longs:
    """Return the node of each task on a critical path; −1 elsewhere."""
    facts = problem.facts
    only = np.full(len(length), -1, np.int64)
    entries = np.flatnonzero(np.diff(facts.parent_start) == 0)
    workflow = problem.workload.workflow[entries]
    # By workflow, then the longest path, then the lower index.
    best = entries[np.lexsort((entries, -length[entries], workflow))]
    firsts = best[np.unique(problem.workload.workflow[best], return_index=True)[1]]
    held = problem.holds
    load = np.bincount(held["node"], held["end_s"] - held["start_s"], minlength=len(facts.cls))
    for entry in firsts.tolist():
        path = critical_path(problem, length, entry)
        cost = problem.cost_s[path]
        # A large number instead of inf, so that a class which lacks
        # one offer still compares with others that lack more.
        total = np.where(np.isfinite(cost), cost, 1e12).sum(axis=0)
        members = np.flatnonzero(facts.cls == int(total.argmin()))
        node = int(members[load[members].argmin()])
        load[node] += float(total.min())
        # Tasks of the path that this node cannot run go where they end first.
        able = np.isfinite(cost[:, facts.cls[node]])
        only[np.array(path)[able]] = node
    return only


def fill(problem: planning.PlanningProblem, params: Mapping[str, float]) -> tuple[planning.PlanningProblem, Slots]:
    """Plan a slot for every task."""
    length = priority(problem)
    return problem, planning.schedule(problem, length, only=path_nodes(problem, length))


def plan(workflow: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Plan a workflow at its arrival."""
    return planning.follow(workflow, cluster, committed, fill)


CPOP = Policy(
    "cpop",
    "critical path on one processor, the rest where it ends first",
    "10.1109/71.993206",
    plan=plan,
    params=planning.PARAMS,
)
