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
from typing import Any

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.engine.tables import MICRO, UNKNOWN_COST
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import Policy


@jit
def over_budget(state, node, added_w):  # type: ignore[no-untyped-def]
    """Whether the node's energy resource is exhausted: P(k) − P(0) + added > TDP. An empty node takes any task."""
    cls = state.nodes.cls[node]
    if state.nodes.running[node] == 0:
        return False
    used_w = view.watts(state, cls, state.nodes.alloc_u[node] / MICRO) - view.watts(state, cls, 0.0)
    return used_w + added_w > state.classes.tdp_w[cls]


@jit
def last_core_w(state, variant, node):  # type: ignore[no-untyped-def]
    """Watts between the last two cores that requests may fill, for each core asked for."""
    cls = state.nodes.cls[node]
    last = min(state.classes.threads[cls], state.classes.request_u[cls] / MICRO)
    step = view.watts(state, cls, last) - view.watts(state, cls, max(0.0, last - 1.0))
    return step * state.variants.cores_u[variant] / MICRO


@jit
def profiled_w(state, task, variant, candidate):  # type: ignore[no-untyped-def]
    """Algorithm 1's cost of one candidate; inf where the energy resource is exhausted."""
    added_w = view.added_w(state, task, variant, candidate)
    if added_w >= UNKNOWN_COST:
        return UNKNOWN_COST
    node = state.candidates.node[candidate]
    device = state.candidates.device[candidate]
    device_w = view.device_added_w(state, variant, device) if device >= 0 else 0.0
    host_w = added_w - device_w
    if state.nodes.alloc_u[node] + state.variants.cores_u[variant] > state.classes.request_u[state.nodes.cls[node]]:
        return last_core_w(state, variant, node) + device_w
    if over_budget(state, node, host_w):
        return math.inf
    return added_w


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """P(k + c) − P(k) while the requests fit; P(K) − P(K − 1) for each core where only 80 % does."""
    for c in range(out.size):
        out[c] = profiled_w(state, task, variant, c)


def score_dial(state, task, variant, out):  # type: ignore[no-untyped-def]
    """The same, for the one guarantee that suits the task's slack."""
    estimate = state.tasks.estimate[task]
    least = 1.0
    if not math.isnan(estimate) and estimate > 0.0:
        least = max(state.params[0], estimate / (estimate + state.extra.slack[task]))
    tenths = math.ceil(10.0 * least - 1e-9)
    mine = abs(10.0 * state.variants.guarantee[variant] - tenths) < 1e-6
    for c in range(out.size):
        out[c] = profiled_w(state, task, variant, c) if mine else math.inf


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """Slack of each task."""
    levels.note_slack(state, workload, cluster)


HPE = Policy(
    "hpe",
    "Algorithm 1: fewest added watts by profile, 80 % of the request guaranteed",
    score=score,
    settings=Settings(guarantees=(0.8,)),
)
HPE_SLEEP = Policy(
    "hpe-sleep",
    "Algorithm 1, and nodes sleep after idling half a minute",
    score=score,
    settings=Settings(guarantees=(0.8,)),
    sleep_after_s=30.0,
)
HPE_DIAL = Policy(
    "hpe-dial",
    "Algorithm 1 with a guarantee of 60–100 % by each task's slack",
    score=score_dial,
    settings=Settings(guarantees=(1.0, 0.9, 0.8, 0.7, 0.6)),
    params={"least_guarantee": 0.6},
    prepare=prepare,
)
