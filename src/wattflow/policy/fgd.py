"""FGD: fragmentation gradient descent for shared GPUs, and PWR, which weighs added watts against it.

Weng, Yang, Yu, Wang, Tang, Yang, Zhang: Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC '23, https://www.usenix.org/conference/atc23/presentation/weng. A node's fragmentation
for a task shape is the free GPU share that the shape cannot use: all of it where the shape does not fit (or needs no
GPU), else the rests that are smaller than its share; over all shapes it is the mean by how frequent they are. A task
goes where this rises least.

PWR: Lettich, Carlini, Nardini, Perego, Trani: Power- and fragmentation-aware online scheduling for GPU datacenters,
CCGrid 2025, doi:10.1109/CCGRID64434.2025.00015. Added watts and added fragmentation are each scaled to 0 … 100 over
the candidates, and summed with weights α and 1 − α.

The target workload is what arrived so far; `targeting` gives it beforehand, as the paper's experiments do (the most
frequent requests of cores and GPUs that are 95 % of all). O(candidates × shapes × GPUs of a node) per task. Ties go to
the lower index.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import effects, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

POPULAR = 0.95
DIAL = view.dials(alpha=0.1)
NOTES = view.notes("targets", "form", "variant", "weight", "rests", "watts")


@jit
def rest_u(state, device, taken_u):
    """Return a GPU's free share in millionths once ``taken_u`` more is taken; exclusive and time-sliced by task."""
    turns = view.device_turns(state, device)
    if turns > 0:
        # Of a device that is shared by turns a task takes a turn, whatever its share.
        tasks = view.device_tasks(state, device) + (1 if taken_u > 0 else 0)
        return max(0, view.WHOLE_U - view.WHOLE_U * tasks // turns)
    return max(0, view.WHOLE_U - view.taken_u(state, device) - taken_u)


@jit
def note_rests(state, node, at, devices, share_u):
    """Write the free share of each GPU of the node into the last part of the memory; returns how many there are.

    ``devices`` GPUs from ``at`` on that are free count as taken by ``share_u`` each: the placement under trial.
    """
    first, behind = view.devices_of(state, node)
    left = devices
    n = 0
    for d in range(first, behind):
        if not view.is_gpu(state, d):
            continue
        taken_u = 0
        if left > 0 and d >= at and (devices == 1 or view.device_tasks(state, d) == 0):
            taken_u = share_u
            left -= 1
        effects.note(state, NOTES.rests, n, rest_u(state, d, taken_u))
        n += 1
    return n


@jit
def useless_u(state, wanted, gpus):
    """Of the noted free shares, what a task of variant ``wanted`` cannot use although its node has cores for it."""
    need_u = view.variant_share_u(state, wanted)
    total = 0.0
    fitting_u = 0.0
    fitting = 0
    for i in range(gpus):
        free = view.recall(state, NOTES.rests, i)
        total += free
        if free >= need_u:
            fitting_u += free
            fitting += 1
    # Enough GPUs that are free enough: only the rests too small for it are lost; else all of it is.
    return total - fitting_u if fitting >= view.variant_devices(state, wanted) else total


@jit
def popularity(state, i):
    """Return how often shape i is asked for: as given, else as it arrived so far."""
    given = view.recall(state, NOTES.weight, i)
    # −1 marks a shape that is counted as it arrives (`prepare`); known targets come with their weights.
    return given if given >= 0.0 else float(view.shape_seen(state, int(view.recall(state, NOTES.form, i))))


@jit
def fragments(state, node, variant, device):
    """Return the mean over shapes of the node's fragments; ``variant`` ≥ 0: as if placed on its ``device``."""
    free_u = view.free_u(state, node)
    devices = 0
    share_u = 0
    if variant >= 0:
        free_u -= view.variant_need_u(state, variant)
        if device >= 0:
            devices = view.variant_devices(state, variant)
            share_u = view.variant_share_u(state, variant)
    gpus = note_rests(state, node, device, devices, share_u)
    total = 0.0
    for i in range(gpus):
        total += view.recall(state, NOTES.rests, i)
    mean = 0.0
    count = int(view.recall(state, NOTES.targets, 0))
    cls = view.class_of(state, node)
    seen = 0.0
    for i in range(count):
        weight = popularity(state, i)
        if weight <= 0.0:
            continue
        seen += weight
        wanted = int(view.recall(state, NOTES.variant, i))
        # A shape that needs no GPU, or that the node has no cores for, can use none of its free share.
        lost = total
        fits = view.variant_need_u(state, wanted) <= free_u and view.class_takes(state, wanted, cls)
        if view.wants_gpu(state, wanted) and fits:
            lost = useless_u(state, wanted, gpus)
        mean += weight * lost
    return mean / (seen * view.WHOLE_U) if seen > 0.0 else 0.0


@jit
def note_added_fragments(state, variant, out):
    """Write how much the node's fragmentation rises if the variant is placed there, for each candidate."""
    last = -1
    before = 0.0
    for c in range(out.size):
        node = view.node_of(state, c)
        out[c] = 0.0
        first, behind = view.devices_of(state, node)
        if first == behind:
            continue
        if node != last:
            # The candidates of one node follow each other.
            before = fragments(state, node, -1, -1)
            last = node
        added = fragments(state, node, variant, view.device_of(state, c)) - before
        # In billionths of a GPU, so that equal sums are equal and ties go by the rule, not by rounding.
        out[c] = math.floor(added * 1e9 + 0.5) / 1e9


def score(state, task, variant, out):
    """F(node with the task) − F(node)."""
    note_added_fragments(state, variant, out)


@jit
def scale(out, low, high):
    """Scale costs to 0 … 100 between the lowest and the highest; the unknown stays above."""
    span = high - low
    for c in range(out.size):
        # Unknown watts keep a cost above all scaled ones.
        if out[c] < view.UNKNOWN_COST:
            out[c] = 100.0 * (out[c] - low) / span if span > 0.0 else 0.0


@jit
def scale_known(out):
    """Scale an array of costs by its own known extremes."""
    low = view.UNKNOWN_COST
    high = -view.UNKNOWN_COST
    for c in range(out.size):
        if out[c] < view.UNKNOWN_COST:
            low = min(low, out[c])
            high = max(high, out[c])
    scale(out, low, high)


def score_power(state, task, variant, out):
    """α · added watts + (1 − α) · added fragments, each from 0 to 100 over the candidates."""
    alpha = view.param(state, DIAL.alpha)
    # Fragments go straight into `out`; the watts need a column of their own until both are scaled.
    watts = effects.notebook(state, NOTES.watts, out.size)
    for c in range(out.size):
        watts[c] = view.added_w(state, task, variant, c)
    note_added_fragments(state, variant, out)
    scale_known(watts)
    scale_known(out)
    for c in range(out.size):
        if watts[c] < view.UNKNOWN_COST:
            out[c] = alpha * watts[c] + (1.0 - alpha) * out[c]
        else:
            out[c] = view.UNKNOWN_COST


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out the shapes, to be counted as they arrive, a column of watts and the GPUs of a node."""
    shapes = view.shape_count(state)
    _lay_out(state, cluster, np.arange(shapes), np.full(shapes, -1.0))


def _lay_out(state: Any, cluster: Cluster, form: NDArray[np.int64], weight: NDArray[np.float64]) -> None:
    gpus = max(len(node.devices) for node in cluster.nodes)
    view.lay_out(
        state,
        NOTES,
        targets=[len(form)],
        form=form,
        variant=view.first_variants(state, form),
        weight=weight,
        rests=np.zeros(gpus),
        watts=np.zeros(view.candidate_room(state)),
    )


def typical(workload: Workload) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the most frequent requests of cores and GPUs that together are 95 % of all, and their shares."""
    counts = np.bincount(workload.shape, minlength=len(workload.shapes))
    found: dict[tuple[object, ...], list[int]] = {}
    for form, shape in enumerate(workload.shapes):
        needs = shape.variants[0]
        request = (needs.cores, needs.device, needs.devices, needs.device_share, needs.device_models)
        # By what is asked for, whichever function: equal requests are one target.
        row = found.setdefault(request, [form, 0])
        row[1] += int(counts[form])
    rows = sorted(found.values(), key=lambda row: -row[1])
    total = np.cumsum([row[1] for row in rows])
    keep = rows[: int(np.searchsorted(total, POPULAR * total[-1])) + 1]
    weight = np.array([row[1] for row in keep], np.float64)
    return np.array([row[0] for row in keep], np.int64), weight / weight.sum()


def targeting(policy: Policy, workload: Workload) -> Policy:
    """Return the same policy with the target workload known beforehand, as in the paper: its most frequent shapes."""
    form, weight = typical(workload)

    def known(state: Any, cluster: Cluster) -> None:
        _lay_out(state, cluster, form, weight)

    return replace(policy, prepare=known)


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
    params=DIAL.defaults,
    prepare=prepare,
)
