"""Shortest job first: waiting tasks by estimated runtime, on the least loaded node.

Tasks without an estimate come last. O(log waiting) to queue, O(candidates) to place; ties in the queue go to the task
that entered first, ties between nodes to the lower index.
"""

from __future__ import annotations

from wattflow.policy import least_loaded, view
from wattflow.policy.base import Policy


def priority(state, task):
    """Return the estimate."""
    return view.estimate_s(state, task) if view.has_estimate(state, task) else view.UNKNOWN_COST


SJF = Policy("sjf", "shortest estimated runtime first", score=least_loaded.score, priority=priority)
