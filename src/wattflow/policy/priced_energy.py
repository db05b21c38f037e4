"""Priced energy: where joules are fewest when a second until the task's end costs ``second`` watts.

0 is marginal energy alone. With `order=work` or `order=path` it is one of the plain rules for streams of workflows that
a learned policy has to beat. O(candidates) per task; ties go to the lower index, then to the higher frequency. A node
without a profile is used only where none with one fits.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy

DIAL = view.dials(second=20.0)


def score(state, task, variant, out):
    """Added joules, and ``second`` joules for each second until the end."""
    for c in range(out.size):
        joules = view.added_j(state, task, variant, c)
        if joules < view.UNKNOWN_COST:
            joules += view.param(state, DIAL.second) * view.finish_in_s(state, task, variant, c)
        out[c] = view.bounded(joules)


PRICED_ENERGY = Policy(
    "priced-energy",
    "fewest added joules, seconds until the end priced",
    score=score,
    settings=PolicySettings(wakes=True, frequencies=(0, 1, 2)),
    params=DIAL.defaults,
)
