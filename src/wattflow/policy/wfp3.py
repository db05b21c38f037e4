"""WFP3: tasks that have waited long for their length come first, large ones above all.

Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009,
doi:10.1109/CLUSTR.2009.5289206. O(waiting) whenever something fits (the order changes with time); ties go to the task
that entered first. Tasks without an estimate come last.
"""

from __future__ import annotations

import math

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.engine.tables import UNKNOWN_COST
from wattflow.policy import costs, least_loaded
from wattflow.policy.base import Policy


def priority(state, task):  # type: ignore[no-untyped-def]
    """−(waited / runtime)³ · cores."""
    estimate = state.tasks.estimate[task]
    if math.isnan(estimate):
        return UNKNOWN_COST
    ratio = view.waited_s(state, task) / max(estimate, 1e-9)
    return -ratio * ratio * ratio * costs.cores(state, task)


WFP3 = Policy(
    "wfp3",
    "longest wait for its length first, cubed",
    "10.1109/CLUSTR.2009.5289206",
    score=least_loaded.score,
    priority=priority,
    settings=Settings(dynamic=True),
)
