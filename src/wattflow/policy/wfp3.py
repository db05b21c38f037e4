"""WFP3: tasks that have waited long for their length come first, large ones above all.

Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009,
doi:10.1109/CLUSTR.2009.5289206. O(waiting) whenever something fits (the order changes with time); ties go to the task
that entered first. Tasks without an estimate come last.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import least_loaded, view
from wattflow.policy.base import Policy


def priority(state, task):
    """−(waited / runtime)³ · cores."""
    if not view.has_estimate(state, task):
        return view.UNKNOWN_COST
    estimate = view.estimate_s(state, task)
    # A task of no length would divide by 0.
    ratio = view.waited_s(state, task) / max(estimate, 1e-9)
    return -ratio * ratio * ratio * view.cores_of(state, task)


WFP3 = Policy(
    "wfp3",
    "longest wait for its length first, cubed",
    "10.1109/CLUSTR.2009.5289206",
    score=least_loaded.score,
    priority=priority,
    settings=PolicySettings(dynamic=True),
)
