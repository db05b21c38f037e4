"""Carbon-aware delay: wait, within a bound, for cleaner electricity; run where the grams are fewest.

Wiesner, Behnke, Scheinert, Gontarska, Thamsen: Let's wait awhile: how temporal workload shifting can reduce carbon
emissions in the cloud, Middleware '21, doi:10.1145/3464298.3493399. Of all start times until the latest one the
cleanest is taken: the one with the lowest mean intensity over the task's estimated run. The latest start is the
task's place on its workflow's critical path plus the delay that a workflow may have in all (or what its deadline
leaves). Forecasts are the series themselves.

O(candidates + steps of the series until the latest start) per task; ties go to the lower index, and to the earlier
start. In a zone without a series nothing is gained by waiting, so nothing waits; without an estimate a task counts as
momentary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, series, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(delay_s=6 * 3600.0, least_saving=0.05)
NOTES = view.notes(*series.BLOCKS, "pue")


@jit
def intensity(state, zone, from_s, run_s):
    """Return the mean g/kWh of a zone, PUE included, over a run; at most two rounds of the series are walked."""
    return view.recall(state, NOTES.pue, zone) * series.mean(state, zone, from_s, run_s)


@jit
def cleanest(state, zone, from_s, latest, run_s):
    """(mean intensity, start) of the cleanest start: now, or the beginning of a step, no later than ``latest``."""
    best = intensity(state, zone, from_s, run_s)
    start = from_s
    step = series.step_s(state, zone)
    cell = math.floor(from_s / step) + 1
    # Two rounds of the series: a third would only repeat starts that were looked at.
    last = cell + 2 * series.length(state, zone)
    while cell * step <= latest and cell <= last:
        mean = intensity(state, zone, cell * step, run_s)
        if mean < best:
            best = mean
            start = cell * step
        cell += 1
    return best, start


def score(state, task, variant, out):
    """Grams: joules times mean intensity. inf everywhere while a start that saves enough is still to come."""
    now = view.now_s(state)
    latest = view.latest_start_s(state, task)
    # A deadline is in the latest start already.
    if view.deadline_s(state, task) == math.inf:
        latest += view.param(state, DIAL.delay_s)
    waits = latest > now
    resume = math.inf
    lowest = math.inf
    for c in range(out.size):
        zone = view.zone_of(state, view.node_of(state, c))
        run_s = view.runtime_s(state, task, variant, c)
        here = intensity(state, zone, now, run_s)
        joules = view.added_j(state, task, variant, c)
        # Where nothing is known of carbon the joules decide.
        out[c] = view.bounded(joules * here if here > 0.0 else joules)
        # Only the cheapest place so far is asked when it would be cleanest: there the task would go.
        if waits and out[c] < lowest:
            lowest = out[c]
            best, start = cleanest(state, zone, now, latest, run_s)
            # A hold for a few grams is not worth the wait.
            resume = start if best < here * (1.0 - view.param(state, DIAL.least_saving)) else math.inf
    if resume < math.inf:
        effects.hold_until(state, resume)
        # All of them, so that the task is held and not sent to a dirtier zone.
        for c in range(out.size):
            out[c] = math.inf


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out the zones' series."""
    pue = np.array([zone.pue for zone in cluster.zones])
    view.lay_out(state, NOTES, pue=pue, **series.blocks([zone.carbon for zone in cluster.zones]))


CARBON_DELAY = Policy(
    "carbon-delay",
    "waits for cleaner electricity within a bound",
    "10.1145/3464298.3493399",
    score=score,
    settings=PolicySettings(parks=True),
    params=DIAL.defaults,
    prepare=prepare,
    slack=True,
)
