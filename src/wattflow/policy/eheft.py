"""Energy-aware HEFT: HEFT's plan, then every task off the critical path moves to the thriftiest node its slack allows.

Lee, Zomaya: Minimizing energy consumption for precedence-constrained applications using dynamic voltage scaling.
CCGRID 2009, 10.1109/CCGRID.2009.16 (its makespan-conservative phase). Thanavanich and Uthayopas (ICSEC 2013) gave
energy-aware HEFT its name and move work away from inefficient processors. Here slack is spent by moving at the
nominal frequency (`dewts` spends it on frequencies too). No workflow ends later than HEFT plans it, or than that plus
``slack`` of its span; ``deadline`` = 0 leaves later deadlines out of account.

O(tasks × nodes × slots in a node). Ties: a task moves only for less energy; of equal joules the lower node, then the
earlier variant.
"""

from __future__ import annotations

from collections.abc import Mapping

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning import reclaim
from wattflow.policy.planning.facts import Slots


def fill(problem: planning.PlanningProblem, params: Mapping[str, float]) -> tuple[planning.PlanningProblem, Slots]:
    """Plan a slot for every task."""
    slots = planning.schedule(problem, planning.upward_rank(problem))
    # Limits by HEFT's own ends, before any task moves: the moves may use slack up, not make more of it.
    limit = reclaim.finish_by(problem, slots, params.get("slack", 0.0), params.get("deadline", 1.0) > 0)
    return problem, reclaim.reclaim(problem, slots, limit)


def plan(workflow: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Plan a workflow at its arrival."""
    return planning.follow(workflow, cluster, committed, fill)


EHEFT = Policy(
    "eheft",
    "HEFT, then slack spent on thriftier nodes",
    "10.1109/CCGRID.2009.16",
    plan=plan,
    params={**planning.PARAMS, "slack": 0.0, "deadline": 1.0},
)
