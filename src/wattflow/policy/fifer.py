"""Fifer: slack-aware batching of function chains.

Gunasekaran, Thinakaran, Nachiappan, Kandemir, Das: Fifer: tackling resource underutilization in the serverless era,
Middleware '20, doi:10.1145/3423211.3425683. A stage's slack is its share, by runtime, of what the deadline leaves
over the critical path (without a deadline: 5 times the runtime, as there). A batch is as many runs as fit into stage
time and slack: B = ⌊slack / runtime⌋. While fewer than B tasks wait for each running container of a function, a task
waits for one of them instead of making another, until its slack is used up. Queue: least slack first. Placement: a
warm container, and among nodes the fullest.

Proactive scaling: every 10 s the arrivals of each function in the next 10 s are forecast, here by Holt's linear trend
(level and slope by exponential smoothing; the paper's is an LSTM network), and containers are made ahead until each
serves one batch of those expected.

O(candidates) per task, O(log waiting) to queue, O(functions) per interval; ties go to the lower index. Without a cold
start nothing is batched; a task without an estimate does not wait.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.policy import effects, prewarm, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(objective=5.0, interval_s=10.0, level=0.5, slope=0.3)
"""Objective over the runtime where there is no deadline; how often arrivals are forecast, and how fast it forgets."""
NOTES = view.notes("next_at", "seen", "level", "slope", "batch", "ordered", "done_at")


@jit
def stage_slack_s(state, task):
    """Return the stage's share of what its deadline leaves; without one (objective − 1) times its runtime."""
    typical = view.typical_s(state, task)
    deadline = view.deadline_s(state, task)
    if deadline == math.inf:
        return (view.param(state, DIAL.objective) - 1.0) * typical
    path = view.path_s(state, task)
    left = max(0.0, deadline - view.submit_s(state, task) - path)
    return left * typical / path if path > 0.0 else 0.0


@jit
def waits(state, task):
    """Tell whether the task should wait for a busy container of its function."""
    estimate = view.estimate_s(state, task)
    fn = view.function_of(state, task)
    if not view.has_estimate(state, task) or estimate <= 0.0 or view.container_start_s(state, fn) <= 0.0:
        return False
    slack = stage_slack_s(state, task)
    # Two ways to the same moment: `waited_s` is a difference of floats, and a
    # hold that ends a rounding early would be asked for again at the same time.
    if view.waited_s(state, task) >= slack or view.now_s(state) >= view.ready_s(state, task) + slack:
        return False
    batch = math.floor(slack / estimate)
    # The task itself is among those that wait.
    # <=, because those that wait include this one.
    return view.function_waiting(state, fn) <= batch * view.function_running(state, fn)


def priority(state, task):
    """Order by least slack: when the stage's slack ends."""
    return view.now_s(state) + stage_slack_s(state, task)


def score(state, task, variant, out):
    """Warm before cold, the fuller node first; inf for cold ones while the batch lasts."""
    patient = waits(state, task)
    fn = view.function_of(state, task)
    if view.has_estimate(state, task) and view.estimate_s(state, task) > 0.0:
        batch = math.floor(stage_slack_s(state, task) / view.estimate_s(state, task))
        # Kept for `act`, which has no task to ask about.
        effects.note(state, NOTES.batch, fn, max(1.0, batch))
    for c in range(out.size):
        empty = 1.0 - view.core_share(state, variant, c)
        if view.container_start_s(state, fn) <= 0.0 or view.spare_containers(state, view.node_of(state, c), fn) > 0:
            out[c] = empty
        else:
            # Above every warm place, which costs at most 1.
            out[c] = math.inf if patient else 10.0 + empty
    if patient:
        effects.hold_until(state, view.ready_s(state, task) + stage_slack_s(state, task))


@jit
def forecast(state, fn):
    """Arrivals of the function in the next interval, once those of the last are counted in."""
    arrived = float(view.function_arrived(state, fn))
    new = arrived - view.recall(state, NOTES.seen, fn)
    effects.note(state, NOTES.seen, fn, arrived)
    before = view.recall(state, NOTES.level, fn)
    slope = view.recall(state, NOTES.slope, fn)
    level = before + slope + view.param(state, DIAL.level) * (new - before - slope)
    slope += view.param(state, DIAL.slope) * (level - before - slope)
    effects.note(state, NOTES.level, fn, level)
    effects.note(state, NOTES.slope, fn, slope)
    return max(0.0, level + slope)


def act(state):
    """Make, at every interval, the containers that the forecast arrivals will lack."""
    now = view.now_s(state)
    if now < view.recall(state, NOTES.next_at, 0):
        return
    interval_s = view.param(state, DIAL.interval_s)
    effects.note(state, NOTES.next_at, 0, now + interval_s)
    useful = False
    for fn in range(view.functions_n(state)):
        if view.container_start_s(state, fn) > 0.0:
            useful = True
            expected = forecast(state, fn)
            # A running attempt's container is free when it ends: within the interval it serves a batch.
            have = view.idle_containers(state, fn) + view.function_running(state, fn)
            # A rounding above a whole number must not order a container.
            lacking = math.ceil(expected / max(1.0, view.recall(state, NOTES.batch, fn)) - 1e-9) - have
            prewarm.order(state, fn, lacking, NOTES.ordered, NOTES.done_at, fn)
    # Without a function that starts cold there is nothing to come back for.
    if useful:
        effects.order_timer(state, now + interval_s)


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay the memory out: nothing arrived yet."""
    each = np.zeros(len(state.functions))
    view.lay_out(state, NOTES, **{name: [0.0] if name == "next_at" else each for name in NOTES._fields})


FIFER = Policy(
    "fifer",
    "waits for a warm container within the slack; least slack first",
    "10.1145/3423211.3425683",
    score=score,
    priority=priority,
    act=act,
    prepare=prepare,
    params=DIAL.defaults,
    slack=True,
)
