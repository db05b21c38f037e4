"""Composites: an order of workflows, a placement and (as a setting) a sleep time-out, each the plainest of its kind.

Shortest workflow first (least core seconds) or shortest critical path first; each task where it ends first (`swf-eft`,
`scp-eft`), or where joules are fewest when a second until its end costs ``second`` watts (`swf-energy`, `scp-energy`;
0 is marginal energy alone). `scp-wattflow` is `wattflow` with the queue by critical path. In streams order and sleep
matter more than placement, so these are what a learned policy has to beat.

O(candidates) per task; ties in the queue go to the task that entered first, between nodes to the lower index, then to
the higher frequency. A node without a profile is used only where none with one fits.
"""

from __future__ import annotations

from dataclasses import replace

from wattflow.engine.settings import PolicySettings
from wattflow.policy import min_min, view
from wattflow.policy.base import Policy
from wattflow.policy.wattflow import WATTFLOW
from wattflow.policy.workflow_order import by_path, by_work

DIAL = view.dials(second=20.0)
WAKES = PolicySettings(wakes=True)
THRIFTY = PolicySettings(wakes=True, frequencies=(0, 1, 2))


def priced(state, task, variant, out):
    """Added joules, and ``second`` joules for each second until the end."""
    for c in range(out.size):
        joules = view.added_j(state, task, variant, c)
        if joules < view.UNKNOWN_COST:
            joules += view.param(state, DIAL.second) * view.finish_in_s(state, task, variant, c)
        out[c] = view.bounded(joules)


def path_first(state, task):
    """Critical path of the task's workflow."""
    return view.path_s(state, task)


SWF_EFT = Policy("swf-eft", "least work first, where it ends first", score=min_min.score, rank=by_work, settings=WAKES)
SCP_EFT = Policy(
    "scp-eft", "shortest critical path first, where it ends first", score=min_min.score, rank=by_path, settings=WAKES
)
SWF_ENERGY = Policy(
    "swf-energy",
    "least work first, fewest joules with seconds priced",
    score=priced,
    rank=by_work,
    settings=THRIFTY,
    params=DIAL.defaults,
)
SCP_ENERGY = replace(
    SWF_ENERGY,
    name="scp-energy",
    summary="shortest critical path first, fewest joules with seconds priced",
    rank=by_path,
)
SCP_WATTFLOW = replace(
    WATTFLOW, name="scp-wattflow", summary="wattflow, the queue by critical path", priority=path_first
)
