"""TaskFlow: a task that is not on the critical path may wait, within its slack, for a node that runs it on fewer
joules.

Versluis, Iosup: TaskFlow, an energy- and makespan-aware task placement policy for workflow scheduling through delay
management, ICPE '22 Companion, doi:10.1145/3491204.3527466. Each task has a latest start on its workflow's DAG. Until
then it is placed only where it costs the fewest joules of all nodes it could ever run on; after that, where it
completes first.

O(candidates + variants × classes) per task; ties go to the lower index. A task without an estimate has no delay.
"""

from __future__ import annotations

import math
from typing import Any

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.engine.tables import DOWN, MICRO, NO_DEVICE, UNKNOWN_COST
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import costs, levels
from wattflow.policy.base import Policy


@jit
def mean_j(state, task, variant, node, device):  # type: ignore[no-untyped-def]
    """Joules of the task at the node's mean watts a thread: what does not depend on who else is there."""
    cls = state.nodes.cls[node]
    if state.classes.known_power[cls] == 0:
        return UNKNOWN_COST
    per_core = (state.classes.full_w[cls] - view.watts(state, cls, 0.0)) / state.classes.threads[cls]
    watts = per_core * state.variants.cores_u[variant] / MICRO
    if device >= 0:
        dcls = state.devices.cls[device]
        watts += state.device_classes.full_w[dcls] - state.device_classes.idle_w[dcls]
    return watts * view.work_factor(state, state.tasks.form[task], variant, node, device)


@jit
def class_best_j(state, task, variant, node):  # type: ignore[no-untyped-def]
    """The fewest joules per second of runtime that a variant needs on a node, over the devices it could use."""
    if state.variants.device[variant] == NO_DEVICE:
        return mean_j(state, task, variant, node, -1)
    best = UNKNOWN_COST
    first = state.nodes.device_first[node]
    for d in range(first, first + state.nodes.device_n[node]):
        if state.device_classes.kind[state.devices.cls[d]] == state.variants.device[variant]:
            best = min(best, mean_j(state, task, variant, node, d))
    return best


@jit
def best_anywhere_j(state, task):  # type: ignore[no-untyped-def]
    """The fewest joules per second of runtime on any node class, with room or not; each class by its first node."""
    best = UNKNOWN_COST
    shape = state.tasks.form[task]
    first = state.shapes.variant_first[shape]
    for variant in range(first, first + state.shapes.variant_n[shape]):
        for cls in range(state.classes.size):
            node = state.class_nodes[state.classes.first[cls]]
            if state.class_ok[variant, cls] == 1 and state.nodes.power_state[node] < DOWN:
                best = min(best, class_best_j(state, task, variant, node))
    return best


@jit
def may_wait(state, task):  # type: ignore[no-untyped-def]
    """Whether the task's latest start is still to come and something runs that may make room."""
    if math.isnan(state.tasks.estimate[task]) or state.counts.running[0] == 0:
        return False
    return state.extra.start_at[task] > state.clock.now[0]


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Before the latest start: joules on the most frugal nodes, inf elsewhere. After it: completion."""
    best = best_anywhere_j(state, task) if may_wait(state, task) else UNKNOWN_COST
    for c in range(out.size):
        node = state.candidates.node[c]
        if best < UNKNOWN_COST:
            joules = mean_j(state, task, variant, node, state.candidates.device[c])
            out[c] = joules if joules <= best * (1.0 + state.params[0]) else math.inf
        else:
            finish = view.ready_in_s(state, task, variant, c) + costs.seconds(state, task, variant, c)
            unknown = state.classes.known_power[state.nodes.cls[node]] == 0
            out[c] = costs.bounded(0.5 * UNKNOWN_COST + finish) if unknown else finish
    if best < UNKNOWN_COST:
        view.hold_until(state, state.extra.start_at[task])


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """Latest starts."""
    levels.note_slack(state, workload, cluster)


TASKFLOW = Policy(
    "taskflow",
    "delay within the slack for a more frugal node",
    "10.1145/3491204.3527466",
    score=score,
    settings=Settings(wakes=True),
    params={"tolerance": 0.05},
    prepare=prepare,
)
