"""How far estimates err, by the tasks that have ended: what a planner was told counts as some tasks more.

The logarithm of runtime over estimate of every ended task, both on a node of speed 1, is squared; σ is the root of the
mean, ``WORTH`` tasks with the told σ among them. So estimates that are all too long or too short count as erring too.
Tasks that still run are left out, though long ones are among them: shortly after an arrival σ is rather too small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattflow.model.workload import Workload
from wattflow.plan.offers import Floats

WORTH = 4.0
"""Ended tasks that what was told is worth."""
MOST = 0.5
"""Above it draws are so far apart that they tell nothing of a plan."""


def spread(told: float, known: Sequence[Workload], ended_s: Sequence[Floats]) -> float:
    """σ of the logarithm of runtimes round their estimates; as told where no task with an estimate has ended.

    Args:
        told: σ before any has ended.
        known: Workflows as estimated.
        ended_s: Of each, the seconds of its tasks on a node of speed 1; nan of those that have not ended.
    """
    squares, count = WORTH * told**2, 0
    for workflow, seconds in zip(known, ended_s, strict=True):
        shows = (seconds > 0.0) & (workflow.estimate_s > 0.0) & np.isfinite(workflow.estimate_s)
        squares += float((np.log(seconds[shows] / workflow.estimate_s[shows]) ** 2).sum())
        count += int(shows.sum())
    return min(MOST, float(np.sqrt(squares / (WORTH + count)))) if count else told


__all__ = ["MOST", "WORTH", "spread"]
