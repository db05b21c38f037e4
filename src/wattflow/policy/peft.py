"""PEFT: HEFT that looks ahead through a table of optimistic costs.

Arabnejad, Barbosa: List scheduling algorithm for heterogeneous systems by an optimistic cost table. IEEE TPDS 25(3),
2014, 10.1109/TPDS.2013.57.

    OCT(t, p) = max over children s of min over q ( OCT(s, q) + cost(s, q) + (0 if q = p else mean communication) )

The ready task with the highest mean OCT is next, on the processor where end + OCT is least. Processors of a class
have the same row, and staying on p costs no more than moving to its twin, so a column per node class is exact:
O((tasks + edges) × classes) for the table, O(tasks × nodes × slots in a node) for the slots. Ties as in HEFT.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning.facts import Floats, Slots, jit


def optimistic_costs(problem: planning.PlanningProblem) -> Floats:
    """Return the OCT by task and node class; inf where a child could not run at all."""
    table = np.zeros(problem.cost_s.shape)
    facts = problem.facts
    # A task that fits nowhere is left to the engine; its mean keeps its parents' rows finite.
    able = np.isfinite(problem.cost_s).any(axis=1, keepdims=True)
    cost = np.where(able, problem.cost_s, problem.mean_s[:, None])
    _fill(problem.order, facts.child_start, facts.child, problem.edge_s(), cost, table)
    return table


@jit
def _fill(order, child_start, child, edge_s, cost_s, table):
    least = np.zeros(order.size)
    for i in range(order.size - 1, -1, -1):
        task = order[i]
        for e in range(child_start[task], child_start[task + 1]):
            s = child[e]
            for c in range(table.shape[1]):
                stay = table[s, c] + cost_s[s, c]
                # The minimum over q: stay on this class without a transfer, or go to the best of all with one.
                table[task, c] = max(table[task, c], min(stay, least[s] + edge_s[e]))
        best = np.inf
        for c in range(table.shape[1]):
            best = min(best, table[task, c] + cost_s[task, c])
        least[task] = best


def fill(problem: planning.PlanningProblem, params: Mapping[str, float]) -> tuple[planning.PlanningProblem, Slots]:
    """Plan a slot for every task."""
    table = optimistic_costs(problem)
    return problem, planning.schedule(problem, table @ problem.weight, bias=table)


def plan(workflow: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Plan a workflow at its arrival."""
    return planning.follow(workflow, cluster, committed, fill)


PEFT = Policy(
    "peft",
    "earliest finish plus an optimistic table of what follows",
    "10.1109/TPDS.2013.57",
    plan=plan,
    params=planning.PARAMS,
)
