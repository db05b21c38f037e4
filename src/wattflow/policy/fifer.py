"""Fifer: slack-aware batching of function chains.

Gunasekaran, Thinakaran, Nachiappan, Kandemir, Das: Fifer: tackling resource underutilization in the serverless era,
Middleware '20, doi:10.1145/3423211.3425683. A stage's slack is its share, by runtime, of what the deadline leaves
over the critical path (without a deadline: 5 times the runtime, as there). A batch is as many runs as fit into stage
time and slack: B = ⌊slack / runtime⌋. While fewer than B tasks wait for each running container of a function, a task
waits for one of them instead of making another, until its slack is used up. Queue: least slack first. Placement: a
warm container, and among nodes the fullest.

O(candidates) per task, O(log waiting) to queue; ties go to the lower index. Without a cold start nothing is batched;
a task without an estimate does not wait.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine import view
from wattflow.engine.settings import Settings
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import costs, levels
from wattflow.policy.base import Policy


@jit
def waits(state, task):  # type: ignore[no-untyped-def]
    """Whether the task should wait for a busy container of its function."""
    estimate = state.tasks.estimate[task]
    fn = state.shapes.function[state.tasks.form[task]]
    slack = state.extra.slack[task]
    if math.isnan(estimate) or estimate <= 0.0 or state.functions.cold_start_s[fn] <= 0.0:
        return False
    if view.waited_s(state, task) >= slack or state.clock.now[0] >= state.tasks.ready[task] + slack:
        return False
    batch = math.floor(slack / estimate)
    # The task itself is among those that wait.
    return state.functions.waiting[fn] <= batch * state.functions.running[fn]


def priority(state, task):  # type: ignore[no-untyped-def]
    """Least slack first: when the stage's slack ends."""
    return state.clock.now[0] + state.extra.slack[task]


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Warm before cold, the fuller node first; inf for cold ones while the batch lasts."""
    patient = waits(state, task)
    fn = state.shapes.function[state.tasks.form[task]]
    for c in range(out.size):
        empty = 1.0 - costs.core_share(state, variant, c)
        if state.functions.cold_start_s[fn] <= 0.0 or costs.spare_containers(state, state.candidates.node[c], fn) > 0:
            out[c] = empty
        else:
            out[c] = math.inf if patient else 10.0 + empty
    if patient:
        view.hold_until(state, state.tasks.ready[task] + state.extra.slack[task])


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """Each stage's share of the slack."""
    found = levels.levels(workload, cluster)
    extra = levels.per_task(state, workload)
    submit = workload.workflow_submit_s[workload.workflow] if len(workload) else np.zeros(0)
    left = np.maximum(0.0, workload.deadline_s - submit - found.path)
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = np.where(found.path > 0, left * found.seconds / found.path, 0.0)
    usual = (state.params[0] - 1.0) * found.seconds
    extra["slack"][: len(workload)] = np.where(np.isfinite(workload.deadline_s), shared, usual)


FIFER = Policy(
    "fifer",
    "waits for a warm container within the slack; least slack first",
    "10.1145/3423211.3425683",
    score=score,
    priority=priority,
    settings=Settings(),
    params={"objective": 5.0},
    prepare=prepare,
)
