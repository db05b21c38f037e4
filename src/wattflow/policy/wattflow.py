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

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.engine.tables import ASLEEP, FALLING, MICRO, UNKNOWN_COST
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import costs, levels
from wattflow.policy.base import Policy

LATE, SLEEP, AMORTISE, PATIENCE = 0, 1, 2, 3
"""Places of the parameters."""


@jit
def throughput(state, cls, busy):  # type: ignore[no-untyped-def]
    """X(D): cores' worth of work per second with D busy threads."""
    cores = state.classes.cores[cls]
    if busy <= cores:
        return busy
    beyond = min(busy, state.classes.threads[cls]) - cores
    return cores + beyond * state.classes.smt_gain[cls]


@jit
def busy_until(state, node):  # type: ignore[no-untyped-def]
    """When the last attempt on the node is expected to end; now for an empty one."""
    last = state.clock.now[0]
    a = state.nodes.first_attempt[node]
    while a >= 0:
        if state.attempts.end[a] > last:
            last = state.attempts.end[a]
        a = state.attempts.next[a]
    return last


@jit
def companions(state, variant, node):  # type: ignore[no-untyped-def]
    """How many waiting tasks, this one included, could share the node's waking."""
    free_u = state.nodes.capacity_u[node] - state.nodes.used_u[node]
    room = free_u // max(1, state.variants.need_u[variant])
    return max(1.0, float(min(state.counts.waiting[0], room)) * state.params[AMORTISE])


@jit
def awake_j(state, variant, candidate, finish_s):  # type: ignore[no-untyped-def]
    """Joules of waking the node and of its idling longer than without the task, shared by its companions."""
    node = state.candidates.node[candidate]
    cls = state.nodes.cls[node]
    joules = view.wake_j(state, candidate)
    if state.classes.sleep_after_s[cls] < math.inf:
        longer_s = state.clock.now[0] + finish_s - busy_until(state, node)
        saved_w = state.classes.idle_w[cls] - state.classes.sleep_w[cls]
        if longer_s > 0.0:
            joules += saved_w * longer_s
        if joules > 0.0 and view.wait_s(state, candidate) > 0.0:
            # It will idle again before it sleeps again.
            after_s = state.classes.sleep_after_s[cls]
            joules += saved_w * after_s + state.classes.enter_s[cls] * state.classes.wake_w[cls]
    return joules / companions(state, variant, node) if joules > 0.0 else 0.0


@jit
def price_j(state, task, variant, candidate):  # type: ignore[no-untyped-def]
    """The whole cost of a candidate."""
    added_w = view.added_w(state, task, variant, candidate)
    if added_w >= UNKNOWN_COST:
        return UNKNOWN_COST
    node = state.candidates.node[candidate]
    cls = state.nodes.cls[node]
    wanted = state.variants.cores_u[variant] / MICRO
    run_s = costs.seconds(state, task, variant, candidate)
    work = 1.0
    if state.candidates.device[candidate] < 0 and wanted > 0.0:
        before = state.nodes.alloc_u[node] / MICRO
        after_x = throughput(state, cls, before + wanted)
        gained = after_x - throughput(state, cls, before)
        work = wanted / max(gained, 0.05 * wanted)
        run_s *= (before + wanted) / after_x
    alone_s = costs.seconds(state, task, variant, candidate)
    cold_s = view.cold_start_s(state, task, variant, candidate)
    joules = added_w * alone_s * work + view.node_added_w(state, variant, node, -1) * cold_s
    if state.rules.has_data[0] == 1:
        joules += view.bytes_to(state, task, node) * state.classes.j_per_byte[cls]
    finish_s = view.ready_in_s(state, task, variant, candidate) + run_s
    joules += awake_j(state, variant, candidate, finish_s)
    late_s = state.clock.now[0] + finish_s - state.extra.slack[task]
    if late_s > 0.0:
        under_way = state.counts.waiting[0] + state.counts.running[0]
        joules += state.params[LATE] * state.memory[0] * late_s / max(1.0, float(under_way))
    return costs.bounded(joules)


@jit
def wake_at_s(state, task, candidate):  # type: ignore[no-untyped-def]
    """For a sleeping node: when it must be woken for the task to start no later than it may; else −inf."""
    node = state.candidates.node[candidate]
    power_state = state.nodes.power_state[node]
    if power_state != ASLEEP and power_state != FALLING:
        return -math.inf
    return state.extra.rank[task] - state.params[PATIENCE] * state.classes.wake_s[state.nodes.cls[node]]


@jit
def crowded(state, variant, node):  # type: ignore[no-untyped-def]
    """Whether the task would find no hardware thread of its own on a node that is in use."""
    threads_u = state.classes.threads[state.nodes.cls[node]] * MICRO
    return state.nodes.running[node] > 0 and state.nodes.alloc_u[node] + state.variants.cores_u[variant] > threads_u


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Joules for the cluster; inf on crowded nodes, and on sleeping ones while the task can wait for one that is on."""
    patient = state.counts.running[0] > 0 and not math.isnan(state.tasks.estimate[task])
    resume = math.inf
    taken = False
    for c in range(out.size):
        wake_at = wake_at_s(state, task, c) if patient else -math.inf
        if crowded(state, variant, state.candidates.node[c]):
            out[c] = math.inf
        elif wake_at > state.clock.now[0]:
            out[c] = math.inf
            resume = min(resume, wake_at)
        else:
            out[c] = price_j(state, task, variant, c)
            taken = True
    if not taken and resume < math.inf:
        view.hold_until(state, resume)


def rank(workload: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Latest start of each task."""
    found = levels.levels(workload, cluster)
    submit = workload.workflow_submit_s[workload.workflow] if len(workload) else np.zeros(0)
    due = np.where(np.isfinite(workload.deadline_s), workload.deadline_s, submit + found.path)
    return due - found.rest


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """Latest finishes (in ``extra.slack``), the cluster's idle watts, and when nodes go to sleep."""
    found = levels.levels(workload, cluster)
    extra = levels.per_task(state, workload)
    extra["slack"][: len(workload)] = extra["rank"][: len(workload)] + found.seconds
    classes = state.classes
    levels.note(state, np.array([float((classes.idle_w * classes.count).sum())]))
    saved_w = classes.idle_w - classes.sleep_w
    lost_j = (classes.wake_s + classes.enter_s) * classes.wake_w
    ours = (classes.sleepable == 1) & np.isinf(classes.sleep_after_s) & (saved_w > 0)
    classes.sleep_after_s[ours] = float(state.params[SLEEP]) * lost_j[ours] / saved_w[ours]


WATTFLOW = Policy(
    "wattflow",
    "fewest joules for the whole cluster: idle watts, waking and lateness priced",
    score=score,
    rank=rank,
    settings=Settings(guarantees=(0.8,), frequencies=(0, 1, 2), wakes=True),
    params={"late": 1.0, "sleep": 0.1, "amortise": 0.3, "patience": 1.0},
    prepare=prepare,
)
