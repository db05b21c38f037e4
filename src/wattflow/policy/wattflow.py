"""wattflow"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import Settings
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels, view
from wattflow.policy.base import Policy, vectorised
from wattflow.policy.jit import jit

DIAL = view.dials(wait=0.0, late=200.0, second=5.0, sleep=0.5, amortise=0.5, pace=0.95, crowd=0.5, ahead=1.0)
NOTES = view.notes("idle_w")


@jit
def companions(state, variant, node):  # type: ignore[no-untyped-def]
    """How many waiting tasks, this one included, could share the node's waking."""
    room = math.floor(view.free_cores(state, node) / max(1e-6, view.variant_guaranteed(state, variant)) + 1e-9)
    return max(1.0, min(float(view.waiting(state)), room) * view.param(state, DIAL.amortise))


@jit
def awake_j(state, variant, candidate, finish_s):  # type: ignore[no-untyped-def]
    """Joules of waking the node and of its idling longer than without the task, shared by its companions."""
    node = view.node_of(state, candidate)
    joules = view.wake_j(state, candidate)
    after_s = view.sleep_after_s(state, node)
    if after_s < math.inf:
        longer_s = view.now_s(state) + finish_s - view.busy_until_s(state, node)
        saved_w = view.node_idle_w(state, node) - view.node_sleep_w(state, node)
        if longer_s > 0.0:
            joules += saved_w * longer_s
        if joules > 0.0 and view.wait_s(state, candidate) > 0.0:
            # It will idle again before it sleeps again.
            joules += saved_w * after_s + view.enter_j(state, node)
    return joules / companions(state, variant, node) if joules > 0.0 else 0.0


@jit
def due_s(state, task):  # type: ignore[no-untyped-def]
    path = view.path_s(state, task)
    submit = view.submit_s(state, task)
    due = submit + view.param(state, DIAL.pace) * (view.rank(state, task) - submit + view.typical_s(state, task))
    due += view.param(state, DIAL.wait) * path
    if view.deadline_s(state, task) < math.inf:
        due = min(due, view.latest_start_s(state, task) + view.typical_s(state, task))
    return due


@jit
def price_j(state, task, variant, candidate, due):  # type: ignore[no-untyped-def]
    """The whole cost of a candidate."""
    added_w = view.added_w(state, task, variant, candidate)
    if added_w >= view.UNKNOWN_COST:
        return view.UNKNOWN_COST
    node = view.node_of(state, candidate)
    wanted = view.variant_cores(state, variant)
    alone_s = view.runtime_s(state, task, variant, candidate)
    run_s = alone_s
    work = 1.0
    crowd_s = 0.0
    if view.device_of(state, candidate) < 0 and wanted > 0.0:
        before = view.busy_cores(state, node)
        after_x = view.throughput(state, node, before + wanted)
        before_x = view.throughput(state, node, before)
        gained = after_x - before_x
        work = wanted / max(gained, 0.05 * wanted)
        run_s *= (before + wanted) / after_x
        if before > 0.0:
            crowd_s = alone_s * before * ((before + wanted) / after_x - before / before_x)
    cold_s = view.cold_start_s(state, task, variant, candidate)
    joules = added_w * alone_s * work + view.node_added_w(state, variant, node, -1) * cold_s
    joules += view.transfer_j(state, task, node)
    finish_s = view.ready_in_s(state, task, variant, candidate) + run_s
    joules += awake_j(state, variant, candidate, finish_s)
    late_s = view.now_s(state) + finish_s - due
    weight = view.param(state, DIAL.second)
    joules += weight * finish_s
    if late_s > 0.0:
        joules += view.param(state, DIAL.late) * late_s
    joules += view.param(state, DIAL.crowd) * view.param(state, DIAL.late) * crowd_s
    return view.bounded(joules)


@jit
def crowded(state, variant, node):  # type: ignore[no-untyped-def]
    """Whether the task would find no hardware thread of its own on a node that is in use."""
    beyond = view.busy_cores(state, node) + view.variant_cores(state, variant) - view.node_threads(state, node)
    return view.tasks_on(state, node) > 0 and beyond > 1e-9


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    due = due_s(state, task)
    running = view.running(state)
    queue_s = math.inf
    if running > 0:
        queue_s = view.param(state, DIAL.ahead) * view.waiting(state) * view.typical_s(state, task) / running
    for c in range(out.size):
        if crowded(state, variant, view.node_of(state, c)) or view.wait_s(state, c) > queue_s:
            out[c] = math.inf
        else:
            out[c] = price_j(state, task, variant, c, due)


@vectorised
def rank(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Latest start of each task if nobody waits."""
    found = levels.levels(workflow, cluster)
    submit = workflow.workflow_submit_s[workflow.workflow] if len(workflow) else np.zeros(0)
    due = np.minimum(workflow.deadline_s, submit + found.path)
    return due - found.rest


def prepare(state: Any, cluster: Cluster) -> None:
    """When nodes go to sleep."""
    classes = state.classes
    view.lay_out(state, NOTES, idle_w=[(classes.idle_w * classes.count).sum()])
    saved_w = classes.idle_w - classes.sleep_w
    lost_j = (classes.wake_s + classes.enter_s) * classes.wake_w
    ours = (classes.sleepable == 1) & np.isinf(classes.sleep_after_s) & (saved_w > 0)
    classes.sleep_after_s[ours] = float(state.params[DIAL.sleep]) * lost_j[ours] / saved_w[ours]


WATTFLOW = Policy(
    "wattflow",
    "fewest joules while nobody waits: idle watts, waking and lost seconds priced",
    score=score,
    rank=rank,
    settings=Settings(guarantees=(0.8,), frequencies=(0, 1, 2), wakes=True),
    params=DIAL.defaults,
    prepare=prepare,
    slack=True,
)
