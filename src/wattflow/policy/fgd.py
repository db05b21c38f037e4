"""FGD: fragmentation gradient descent for shared GPUs, and PWR, which weighs added watts against it.

Weng, Yang, Yu, Wang, Tang, Yang, Zhang: Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC '23, https://www.usenix.org/conference/atc23/presentation/weng. A node's fragmentation
for a task shape is the free GPU share that the shape cannot use: all of it where the shape does not fit (or needs no
GPU), else the rests that are smaller than its share; over all shapes it is the mean by how frequent they are. A task
goes where this rises least.

PWR: Lettich, Carlini, Nardini, Perego, Trani: Power- and fragmentation-aware online scheduling for GPU datacenters,
CCGrid 2025, doi:10.1109/CCGRID64434.2025.00015. Added watts and added fragmentation are each scaled to 0 … 100 over
the candidates, and summed with weights α and 1 − α.

O(candidates × shapes × GPUs of a node) per task; the 64 most frequent shapes stand for all. Ties go to the lower
index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine import view
from wattflow.engine.tables import GPU, MICRO, UNKNOWN_COST
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import Policy

MOST_SHAPES = 64
# state.memory: number of shapes, (variant, frequency) of each, a column of watts, then the free shares of one node
SHAPES = 0
WATTS = 1 + 2 * MOST_SHAPES


@jit
def rest_u(state, device, taken_u):  # type: ignore[no-untyped-def]
    """Free share of a GPU in millionths, once ``taken_u`` more is taken; exclusive and time-sliced ones by task."""
    row = state.devices[device]
    kind = state.device_classes[row.cls]
    if kind.sharing <= 1:
        slots = kind.slots if kind.sharing == 1 else 1
        tasks = row.tasks + (1 if taken_u > 0 else 0)
        return max(0, MICRO - MICRO * tasks // slots)
    return max(0, MICRO - row.share_u - taken_u)


@jit
def note_rests(state, node, at, devices, share_u):  # type: ignore[no-untyped-def]
    """Write the free share of each GPU of the node into the last part of the memory; returns how many there are.

    ``devices`` GPUs from ``at`` on that are free count as taken by ``share_u`` each: the placement under trial.
    """
    first = state.nodes[node].device_first
    rests = WATTS + state.candidates.size
    left = devices
    n = 0
    for d in range(first, first + state.nodes[node].device_n):
        row = state.devices[d]
        if state.device_classes[row.cls].kind != GPU:
            continue
        taken_u = 0
        if left > 0 and d >= at and (devices == 1 or row.tasks == 0):
            taken_u = share_u
            left -= 1
        state.memory[rests + n] = rest_u(state, d, taken_u)
        n += 1
    return n


@jit
def useless_u(state, wanted, gpus):  # type: ignore[no-untyped-def]
    """Of the noted free shares, what a task of variant ``wanted`` cannot use although its node has cores for it."""
    needs = state.variants[wanted]
    need_u = needs.share_u if needs.devices == 1 else MICRO
    rests = WATTS + state.candidates.size
    total = 0.0
    fitting_u = 0.0
    fitting = 0
    for i in range(gpus):
        free = state.memory[rests + i]
        total += free
        if free >= need_u:
            fitting_u += free
            fitting += 1
    return total - fitting_u if fitting >= needs.devices else total


@jit
def fragments(state, node, variant, device):  # type: ignore[no-untyped-def]
    """Mean over shapes of the node's fragments; with ``variant`` ≥ 0 as if that were placed on ``device`` of it."""
    row = state.nodes[node]
    free_u = row.capacity_u - row.used_u
    free_mem = state.classes[row.cls].memory - row.used_mem
    devices = 0
    share_u = 0
    if variant >= 0:
        trial = state.variants[variant]
        free_u -= trial.need_u
        free_mem -= trial.memory
        if device >= 0:
            devices = trial.devices
            share_u = trial.share_u if devices == 1 else MICRO
    gpus = note_rests(state, node, device, devices, share_u)
    rests = WATTS + state.candidates.size
    total = 0.0
    for i in range(gpus):
        total += state.memory[rests + i]
    mean = 0.0
    for i in range(int(state.memory[SHAPES])):
        wanted = int(state.memory[1 + 2 * i])
        needs = state.variants[wanted]
        lost = total
        fits = needs.need_u <= free_u and needs.memory <= free_mem and state.class_ok[wanted, row.cls] == 1
        if needs.device == GPU and fits:
            lost = useless_u(state, wanted, gpus)
        mean += state.memory[2 + 2 * i] * lost
    return mean / MICRO


@jit
def note_added_fragments(state, variant, out):  # type: ignore[no-untyped-def]
    """How much the node's fragmentation rises if the variant is placed there, for each candidate."""
    last = -1
    before = 0.0
    for c in range(out.size):
        node = state.candidates[c].node
        out[c] = 0.0
        if state.nodes[node].device_n == 0:
            continue
        if node != last:
            # The candidates of one node follow each other.
            before = fragments(state, node, -1, -1)
            last = node
        added = fragments(state, node, variant, state.candidates[c].device) - before
        # In billionths of a GPU, so that equal sums are equal and ties go by the rule, not by rounding.
        out[c] = math.floor(added * 1e9 + 0.5) / 1e9


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """F(node with the task) − F(node)."""
    note_added_fragments(state, variant, out)


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
    watts = state.memory[WATTS : WATTS + out.size]
    for c in range(out.size):
        watts[c] = view.added_w(state, task, variant, c)
    note_added_fragments(state, variant, out)
    scale_known(watts)
    scale_known(out)
    for c in range(out.size):
        if watts[c] < UNKNOWN_COST:
            out[c] = alpha * watts[c] + (1.0 - alpha) * out[c]
        else:
            out[c] = UNKNOWN_COST


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """The most frequent shapes with their frequencies, room for a column of watts and for the GPUs of a node."""
    counts = np.bincount(workload.shape, minlength=len(workload.shapes))
    order = np.argsort(-counts, kind="stable")[:MOST_SHAPES]
    order = order[counts[order] > 0]
    gpus = max(len(node.devices) for node in cluster.nodes)
    notes = np.zeros(WATTS + len(state.candidates) + gpus)
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
