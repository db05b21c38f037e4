"""Least energy: where the task adds the fewest joules, now.

Marginal watts of the profile times estimated seconds, plus the joules of a cold start, of moving its data and of
waking the node. Sleeping nodes are always among the candidates. Idle watts do not enter: a node that is on idles
anyway, and what waking another one means for later is `wattflow`'s business. O(candidates) per task; ties go to the
lower index. A node without a profile is used only where none with one fits.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import terms, view
from wattflow.policy.base import Policy


def score(state, task, variant, out):
    """(P(k + c) − P(k)) · runtime + cold start + transfer + wake, in joules."""
    for c in range(out.size):
        out[c] = view.added_j(state, task, variant, c)


LEAST_ENERGY = Policy(
    "least-energy",
    "fewest added joules, wake and cold start included",
    score=score,
    # Sleeping nodes compete even while others have room: the joules of their wake are in the score.
    settings=PolicySettings(wakes=True),
    terms=terms.JOULES,
)
