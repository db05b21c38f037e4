"""UNICEP (also UNICEF): quick turn-round for small, short tasks.

Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009,
doi:10.1109/CLUSTR.2009.5289206. O(waiting) whenever something fits; ties go to the task that entered first. Tasks
without an estimate come last. The formula divides by log₂ cores, which is 0 for one core; below two cores 2 is taken.
"""

from __future__ import annotations

import math

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.engine.tables import UNKNOWN_COST
from wattflow.policy import costs, least_loaded
from wattflow.policy.base import Policy


def priority(state, task):  # type: ignore[no-untyped-def]
    """−waited / (log₂(cores) · runtime)."""
    estimate = state.tasks.estimate[task]
    if math.isnan(estimate):
        return UNKNOWN_COST
    width = math.log(max(2.0, costs.cores(state, task))) / math.log(2.0)
    return -view.waited_s(state, task) / (width * max(estimate, 1e-9))


UNICEP = Policy(
    "unicep",
    "longest wait first, small and short tasks favoured",
    "10.1109/CLUSTR.2009.5289206",
    score=least_loaded.score,
    priority=priority,
    settings=Settings(dynamic=True),
)
