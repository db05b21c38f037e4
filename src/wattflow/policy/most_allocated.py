"""Most allocated: the fullest node that still has room (best fit; kube-scheduler's MostAllocated strategy).

O(candidates) per task; ties go to the lower index.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy


def score(state, task, variant, out):
    """1 − (share of cores + share of memory) / 2, the task included."""
    for c in range(out.size):
        out[c] = 1.0 - 0.5 * (view.core_share(state, variant, c) + view.memory_share(state, variant, c))


MOST_ALLOCATED = Policy(
    "most-allocated", "the fullest node that still has room", score=score, settings=PolicySettings(local=True)
)
