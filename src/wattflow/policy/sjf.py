"""Shortest job first: waiting tasks by estimated runtime, on the least loaded node.

Tasks without an estimate come last. O(log waiting) to queue, O(candidates) to place; ties in the queue go to the task
that entered first, ties between nodes to the lower index.
"""

from __future__ import annotations

import math

from wattflow.engine.tables import UNKNOWN_COST
from wattflow.policy import least_loaded
from wattflow.policy.base import Policy


def priority(state, task):  # type: ignore[no-untyped-def]
    """The estimate."""
    estimate = state.tasks.estimate[task]
    return UNKNOWN_COST if math.isnan(estimate) else estimate


SJF = Policy("sjf", "shortest estimated runtime first", score=least_loaded.score, priority=priority)
