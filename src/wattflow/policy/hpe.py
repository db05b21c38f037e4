"""The HPE energy-aware algorithm (Algorithm 1), and the same with the guarantee as a dial.

Requests are set aside: what counts are the watts that the task adds by the node's profile, with the node's TDP as the
capacity of its energy resource. Every task is guaranteed 80 % of its request, with the request as its limit. While
the full requests on a node still sum to what it has, a task costs P(k + c) − P(k); where the request no longer fits
but 80 % of it does, it costs the watts between the last two cores.

`hpe-dial` guarantees 60–100 % in tenths. A task guaranteed g may take 1/g as long, so each gets the least that its
slack on the DAG bears: g ≥ runtime / (runtime + slack), and never less than 60 %.

O(candidates) per task and guarantee; ties go to the lower index.
"""

from __future__ import annotations

import math

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(least_guarantee=0.6)


@jit
def over_budget(state, node, added_w):
    """Tell whether the node's energy resource is exhausted: P(k) − P(0) + added > TDP. An empty node takes any task."""
    # Else a task larger than the TDP would wait for ever.
    if view.tasks_on(state, node) == 0:
        return False
    used_w = view.watts_at(state, node, view.busy_cores(state, node)) - view.watts_at(state, node, 0.0)
    return used_w + added_w > view.node_tdp_w(state, node)


@jit
def last_core_w(state, variant, node):
    """Return watts between the last two cores that requests may fill, for each core asked for."""
    last = min(view.node_threads(state, node), view.request_cores(state, node))
    step = view.watts_at(state, node, last) - view.watts_at(state, node, max(0.0, last - 1.0))
    return step * view.variant_cores(state, variant)


@jit
def profiled_w(state, task, variant, candidate):
    """Algorithm 1's cost of one candidate; inf where the energy resource is exhausted, whichever branch prices it."""
    added_w = view.added_w(state, task, variant, candidate)
    if added_w >= view.UNKNOWN_COST:
        return view.UNKNOWN_COST
    node = view.node_of(state, candidate)
    device = view.device_of(state, candidate)
    device_w = view.device_added_w(state, variant, device) if device >= 0 else 0.0
    host_w = added_w - device_w
    beyond = view.busy_cores(state, node) + view.variant_cores(state, variant) - view.request_cores(state, node)
    # Sums of requests stray from whole cores by a rounding.
    if beyond > 1e-9:
        host_w = last_core_w(state, variant, node)
    if over_budget(state, node, host_w):
        return math.inf
    # Beyond the requests Algorithm 1 names the price itself: the last step of the curve.
    crowding_w = 0.0 if beyond > 1e-9 else view.crowding_w(state, variant, node, device)
    return host_w + device_w + crowding_w


def score(state, task, variant, out):
    """P(k + c) − P(k) while the requests fit; P(K) − P(K − 1) for each core where only 80 % does."""
    for c in range(out.size):
        out[c] = profiled_w(state, task, variant, c)


def score_dial(state, task, variant, out):
    """Score by added watts, for the one guarantee that suits the task's slack."""
    estimate = view.estimate_s(state, task)
    least = 1.0
    if view.has_estimate(state, task) and estimate > 0.0:
        least = max(view.param(state, DIAL.least_guarantee), estimate / (estimate + view.slack_s(state, task)))
    # 80 % of ten is 8, not 9 by a rounding.
    tenths = math.ceil(10.0 * least - 1e-9)
    mine = abs(10.0 * view.variant_guarantee(state, variant) - tenths) < 1e-6
    for c in range(out.size):
        out[c] = profiled_w(state, task, variant, c) if mine else math.inf


HPE = Policy(
    "hpe",
    "Algorithm 1: fewest added watts by profile, 80 % of the request guaranteed",
    score=score,
    settings=PolicySettings(guarantees=(0.8,)),
)
HPE_DIAL = Policy(
    "hpe-dial",
    "Algorithm 1 with a guarantee of 60–100 % by each task's slack",
    score=score_dial,
    settings=PolicySettings(guarantees=(1.0, 0.9, 0.8, 0.7, 0.6)),
    params=DIAL.defaults,
    slack=True,
)
