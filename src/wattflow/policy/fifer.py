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

from wattflow.policy import effects, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(objective=5.0)


@jit
def stage_slack_s(state, task):
    """The stage's share of what its deadline leaves; without one (objective − 1) times its runtime."""
    typical = view.typical_s(state, task)
    deadline = view.deadline_s(state, task)
    if deadline == math.inf:
        return (view.param(state, DIAL.objective) - 1.0) * typical
    path = view.path_s(state, task)
    left = max(0.0, deadline - view.submit_s(state, task) - path)
    return left * typical / path if path > 0.0 else 0.0


@jit
def waits(state, task):
    """Whether the task should wait for a busy container of its function."""
    estimate = view.estimate_s(state, task)
    fn = view.function_of(state, task)
    if not view.has_estimate(state, task) or estimate <= 0.0 or view.container_start_s(state, fn) <= 0.0:
        return False
    slack = stage_slack_s(state, task)
    if view.waited_s(state, task) >= slack or view.now_s(state) >= view.ready_s(state, task) + slack:
        return False
    batch = math.floor(slack / estimate)
    # The task itself is among those that wait.
    return view.function_waiting(state, fn) <= batch * view.function_running(state, fn)


def priority(state, task):
    """Least slack first: when the stage's slack ends."""
    return view.now_s(state) + stage_slack_s(state, task)


def score(state, task, variant, out):
    """Warm before cold, the fuller node first; inf for cold ones while the batch lasts."""
    patient = waits(state, task)
    fn = view.function_of(state, task)
    for c in range(out.size):
        empty = 1.0 - view.core_share(state, variant, c)
        if view.container_start_s(state, fn) <= 0.0 or view.spare_containers(state, view.node_of(state, c), fn) > 0:
            out[c] = empty
        else:
            out[c] = math.inf if patient else 10.0 + empty
    if patient:
        effects.hold_until(state, view.ready_s(state, task) + stage_slack_s(state, task))


FIFER = Policy(
    "fifer",
    "waits for a warm container within the slack; least slack first",
    "10.1145/3423211.3425683",
    score=score,
    priority=priority,
    params=DIAL.defaults,
    slack=True,
)
