"""`wattflow` when waiting costs nobody anything (``wait`` = ∞): fewest joules for the whole cluster.

Every candidate is priced in joules:

    cost = run + cold start + transfer + (wake + idle) / max(1, α · n) + κ · W / m · lateness

- *run*: added watts × runtime × c / (X(D + c) − X(D)): what c more busy threads add to the node's throughput X (less
  than c beyond its cores) is what they buy.
- *idle*: (idle − sleep) watts for as long as the task keeps a node that can sleep awake beyond what already runs
  there. Waking and idling are shared by (α of) the n waiting tasks that could fill the node now, so a crowd wakes a
  large node and a single task a small one.
- *lateness*: seconds by which the task would end after its latest finish on the workflow's critical path (or by its
  deadline). Each costs κ times the idle watts W of the whole cluster, which has to stay for the last task, over the m
  tasks that wait or run: with one task under way the cluster waits for it, with a thousand it hardly does.

A task that can wait until its latest start does not wake a node before (the wake time counted in). Nodes sleep after
a tenth of their break-even time, (wake + enter) energy over saved watts.
"""

from __future__ import annotations

import math

from wattflow.policy import effects, view
from wattflow.policy.jit import jit

LATE, SLEEP, AMORTISE = 1.0, 0.1, 0.3
"""κ, the share of the break-even time, and α: chosen on generated workloads with seeds from 1000 on."""


@jit
def companions(state, variant, node):
    """Return how many waiting tasks, this one included, could share the node's waking."""
    # A rounding below a whole number must not lose a companion; without a guarantee the division would be by 0.
    room = math.floor(view.free_cores(state, node) / max(1e-6, view.variant_guaranteed(state, variant)) + 1e-9)
    return max(1.0, min(float(view.waiting(state)), room) * AMORTISE)


@jit
def price_j(state, task, variant, candidate, idle_w):
    """Return the whole cost of a candidate."""
    if view.added_w(state, task, variant, candidate) >= view.UNKNOWN_COST:
        return view.UNKNOWN_COST
    finish_s = view.crowded_finish_s(state, task, variant, candidate)
    joules = view.worth_j(state, task, variant, candidate)
    joules += view.awake_j(state, candidate, finish_s) / companions(state, variant, view.node_of(state, candidate))
    late_s = view.now_s(state) + finish_s - view.latest_start_s(state, task) - view.typical_s(state, task)
    if late_s > 0.0:
        under_way = float(view.waiting(state) + view.running(state))
        # With nobody under way the cluster waits for this one alone.
        joules += LATE * idle_w * late_s / max(1.0, under_way)
    return view.bounded(joules)


@jit
def wake_at_s(state, task, candidate):
    """For a sleeping node: when it must be woken for the task to start no later than it may; else −inf."""
    node = view.node_of(state, candidate)
    if not view.is_asleep(state, node):
        return -math.inf
    return view.latest_start_s(state, task) - view.node_wake_s(state, node)


@jit
def crowded(state, variant, node):
    """Tell whether the task would find no hardware thread of its own on a node that is in use."""
    beyond = view.busy_cores(state, node) + view.variant_cores(state, variant) - view.node_threads(state, node)
    # An empty node takes a task of any width, or a wide one would wait for ever.
    return view.tasks_on(state, node) > 0 and beyond > 1e-9


@jit
def fill_costs(state, task, variant, idle_w, out):
    """Joules for the cluster; inf on crowded nodes, and on sleeping ones while the task can wait for one that is on."""
    # With nothing running no node will be free that is on: it does not wait.
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
            out[c] = price_j(state, task, variant, c, idle_w)
            taken = True
    # Only where nothing was priced: a place that can be had now ends the wait.
    if not taken and resume < math.inf:
        effects.hold_until(state, resume)
