"""UNICEP (also UNICEF): quick turn-round for small, short tasks.

Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009,
doi:10.1109/CLUSTR.2009.5289206. O(waiting) whenever something fits; ties go to the task that entered first. Tasks
without an estimate come last. The formula divides by log₂ cores, which is 0 for one core; below two cores 2 is taken.
"""

from __future__ import annotations

import math

from wattflow.engine.settings import PolicySettings
from wattflow.policy import least_loaded, view
from wattflow.policy.base import Policy


def priority(state, task):
    """−waited / (log₂(cores) · runtime)."""
    if not view.has_estimate(state, task):
        return view.UNKNOWN_COST
    estimate = view.estimate_s(state, task)
    # The formula divides by log₂ cores, which is 0 for one core: fewer than two count as two.
    width = math.log(max(2.0, view.cores_of(state, task))) / math.log(2.0)
    # An estimate may be 0 seconds.
    return -view.waited_s(state, task) / (width * max(estimate, 1e-9))


UNICEP = Policy(
    "unicep",
    "longest wait first, small and short tasks favoured",
    "10.1109/CLUSTR.2009.5289206",
    score=least_loaded.score,
    priority=priority,
    # Keys change while tasks wait, each at its own rate: one made at arrival would be stale.
    settings=PolicySettings(dynamic=True),
)
