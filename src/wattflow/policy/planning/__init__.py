"""Parts that planning policies share: costs, ranks, slots in time, and the way from slots to a Plan."""

from wattflow.policy.planning.problem import (
    PARAMS,
    PlanningProblem,
    downward_rank,
    follow,
    makespan_s,
    problem,
    schedule,
    to_plan,
    upward_rank,
)

__all__ = [
    "PARAMS",
    "PlanningProblem",
    "downward_rank",
    "follow",
    "makespan_s",
    "problem",
    "schedule",
    "to_plan",
    "upward_rank",
]
