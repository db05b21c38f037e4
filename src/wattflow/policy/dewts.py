"""DEWTS: HEFT, fewer nodes while the deadline holds, then slack spent on lower frequencies.

Tang, Qi, Cheng, Li, Khan, Li: An energy-efficient task scheduling algorithm in DVFS-enabled cloud environment. Journal
of Grid Computing 14(1), 2016, 10.1007/s10723-015-9334-y. The limit of a workflow is its end in HEFT's plan plus
``slack`` of its span (or its deadline, if later and ``deadline`` is not 0). Nodes are sorted by the tasks that HEFT
gave them, then by watts for work; the last are closed and the rest planned anew as long as every limit holds (by
bisection: the paper closes one at a time). Then each task takes the slot, node and frequency of least energy that
delays nobody. The same is done without closing any node, and the plan of fewer joules is kept: a node that cannot
sleep saves nothing by being closed.

O(log nodes) plans as HEFT's, and one pass of O(tasks × nodes × frequencies × slots in a node). Ties as in HEFT; a task
moves or slows only for less energy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning import reclaim
from wattflow.policy.planning.facts import Floats, Longs, Slots

SETTINGS = PolicySettings(frequencies=(0, 1, 2, 3, 4, 5, 6, 7))


def node_order(problem: planning.PlanningProblem, slots: Slots) -> Longs:
    """Return nodes with most tasks first; of equally many the one that needs fewer joules for the same work."""
    facts = problem.facts
    tasks = np.bincount(slots.node[slots.node >= 0], minlength=len(facts.cls))
    work = np.where(np.isfinite(facts.factor), facts.factor, 0.0) * facts.watts
    # By the first offer of each shape that is there: a mean over all offers would count slow frequencies, too.
    thrift = work[facts.offer_first[np.unique(facts.shape)]].mean(axis=0) if len(facts.shape) else work.mean(axis=0)
    return np.lexsort((np.arange(len(tasks)), thrift[facts.cls], -tasks))


def merged(problem: planning.PlanningProblem, slots: Slots, limit_s: Floats) -> tuple[planning.PlanningProblem, Slots]:
    """Return the plan on the fewest nodes that keeps every limit, by bisection over how many stay open."""
    order, rank = node_order(problem, slots), planning.upward_rank(problem)
    best = (problem, slots)
    low, high = 1, len(np.unique(slots.node[slots.node >= 0]))
    while low < high:
        keep = (low + high) // 2
        free = problem.facts.free_u.copy()
        free[order[keep:]] = 0
        fewer = replace(problem, facts=problem.facts.changed(free_u=free))
        tried = planning.schedule(fewer, rank)
        # Sums of floats: an end that is the limit itself may lie
        # a rounding above it. Closing nodes must not drop a task.
        if (tried.end_s <= limit_s * (1.0 + 1e-12)).all() and ((tried.node >= 0) | (slots.node < 0)).all():
            best, high = (fewer, tried), keep
        else:
            low = keep + 1
    return best


def fill(problem: planning.PlanningProblem, params: Mapping[str, float]) -> tuple[planning.PlanningProblem, Slots]:
    """Plan a slot and a frequency for every task."""
    slots = planning.schedule(problem, planning.upward_rank(problem))
    limit = reclaim.finish_by(problem, slots, params.get("slack", 0.0), params.get("deadline", 1.0) > 0)
    kept = [(p, reclaim.reclaim(p, s, limit)) for p, s in (merged(problem, slots, limit), (problem, slots))]
    return min(kept, key=lambda pair: reclaim.joules(*pair))


def plan(workflow: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Plan a workflow at its arrival."""
    return planning.follow(workflow, cluster, committed, fill, settings=SETTINGS)


DEWTS = Policy(
    "dewts",
    "HEFT on few nodes, then slack spent on lower frequencies",
    "10.1007/s10723-015-9334-y",
    plan=plan,
    settings=SETTINGS,
    params={**planning.PARAMS, "slack": 0.0, "deadline": 1.0},
)
