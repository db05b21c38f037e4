"""First in, first out, on the least loaded node.

The plain baseline of every comparison, and the benchmark's policy. O(candidates) per task; ties go to the lower
index.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy


def score(state, task, variant, out):
    """Guaranteed cores in use over what requests may sum to."""
    for c in range(out.size):
        out[c] = view.load(state, c)


FIFO = Policy("fifo", "first in, first out on the least loaded node", score=score, settings=PolicySettings(local=True))
