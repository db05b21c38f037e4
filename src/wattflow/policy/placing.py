"""Features of the learned policy: relative facts of a decision, written into the policy's memory. Compiled.

Numbers are ratios, shares, logarithms of ratios or flags, mostly within ±3; seconds are compared with the task, its
workflow's critical path or the cluster's mean wake time, watts and joules with the cluster's or with the flagship's
price. Nothing says which node, function or user it is. The first `AROUND_N` are the same for all candidates of a task.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.policy import pricing, view, wattflow
from wattflow.policy.jit import jit

# The order in which `around` and `candidate` write, and that of the weights in every file.
AROUND = (
    "queue", "busy", "asleep", "short task", "on path", "slack", "waited", "wide", "dial", "response", "makespan",
    "short path",
)  # fmt: skip
CANDIDATE = (
    "dearer", "run share", "awake share", "late", "ends after", "runtime", "wake", "sleeps", "filled", "in use",
    "merit", "idle watts", "crowding", "prolongs", "frequency", "companions",
)  # fmt: skip
"""Names of the features of a row, in order: those of the decision, then those of the candidate."""
ORDER = ("long path", "on path", "slack", "due", "wide", "response", "makespan")
DOZE = (
    "queue", "busy", "asleep", "merit", "all idle", "response", "makespan", "load of late", "wake over paths", "spare",
)  # fmt: skip
CLASS = ("merit", "threads", "size", "idle watts", "break-even", "wake", "few", "sleep watts")
"""Names of the features of the order, sleep and class heads."""
AROUND_N, N = len(AROUND), len(AROUND) + len(CANDIDATE)
ORDER_N, DOZE_N, CLASS_N = len(ORDER), len(DOZE), len(CLASS)
AT, SEEN, PACE, LOAD, PEAK, BUSY, TIMER = range(7)
WATCHED_N = 7
"""Notes kept as time passes: when, whether any task came, logarithm of the critical paths, mean and fading peak of
open tasks over hardware threads, the last of them, and when a look at idle nodes is due."""
FORGETS, MEMORY_PATHS = 0.05, 10.0
"""A task's share in the noted path; critical paths after which the load of before is mostly forgotten."""
FACTS = ("threads", "idle_w", "nodes", "wake_s")
"""Totals or means of the cluster that `facts_of` computes."""
_WAIT = wattflow.DIAL.wait
_ENERGY, _RESPONSE, _MAKESPAN, _COST, _UTILISATION = range(
    len(wattflow.DIAL.defaults) + 1, len(wattflow.DIAL.defaults) + 6
)
"""Places of the dial and, behind the flagship's numbers and ``lean``, of the weights among the policy's numbers."""


def facts_of(state: Any) -> Any:
    """Return hardware threads in all, mean idle watts of a node, nodes, mean seconds of waking."""
    classes = state.classes
    count = classes.count.astype(np.float64)
    nodes = max(1.0, float(count.sum()))
    threads = max(1.0, float((np.minimum(classes.threads, 1e6) * count).sum()))
    wake_s = float((classes.wake_s * count).sum()) / nodes
    return np.array([threads, max(1e-3, float((classes.idle_w * count).sum()) / nodes), nodes, max(10.0, wake_s)])


@jit
def held(x, most):
    """Within ±most."""
    return max(-most, min(most, x))


@jit
def ratio(a, b):
    """Return the logarithm of a / b within ±3; 0 where one is not positive."""
    if a <= 0.0 or b <= 0.0:
        return 0.0
    return held(math.log(a / b), 3.0)


@jit
def all_weights(state):
    """Return the sum of what counts, at least a little."""
    total = view.param(state, _ENERGY) + view.param(state, _RESPONSE) + view.param(state, _MAKESPAN)
    return max(1e-9, total + view.param(state, _COST) + view.param(state, _UTILISATION))


@jit
def response_share(state):
    """Return how much the response of workflows counts, 0–1."""
    return view.param(state, _RESPONSE) / all_weights(state)


@jit
def makespan_share(state):
    """How much the last end counts. Rent runs until then, so cost is counted here; idle nodes are what utilisation and
    energy both punish, so these are the rest."""
    return (view.param(state, _MAKESPAN) + view.param(state, _COST)) / all_weights(state)


@jit
def around(state, task, variant, first, facts):
    """Write the features that all candidates of a decision share."""
    memory = state.memory
    path_s = max(1e-3, view.path_s(state, task))
    typical_s = max(1e-3, view.typical_s(state, task))
    memory[first] = math.log1p(view.waiting(state) / memory[facts])
    memory[first + 1] = min(2.0, view.running(state) / memory[facts])
    memory[first + 2] = view.asleep(state) / memory[facts + 2]
    memory[first + 3] = ratio(memory[facts + 3], typical_s)
    memory[first + 4] = min(1.0, typical_s / path_s)
    memory[first + 5] = held((view.rank(state, task) - view.now_s(state)) / path_s, 2.0)
    memory[first + 6] = min(2.0, (view.now_s(state) - view.ready_s(state, task)) / path_s)
    memory[first + 7] = min(2.0, view.variant_cores(state, variant) * memory[facts + 2] / memory[facts])
    memory[first + 8] = min(3.0, view.param(state, _WAIT))
    memory[first + 9] = response_share(state)
    memory[first + 10] = makespan_share(state)
    memory[first + 11] = ratio(memory[facts + 3], path_s) / 3.0


@jit
def overrated_j(state, c, longest):
    """Return what `view.awake_j` counts too much on a sleeping node whose class has a time-out ``longest`` × the usual
    one."""
    node = view.node_of(state, c)
    after_s = view.sleep_after_s(state, node)
    if longest <= 1.0 or after_s == math.inf or view.wait_s(state, c) <= 0.0:
        return 0.0
    return (view.node_idle_w(state, node) - view.node_sleep_w(state, node)) * after_s * (1.0 - 1.0 / longest)


@jit
def candidate(state, task, variant, c, parts, first, facts, due, price, least, merit, longest):
    """Write the features of one candidate, behind those of `around`; ``parts``: where its numbers are (`pricing`)."""
    memory = state.memory
    at = first + AROUND_N
    node = view.node_of(state, c)
    path_s = max(1e-3, view.path_s(state, task))
    run_s = memory[parts + pricing.RUN]
    finish_s = memory[parts + pricing.FINISH]
    until_s = memory[parts + pricing.UNTIL]
    # `view.awake_and_until` has not looked, where the node never sleeps by itself.
    if until_s == -math.inf:
        until_s = view.busy_until_s(state, node)
    wanted = view.variant_cores(state, variant)
    busy = view.busy_cores(state, node)
    threads = max(1.0, view.node_threads(state, node))
    left_s = until_s - view.now_s(state)
    whole = max(1e-9, price)
    memory[at] = ratio(whole, max(1e-9, least))
    memory[at + 1] = min(1.0, memory[parts + pricing.WORTH] / whole)
    awake_j = memory[parts + pricing.AWAKE] - overrated_j(state, c, longest)
    memory[at + 2] = held(awake_j / whole, 3.0)
    memory[at + 3] = held((view.now_s(state) + finish_s - due) / path_s, 2.0)
    memory[at + 4] = ratio(finish_s, max(1e-3, view.typical_s(state, task)))
    memory[at + 5] = ratio(run_s, max(1e-3, view.typical_s(state, task)))
    memory[at + 6] = min(2.0, view.wait_s(state, c) / memory[facts + 3])
    memory[at + 7] = 1.0 if view.is_asleep(state, node) else 0.0
    memory[at + 8] = min(2.0, (busy + wanted) / threads)
    memory[at + 9] = 1.0 if view.tasks_on(state, node) > 0 else 0.0
    memory[at + 10] = held(merit, 3.0)
    memory[at + 11] = ratio(view.node_idle_w(state, node), memory[facts + 1])
    memory[at + 12] = min(2.0, view.lost_s(state, variant, c, run_s) / max(1e-3, run_s))
    memory[at + 13] = held((finish_s - left_s) / max(1e-3, finish_s), 2.0)
    memory[at + 14] = 1.0 - view.frequency_power(state, node, view.variant_frequency(state, variant))
    room = view.free_cores(state, node) / max(1e-6, view.variant_guaranteed(state, variant))
    memory[at + 15] = min(1.0, view.waiting(state) / max(1.0, room))


@jit
def order(state, task, first, facts):
    """Write the features of a task that enters the queue."""
    memory = state.memory
    path_s = max(1e-3, view.path_s(state, task))
    typical_s = max(1e-3, view.typical_s(state, task))
    memory[first] = ratio(path_s, memory[facts + 3]) / 3.0
    memory[first + 1] = min(1.0, typical_s / path_s)
    memory[first + 2] = min(1.0, view.slack_s(state, task) / path_s)
    memory[first + 3] = held((view.rank(state, task) - view.submit_s(state, task)) / path_s, 2.0)
    memory[first + 4] = min(2.0, view.cores_of(state, task) * memory[facts + 2] / memory[facts])
    memory[first + 5] = response_share(state)
    memory[first + 6] = makespan_share(state)


@jit
def dozing(state, first, facts, merit, watched):
    """Write the features that idle nodes of a class share: how busy the cluster is and was, how good the class."""
    memory = state.memory
    memory[first] = math.log1p(view.waiting(state) / memory[facts])
    memory[first + 1] = min(2.0, view.running(state) / memory[facts])
    memory[first + 2] = view.asleep(state) / memory[facts + 2]
    memory[first + 3] = held(merit, 3.0)
    memory[first + 4] = 1.0 if view.running(state) == 0 else 0.0
    memory[first + 5] = response_share(state)
    memory[first + 6] = makespan_share(state)
    memory[first + 7] = min(2.0, memory[watched + LOAD])


@jit
def dozing_node(state, node, first, facts, watched, awake):
    """Write the features of an idle node: its waking beside the paths of late, and if others would do without it.

    ``awake`` counts hardware threads of nodes that are awake, this one included.
    """
    memory = state.memory
    known = memory[watched + SEEN] > 0.0
    wake_s = max(1e-3, view.node_wake_s(state, node))
    memory[first + 8] = held(math.log(wake_s) - memory[watched + PACE], 3.0) if known else 0.0
    spare = (awake - view.node_threads(state, node)) / memory[facts] - memory[watched + PEAK]
    memory[first + 9] = held(2.0 * spare, 2.0)


@jit
def watch_task(state, task, watched):
    """Note the critical path of a workflow whose task enters the queue."""
    memory = state.memory
    pace = math.log(max(1e-3, view.path_s(state, task)))
    share = 1.0 if memory[watched + SEEN] == 0.0 else FORGETS
    memory[watched + PACE] += share * (pace - memory[watched + PACE])
    memory[watched + SEEN] = 1.0


@jit
def watch(state, facts, watched):
    """Note how busy the cluster is: a mean and a fading peak over some critical paths."""
    memory = state.memory
    passed_s = view.now_s(state) - memory[watched + AT]
    if memory[watched + SEEN] == 0.0 or passed_s < 0.0:
        passed_s = 0.0
    gone = 1.0 - math.exp(-passed_s / (MEMORY_PATHS * math.exp(memory[watched + PACE])))
    # What was there since the last look is what that look saw.
    memory[watched + LOAD] += gone * (memory[watched + BUSY] - memory[watched + LOAD])
    busy = (view.running(state) + view.waiting(state)) / memory[facts]
    memory[watched + PEAK] = max(min(2.0, busy), memory[watched + PEAK] + gone * (busy - memory[watched + PEAK]))
    memory[watched + BUSY] = busy
    memory[watched + AT] = view.now_s(state)
