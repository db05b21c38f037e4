"""Random: any node with room, each with the same chance, from the run's own seeded stream.

O(nodes) per task; ties have probability 0.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import effects
from wattflow.policy.base import Policy


def score(state, task, variant, out):
    """Draw a uniform number per candidate; the smallest wins."""
    for c in range(out.size):
        out[c] = effects.draw(state)


RANDOM = Policy("random", "any node with room, by a seeded draw", score=score, settings=PolicySettings(grouped=False))
