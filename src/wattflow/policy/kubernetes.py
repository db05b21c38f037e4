"""Kubernetes' default scoring: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, weight 1 each.

As documented for kube-scheduler, in its whole numbers from 0 to 100; requests count, the pod's included. Its other
score plugins (taints, affinity, topology spread, images) speak of facts that are not modelled here. kube-scheduler
picks among equal scores at random; here ties go to the lower index. O(candidates) per task.
https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/
"""

from __future__ import annotations

import math

from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit


@jit
def least_allocated(cpu, memory):  # type: ignore[no-untyped-def]
    """LeastAllocated: mean of ⌊100 (capacity − requested) / capacity⌋. The 1e-9 keeps whole shares whole."""
    return math.floor((math.floor(100.0 * (1.0 - cpu) + 1e-9) + math.floor(100.0 * (1.0 - memory) + 1e-9)) / 2.0)


@jit
def balance(cpu, memory):  # type: ignore[no-untyped-def]
    """BalancedAllocation: 1 − standard deviation of the shares; of two it is half their difference."""
    return math.floor(100.0 * (1.0 - abs(cpu - memory) / 2.0) + 1e-9)


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """200 − (least allocated + balanced)."""
    for c in range(out.size):
        cpu = min(1.0, view.core_share(state, variant, c))
        memory = min(1.0, view.memory_share(state, variant, c))
        out[c] = 200.0 - (least_allocated(cpu, memory) + balance(cpu, memory))


def allocated(state, task, variant, out):  # type: ignore[no-untyped-def]
    """100 − LeastAllocated."""
    for c in range(out.size):
        cpu = min(1.0, view.core_share(state, variant, c))
        out[c] = 100.0 - least_allocated(cpu, min(1.0, view.memory_share(state, variant, c)))


def imbalance(state, task, variant, out):  # type: ignore[no-untyped-def]
    """100 − BalancedAllocation."""
    for c in range(out.size):
        cpu = min(1.0, view.core_share(state, variant, c))
        out[c] = 100.0 - balance(cpu, min(1.0, view.memory_share(state, variant, c)))


KUBERNETES = Policy(
    "kubernetes",
    "kube-scheduler's default scoring: least allocated and balanced",
    score=score,
    terms={"allocated": allocated, "imbalance": imbalance},
)
