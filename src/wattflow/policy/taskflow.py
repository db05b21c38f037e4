"""TaskFlow: a task that is not on the critical path may wait, within its slack, for a node that runs it on fewer
joules; the makespan stays.

Versluis, Iosup: TaskFlow, an energy- and makespan-aware task placement policy for workflow scheduling through delay
management, ICPE '22 Companion, doi:10.1145/3491204.3527466. Each task has a latest end on its workflow's DAG, at the
speed of the fastest nodes (or by its deadline). Of the places where it would end by then the most frugal is taken;
while a more frugal node could still make it the task waits for that one; where none can, the earliest end wins.

O(candidates + variants × classes) per task; ties go to the lower index. A task without an estimate has no delay.
"""

from __future__ import annotations

import math
from typing import Any

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, levels, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(tolerance=0.05)
NOTES = view.notes("pace")
SOON_S = 1e-6
LATE = 1e12
"""More than any joules: a place that is on time wins. Seconds are still told apart beside it."""


@jit
def latest_end_s(state, task):
    """Return when the task must end for the deadline, or for the critical path on the fastest nodes."""
    latest = view.latest_start_s(state, task)
    # A deadline is kept at mean speed; without one the path is told at the fastest nodes' speed.
    if view.deadline_s(state, task) < math.inf:
        return latest + view.typical_s(state, task)
    submit = view.submit_s(state, task)
    return submit + view.recall(state, NOTES.pace, 0) * (latest - submit + view.typical_s(state, task))


@jit
def known_j(watts, seconds):
    """Their product; what is unknown stays so, however short it is."""
    return view.UNKNOWN_COST if watts >= view.UNKNOWN_COST else watts * seconds


@jit
def class_best_j(state, task, variant, node):
    """(joules per second of runtime, seconds) of a variant on a node, on the most frugal device that it could use."""
    estimate = view.estimate_s(state, task)
    if not view.variant_needs_device(state, variant):
        slow = view.factor_on(state, task, variant, node, -1)
        return known_j(view.mean_w(state, variant, node, -1), slow), estimate * slow
    best = view.UNKNOWN_COST
    seconds = math.inf
    first, last = view.devices_of(state, node)
    for d in range(first, last):
        if view.device_suits(state, variant, d):
            slow = view.factor_on(state, task, variant, node, d)
            joules = known_j(view.mean_w(state, variant, node, d), slow)
            if joules < best:
                best = joules
                seconds = estimate * slow
    return best, seconds


@jit
def best_anywhere_j(state, task, by_s):
    """Return the fewest joules of any class, with room or not, that would still end in ``by_s``; and its seconds."""
    best = view.UNKNOWN_COST
    seconds = math.inf
    first, last = view.variants_of(state, task)
    for variant in range(first, last):
        for cls in range(view.classes_n(state)):
            node = view.class_node(state, cls, 0)
            if view.class_takes(state, variant, cls) and not view.is_gone(state, node):
                joules, long_s = class_best_j(state, task, variant, node)
                if joules < best and long_s <= by_s:
                    best = joules
                    seconds = long_s
    return best, seconds


def score(state, task, variant, out):
    """Hold out for a more frugal node while that makes it in time; else joules where on time, ends where not."""
    now = view.now_s(state)
    left_s = latest_end_s(state, task) - now
    best = view.UNKNOWN_COST
    seconds = 0.0
    # With nothing running no node will be freed: waiting would be for ever.
    if view.has_estimate(state, task) and view.running(state) > 0:
        best, seconds = best_anywhere_j(state, task, left_s)
    # A hold that ends now would be asked for again at once.
    waits = best < view.UNKNOWN_COST and left_s - seconds > SOON_S
    if waits:
        # Woken again when it must start even there.
        effects.hold_until(state, now + left_s - seconds)
    for c in range(out.size):
        node = view.node_of(state, c)
        finish = view.finish_in_s(state, task, variant, c)
        watts = view.mean_w(state, variant, node, view.device_of(state, c))
        joules = known_j(watts, view.factor(state, task, variant, c))
        on_time = finish <= left_s + SOON_S
        if waits and not (on_time and joules <= best * (1.0 + view.param(state, DIAL.tolerance))):
            out[c] = math.inf
        elif joules >= view.UNKNOWN_COST:
            # Half of the unknown's cost: worse than anything known, yet the ends still order them.
            out[c] = view.bounded(0.5 * view.UNKNOWN_COST + finish)
        else:
            out[c] = joules if on_time else LATE + finish


def prepare(state: Any, cluster: Cluster) -> None:
    """Seconds on the fastest nodes over the mean seconds, in which paths are told."""
    fastest = max(node.speed for node in cluster.nodes)
    view.lay_out(state, NOTES, pace=[1.0 / (fastest * levels.mean_pace(cluster))])


TASKFLOW = Policy(
    "taskflow",
    "a more frugal node within the slack, the makespan kept",
    "10.1145/3491204.3527466",
    score=score,
    settings=PolicySettings(wakes=True),
    params=DIAL.defaults,
    prepare=prepare,
    slack=True,
)
