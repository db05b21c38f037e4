"""Kubernetes' default scoring: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, weight 1 each.

As documented for kube-scheduler, in its whole numbers from 0 to 100; requests count, the pod's included. A pod without
a request for cores or memory counts as one of 100 m or 200 MiB when LeastAllocated scores, and only there: it fits
wherever there is room for a pod, and BalancedAllocation (since 1.33) has no say on a pod without any request. A node
takes 110 pods. On 100 nodes and more only some that fit are scored, from a rotating start (`fit.enough_nodes`).
Its other score plugins (taints, affinity, topology spread, images) speak of facts that are not modelled here.
kube-scheduler picks among equal scores at random; here ties go to the lower index, or with ``ties`` = 1 to a seeded
draw. O(candidates) per task.
https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/
https://kubernetes.io/docs/concepts/scheduling-eviction/scheduler-perf-tuning/
"""

from __future__ import annotations

import math

from wattflow.engine.settings import PolicySettings
from wattflow.policy import effects, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

LEAST_CORES = 0.1
LEAST_BYTES = 200 << 20
"""Requests that a pod without any counts for when nodes are scored by use."""
PODS = 110
"""A kubelet's limit unless it is told otherwise."""
DIAL = view.dials(ties=0.0)


@jit
def free_points(part, whole):
    """⌊100 (capacity − requested) / capacity⌋. The 1e-9 keeps whole shares whole."""
    return math.floor(100.0 * (1.0 - min(1.0, part / whole)) + 1e-9) if whole > 0 else 100.0


@jit
def least_allocated(state, node, variant):
    """Return the mean free points of cores and memory."""
    cores, memory = view.requested(state, node, variant)
    cores_n, memory_n, _ = view.unasked(state, node)
    # LeastAllocated counts a pod without requests by these, wherever it is; `requested` leaves it out.
    cores_n += 0 if view.asks_cores(state, variant) else 1
    memory_n += 0 if view.asks_memory(state, variant) else 1
    by_cores = free_points(cores + LEAST_CORES * cores_n, view.request_cores(state, node))
    by_memory = free_points(memory + LEAST_BYTES * memory_n, view.node_memory(state, node))
    return math.floor((by_cores + by_memory) / 2.0)


@jit
def balanced(state, node, variant):
    """1 − standard deviation of the shares; of two it is half their difference. Nothing for a pod without requests."""
    if not view.asks_cores(state, variant) and not view.asks_memory(state, variant):
        return 0.0
    cores, memory = view.requested(state, node, variant)
    whole = view.node_memory(state, node)
    by_cores = min(1.0, cores / view.request_cores(state, node))
    by_memory = min(1.0, memory / whole) if whole > 0 else 0.0
    return math.floor(100.0 * (1.0 - abs(by_cores - by_memory) / 2.0) + 1e-9)


@jit
def points(cpu, memory):
    """Return the points of least allocated and balanced together, for pods that request all, in one pass."""
    free = math.floor(100.0 * (1.0 - cpu) + 1e-9) + math.floor(100.0 * (1.0 - memory) + 1e-9)
    return math.floor(free / 2.0) + math.floor(100.0 * (1.0 - abs(cpu - memory) / 2.0) + 1e-9)


@jit
def tie(state, node):
    """Between 0 and ½, as points are whole numbers: the least of a draw for each of the equal nodes it stands for."""
    # The least of n draws, by one draw: n equal nodes stand as one
    # candidate, and each should win as often as it would alone.
    return 0.5 * (1.0 - (1.0 - effects.draw(state)) ** (1.0 / view.stands_for(state, node)))


@jit
def fill_points(state, variant, out):
    """Write the points that are missing to 200 on each candidate; equal ones are left to the lower index."""
    # The usual case in one pass; with bare pods each candidate's attempts have to be looked at.
    if view.all_ask(state):
        for c in range(out.size):
            cpu = min(1.0, view.core_share(state, variant, c))
            out[c] = 200.0 - points(cpu, min(1.0, view.memory_share(state, variant, c)))
        return
    for c in range(out.size):
        node = view.node_of(state, c)
        out[c] = 200.0 - (least_allocated(state, node, variant) + balanced(state, node, variant))


def score(state, task, variant, out):
    """200 − (least allocated + balanced)."""
    if view.param(state, DIAL.ties) > 0.0:
        for c in range(out.size):
            node = view.node_of(state, c)
            out[c] = 200.0 - (least_allocated(state, node, variant) + balanced(state, node, variant)) + tie(state, node)
        return
    fill_points(state, variant, out)


def allocated(state, task, variant, out):
    """100 − LeastAllocated."""
    for c in range(out.size):
        out[c] = 100.0 - least_allocated(state, view.node_of(state, c), variant)


def imbalance(state, task, variant, out):
    """100 − BalancedAllocation."""
    for c in range(out.size):
        out[c] = 100.0 - balanced(state, view.node_of(state, c), variant)


KUBERNETES = Policy(
    "kubernetes",
    "kube-scheduler's default scoring: least allocated and balanced",
    score=score,
    settings=PolicySettings(pods=PODS, samples=True, local=True),
    params=DIAL.defaults,
    limits={"ties": (0.0, 1.0)},
    terms={"allocated": allocated, "imbalance": imbalance},
)
