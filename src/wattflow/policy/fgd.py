"""FGD: fragmentation gradient descent for shared GPUs, and PWR, which weighs added watts against it.

Weng, Yang, Yu, Wang, Tang, Yang, Zhang: Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC '23, https://www.usenix.org/conference/atc23/presentation/weng. A node's fragmentation
for a task shape is the free GPU share that the shape cannot use: all of it where the shape does not fit (or needs no
GPU), else the rests that are smaller than its share; over all shapes it is the mean by how frequent they are. A task
goes where this rises least.

PWR: Lettich, Carlini, Nardini, Perego, Trani: Power- and fragmentation-aware online scheduling for GPU datacenters,
CCGrid 2025, doi:10.1109/CCGRID64434.2025.00015. Added watts and added fragmentation are each scaled to 0 … 100 over
the candidates, and summed with weights α and 1 − α.

O(candidates × shapes × GPUs of a node) per task; the 32 most frequent shapes stand for all. Ties go to the lower
index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine import view
from wattflow.engine.jit import jit
from wattflow.engine.tables import GPU, MICRO, UNKNOWN_COST
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import Policy

MOST_SHAPES = 32
# state.memory: number of shapes, then (variant, frequency) of each
SHAPES = 0


@jit
def rest_u(state, device, taken_u):  # type: ignore[no-untyped-def]
    """Free share of a GPU in millionths, once ``taken_u`` more is taken; exclusive and time-sliced ones by task."""
    dcls = state.devices.cls[device]
    sharing = state.device_classes.sharing[dcls]
    if sharing <= 1:
        slots = state.device_classes.slots[dcls] if sharing == 1 else 1
        tasks = state.devices.tasks[device] + (1 if taken_u > 0 else 0)
        return max(0, MICRO - MICRO * tasks // slots)
    return max(0, MICRO - state.devices.share_u[device] - taken_u)


@jit
def shape_fragments(state, node, wanted, free_u, free_mem, at, devices, share_u):  # type: ignore[no-untyped-def]
    """Free GPU share of the node, in GPUs, that a task of variant ``wanted`` cannot use.

    ``devices`` GPUs from ``at`` on that are free count as taken by ``share_u`` each: the placement under trial.
    """
    v = state.variants
    first = state.nodes.device_first[node]
    need_u = v.share_u[wanted] if v.devices[wanted] == 1 else MICRO
    total = 0
    useless = 0
    fitting = 0
    left = devices
    for d in range(first, first + state.nodes.device_n[node]):
        if state.device_classes.kind[state.devices.cls[d]] != GPU:
            continue
        taken_u = 0
        if d >= at and left > 0 and at >= 0 and (devices == 1 or state.devices.tasks[d] == 0):
            taken_u = share_u
            left -= 1
        free = rest_u(state, d, taken_u)
        total += free
        if free < need_u:
            useless += free
        else:
            fitting += 1
    if v.device[wanted] != GPU or state.class_ok[wanted, state.nodes.cls[node]] == 0:
        return total / MICRO
    if fitting < v.devices[wanted] or v.need_u[wanted] > free_u or v.memory[wanted] > free_mem:
        return total / MICRO
    return useless / MICRO


@jit
def fragments(state, node, variant, device):  # type: ignore[no-untyped-def]
    """Mean over shapes of the node's fragments; with ``variant`` ≥ 0 as if that were placed on ``device`` of it."""
    free_u = state.nodes.capacity_u[node] - state.nodes.used_u[node]
    free_mem = state.classes.memory[state.nodes.cls[node]] - state.nodes.used_mem[node]
    devices = 0
    share_u = 0
    if variant >= 0:
        free_u -= state.variants.need_u[variant]
        free_mem -= state.variants.memory[variant]
        if device >= 0:
            devices = state.variants.devices[variant]
            share_u = state.variants.share_u[variant] if devices == 1 else MICRO
    mean = 0.0
    for i in range(int(state.memory[SHAPES])):
        wanted = int(state.memory[1 + 2 * i])
        lost = shape_fragments(state, node, wanted, free_u, free_mem, device, devices, share_u)
        mean += state.memory[2 + 2 * i] * lost
    return mean


@jit
def added_fragments(state, variant, candidate):  # type: ignore[no-untyped-def]
    """How much the node's fragmentation rises if the variant is placed there."""
    node = state.candidates.node[candidate]
    if state.nodes.device_n[node] == 0:
        return 0.0
    device = state.candidates.device[candidate]
    return fragments(state, node, variant, device) - fragments(state, node, -1, -1)


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """F(node with the task) − F(node)."""
    for c in range(out.size):
        out[c] = added_fragments(state, variant, c)


@jit
def scale(out, low, high):  # type: ignore[no-untyped-def]
    """Costs to 0 … 100 between the lowest and the highest; the unknown stays above."""
    span = high - low
    for c in range(out.size):
        if out[c] < UNKNOWN_COST:
            out[c] = 100.0 * (out[c] - low) / span if span > 0.0 else 0.0


@jit
def scale_known(out):  # type: ignore[no-untyped-def]
    """Scale an array of costs by its own known extremes."""
    low = UNKNOWN_COST
    high = -UNKNOWN_COST
    for c in range(out.size):
        if out[c] < UNKNOWN_COST:
            low = min(low, out[c])
            high = max(high, out[c])
    scale(out, low, high)


def score_power(state, task, variant, out):  # type: ignore[no-untyped-def]
    """α · added watts + (1 − α) · added fragments, each from 0 to 100 over the candidates."""
    alpha = state.params[0]
    watts = state.memory[1 + 2 * MOST_SHAPES : 1 + 2 * MOST_SHAPES + out.size]
    for c in range(out.size):
        watts[c] = view.added_w(state, task, variant, c)
        out[c] = added_fragments(state, variant, c)
    scale_known(watts)
    scale_known(out)
    for c in range(out.size):
        if watts[c] < UNKNOWN_COST:
            out[c] = alpha * watts[c] + (1.0 - alpha) * out[c]
        else:
            out[c] = UNKNOWN_COST


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """The most frequent shapes with their frequencies, and room for a column of watts."""
    counts = np.bincount(workload.shape, minlength=len(workload.shapes))
    order = np.argsort(-counts, kind="stable")[:MOST_SHAPES]
    order = order[counts[order] > 0]
    notes = np.zeros(1 + 2 * MOST_SHAPES + len(state.candidates))
    notes[SHAPES] = len(order)
    notes[1 : 1 + 2 * len(order) : 2] = state.shapes.variant_first[order]
    notes[2 : 2 + 2 * len(order) : 2] = counts[order] / max(1, counts[order].sum())
    levels.note(state, notes)


FGD = Policy(
    "fgd",
    "least added GPU fragmentation",
    "https://www.usenix.org/conference/atc23/presentation/weng",
    score=score,
    prepare=prepare,
)
PWR = Policy(
    "pwr",
    "added watts weighed against added GPU fragmentation",
    "10.1109/CCGRID64434.2025.00015",
    score=score_power,
    params={"alpha": 0.1},
    prepare=prepare,
)
