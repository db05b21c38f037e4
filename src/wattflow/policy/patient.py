"""wattflow: our own policy. Fewest joules for the whole cluster, idle watts and lost time included.

Every candidate is priced in joules:

    cost = run + cold start + transfer + (wake + idle) / max(1, α · n) + κ · W / m · lateness

- *run*: added watts × runtime × c / (X(D + c) − X(D)): what c more busy threads add to the node's throughput X (less
  than c beyond its cores) is what they buy.
- *idle*: (idle − sleep) watts for as long as the task keeps a node that can sleep awake beyond what already runs
  there. Waking and idling are shared by (α of) the n waiting tasks that could fill the node now, so a crowd wakes a
  large node and a single task a small one.
- *lateness*: seconds by which the task would end after its latest finish on the workflow's critical path. Each costs
  κ times the idle watts W of the whole cluster, which has to stay for the last task, over the m tasks that wait or
  run: with one task under way the cluster waits for it, with a thousand it hardly does. Slack is spent on frugal
  nodes and lower frequencies; a task without slack goes where it ends first.

The queue is ordered by latest start, and a task that can wait until then does not wake a node before (the wake time
counted in). Nodes sleep after a share of their break-even time, (wake + enter) energy over
saved watts, unless the cluster file or the run says when. 80 % of each request is guaranteed, as in `hpe`, while
there are hardware threads.

O(candidates × attempts on a node) per task and variant; ties go to the lower index, then to the higher
frequency. A node without a profile is used only where none with one fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import effects, levels, view
from wattflow.policy.base import vectorised
from wattflow.policy.jit import jit

DIAL = view.dials(late=1.0, sleep=0.1, amortise=0.3, patience=1.0)
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
def price_j(state, task, variant, candidate):  # type: ignore[no-untyped-def]
    """The whole cost of a candidate."""
    added_w = view.added_w(state, task, variant, candidate)
    if added_w >= view.UNKNOWN_COST:
        return view.UNKNOWN_COST
    node = view.node_of(state, candidate)
    wanted = view.variant_cores(state, variant)
    alone_s = view.runtime_s(state, task, variant, candidate)
    run_s = alone_s
    work = 1.0
    if view.device_of(state, candidate) < 0 and wanted > 0.0:
        before = view.busy_cores(state, node)
        after_x = view.throughput(state, node, before + wanted)
        gained = after_x - view.throughput(state, node, before)
        work = wanted / max(gained, 0.05 * wanted)
        run_s *= (before + wanted) / after_x
    cold_s = view.cold_start_s(state, task, variant, candidate)
    joules = added_w * alone_s * work + view.node_added_w(state, variant, node, -1) * cold_s
    joules += view.transfer_j(state, task, node)
    finish_s = view.ready_in_s(state, task, variant, candidate) + run_s
    joules += awake_j(state, variant, candidate, finish_s)
    late_s = view.now_s(state) + finish_s - view.rank(state, task) - view.typical_s(state, task)
    if late_s > 0.0:
        under_way = float(view.waiting(state) + view.running(state))
        joules += view.param(state, DIAL.late) * view.recall(state, NOTES.idle_w, 0) * late_s / max(1.0, under_way)
    return view.bounded(joules)


@jit
def wake_at_s(state, task, candidate):  # type: ignore[no-untyped-def]
    """For a sleeping node: when it must be woken for the task to start no later than it may; else −inf."""
    node = view.node_of(state, candidate)
    if not view.is_asleep(state, node):
        return -math.inf
    return view.rank(state, task) - view.param(state, DIAL.patience) * view.node_wake_s(state, node)


@jit
def crowded(state, variant, node):  # type: ignore[no-untyped-def]
    """Whether the task would find no hardware thread of its own on a node that is in use."""
    beyond = view.busy_cores(state, node) + view.variant_cores(state, variant) - view.node_threads(state, node)
    return view.tasks_on(state, node) > 0 and beyond > 1e-9


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Joules for the cluster; inf on crowded nodes, and on sleeping ones while the task can wait for one that is on."""
    patient = view.running(state) > 0 and view.has_estimate(state, task)
    resume = math.inf
    taken = False
    for c in range(out.size):
        wake_at = wake_at_s(state, task, c) if patient else -math.inf
        if crowded(state, variant, view.node_of(state, c)):
            out[c] = math.inf
        elif wake_at > view.now_s(state):
            out[c] = math.inf
            resume = min(resume, wake_at)
        else:
            out[c] = price_j(state, task, variant, c)
            taken = True
    if not taken and resume < math.inf:
        effects.hold_until(state, resume)


@vectorised
def rank(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Latest start of each task."""
    found = levels.levels(workflow, cluster)
    submit = workflow.workflow_submit_s[workflow.workflow] if len(workflow) else np.zeros(0)
    due = np.where(np.isfinite(workflow.deadline_s), workflow.deadline_s, submit + found.path)
    return due - found.rest


def prepare(state: Any, cluster: Cluster) -> None:
    """The cluster's idle watts, and when nodes go to sleep."""
    classes = state.classes
    view.lay_out(state, NOTES, idle_w=[(classes.idle_w * classes.count).sum()])
    saved_w = classes.idle_w - classes.sleep_w
    lost_j = (classes.wake_s + classes.enter_s) * classes.wake_w
    ours = (classes.sleepable == 1) & np.isinf(classes.sleep_after_s) & (saved_w > 0)
    classes.sleep_after_s[ours] = float(state.params[DIAL.sleep]) * lost_j[ours] / saved_w[ours]
