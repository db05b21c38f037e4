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

from wattflow.engine import view
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import costs, levels
from wattflow.policy.base import Policy

# state.memory, per zone: first value, number of values, step in seconds, PUE; then all values
COLUMNS = 4


@jit
def intensity(state, zone, from_s, run_s):  # type: ignore[no-untyped-def]
    """Mean g/kWh of a zone, PUE included, over a run; at most two rounds of the series are walked."""
    first = int(state.memory[COLUMNS * zone])
    count = int(state.memory[COLUMNS * zone + 1])
    step = state.memory[COLUMNS * zone + 2]
    pue = state.memory[COLUMNS * zone + 3]
    run_s = max(1e-3, min(run_s, 2.0 * count * step))
    at = from_s
    end = from_s + run_s
    total = 0.0
    cell = math.floor(at / step)
    while at < end:
        until = min(end, (cell + 1) * step)
        total += state.memory[first + cell % count] * max(0.0, until - at)
        at = until
        cell += 1
    return pue * total / run_s


@jit
def cleanest(state, zone, from_s, latest, run_s):  # type: ignore[no-untyped-def]
    """(mean intensity, start) of the cleanest start: now, or the beginning of a step, no later than ``latest``."""
    best = intensity(state, zone, from_s, run_s)
    start = from_s
    step = state.memory[COLUMNS * zone + 2]
    cell = math.floor(from_s / step) + 1
    last = cell + 2 * int(state.memory[COLUMNS * zone + 1])
    while cell * step <= latest and cell <= last:
        mean = intensity(state, zone, cell * step, run_s)
        if mean < best:
            best = mean
            start = cell * step
        cell += 1
    return best, start


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Grams: joules times mean intensity. inf everywhere while a start that saves enough is still to come."""
    now = state.clock.now[0]
    latest = state.extra.start_at[task]
    waits = latest > now
    resume = math.inf
    lowest = math.inf
    for c in range(out.size):
        zone = state.classes.zone[state.nodes.cls[state.candidates.node[c]]]
        run_s = costs.seconds(state, task, variant, c)
        here = intensity(state, zone, now, run_s)
        joules = costs.added_j(state, task, variant, c)
        # Where nothing is known of carbon the joules decide.
        out[c] = costs.bounded(joules * here if here > 0.0 else joules)
        if waits and out[c] < lowest:
            lowest = out[c]
            best, start = cleanest(state, zone, now, latest, run_s)
            resume = start if best < here * (1.0 - state.params[1]) else math.inf
    if resume < math.inf:
        view.hold_until(state, resume)
        for c in range(out.size):
            out[c] = math.inf


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """The zones' series, and latest starts."""
    found = levels.note_slack(state, workload, cluster)
    extra = levels.per_task(state, workload)
    submit = workload.workflow_submit_s[workload.workflow] if len(workload) else np.zeros(0)
    bounded = np.isfinite(workload.deadline_s)
    own = submit + found.path - found.rest + float(state.params[0])
    extra["start_at"][: len(workload)] = np.where(bounded, extra["start_at"][: len(workload)], own)
    rows: list[float] = []
    values: list[float] = []
    for zone in cluster.zones:
        rows += [COLUMNS * len(cluster.zones) + len(values), len(zone.carbon.values), zone.carbon.step_s, zone.pue]
        values += zone.carbon.values
    levels.note(state, np.array(rows + values, np.float64))


CARBON_DELAY = Policy(
    "carbon-delay",
    "waits for cleaner electricity within a bound",
    "10.1145/3464298.3493399",
    score=score,
    params={"delay_s": 6 * 3600.0, "least_saving": 0.05},
    prepare=prepare,
)
