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
LEAST_LOADED = Policy(
    "least-loaded", "the least loaded node; another name for fifo", score=score, settings=PolicySettings(local=True)
)
FIFO_SLEEP = Policy("fifo-sleep", "fifo, and nodes sleep after idling half a minute", score=score, sleep_after_s=30.0)
