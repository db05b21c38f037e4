"""Levels of a workload's DAGs: how long before each task, how long from it on, and what that leaves as slack.

Seconds are means over the cluster's cores, as if speeds were not looked at; a task without an estimate counts as
one of a second, as everywhere. Data and waiting are left out. Each workflow is looked at on its own, so many at once
mean the same. O(tasks + edges), compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload

Floats = NDArray[np.float64]
GUESS_S = 1.0
"""The one rule for a task without an estimate, wherever seconds are needed: it counts as one of a second."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Per task, in seconds.

    Attributes:
        seconds: Estimated runtime at mean speed.
        before: Earliest start after the workflow's submission: the longest path that leads to the task.
        rest: The longest path from the task to the end, the task included.
        path: Critical path of the task's workflow.
        work: Core seconds of the task's workflow.
        phase: Number of tasks on the longest chain before it.
    """

    seconds: Floats
    before: Floats
    rest: Floats
    path: Floats
    work: Floats
    phase: NDArray[np.int64]

    @property
    def slack(self) -> Floats:
        """How much longer the task may take without making its workflow longer."""
        return np.maximum(0.0, self.path - self.before - self.rest)


@jit
def _forward(parent_start, parent, child_start, child, seconds, release, before, phase):
    """Fill ``before`` and ``phase``; returns the topological order."""
    count = seconds.size
    waiting = np.empty(count, np.int64)
    order = np.empty(count, np.int64)
    n = 0
    for t in range(count):
        waiting[t] = parent_start[t + 1] - parent_start[t]
        before[t] = release[t]
        phase[t] = 0
        if waiting[t] == 0:
            order[n] = t
            n += 1
    at = 0
    # Kahn's order: a task is listed when the last of its parents is.
    while at < n:
        t = order[at]
        at += 1
        for e in range(child_start[t], child_start[t + 1]):
            c = child[e]
            before[c] = max(before[c], before[t] + seconds[t])
            phase[c] = max(phase[c], phase[t] + 1)
            waiting[c] -= 1
            if waiting[c] == 0:
                order[n] = c
                n += 1
    return order[:n]


@jit
def _backward(child_start, child, seconds, order, rest):
    for i in range(order.size - 1, -1, -1):
        t = order[i]
        longest = 0.0
        for e in range(child_start[t], child_start[t + 1]):
            longest = max(longest, rest[child[e]])
        rest[t] = longest + seconds[t]


def _quickest(variants: tuple[Variant, ...], kinds: set[str | None]) -> float:
    """Return the least runtime factor of variants whose device the cluster has; the first one's where none has."""
    # A variant whose device nobody has does not count as its quickest.
    return min((v.runtime_factor for v in variants if v.device in kinds), default=variants[0].runtime_factor)


# One entry, told by identity: a cluster's nodes are one tuple as long as they do not change.
_paces: list[tuple[tuple[Node, ...], float, set[str | None]]] = []
"""The nodes asked about last, with the answer: a live engine asks for every task that comes."""


def _pace(nodes: tuple[Node, ...]) -> tuple[float, set[str | None]]:
    """Return the mean seconds per second of work over the cores, and the kinds of device there are (None for none)."""
    if not _paces or _paces[0][0] is not nodes:
        cores = np.array([node.cores for node in nodes], np.float64)
        pace = float(np.average([1.0 / node.speed for node in nodes], weights=cores))
        _paces[:] = [(nodes, pace, {device.kind for node in nodes for device in node.devices} | {None})]
    return _paces[0][1:]


def mean_pace(cluster: Cluster) -> float:
    """Return the mean seconds per second of work over the cluster's cores."""
    return _pace(cluster.nodes)[0]


def pace_spread(cluster: Cluster) -> float:
    """Return the standard deviation of seconds per second of work over the cluster's cores, as a part of their mean."""
    cores = np.array([node.cores for node in cluster.nodes], np.float64)
    if cores.sum() <= 0:
        return 0.0
    pace = np.array([1.0 / node.speed for node in cluster.nodes])
    mean = float(np.average(pace, weights=cores))
    return math.sqrt(float(np.average((pace - mean) ** 2, weights=cores))) / mean


def estimated_seconds(workload: Workload, cluster: Cluster) -> Floats:
    """Return seconds of each task in its quickest variant as a mean over the cluster's cores; no NaN."""
    pace, kinds = _pace(cluster.nodes)
    factor = np.array([_quickest(shape.variants, kinds) for shape in workload.shapes], np.float64)
    seconds = np.where(np.isnan(workload.estimate_s), GUESS_S, workload.estimate_s)
    return np.ascontiguousarray(seconds * factor[workload.shape] * pace)


def levels(workload: Workload, cluster: Cluster) -> Levels:
    """Compute all levels."""
    count = len(workload)
    seconds = estimated_seconds(workload, cluster)
    child_start, child, _ = workload.children()
    submit = workload.workflow_submit_s[workload.workflow] if count else np.zeros(0)
    before, rest, phase = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
    release = np.maximum(0.0, workload.release_s - submit)
    order = _forward(
        workload.parent_start.copy(),
        workload.parent.astype(np.int64),
        child_start,
        child.astype(np.int64),
        seconds,
        np.ascontiguousarray(release),
        before,
        phase,
    )
    _backward(child_start, child.astype(np.int64), seconds, order, rest)
    flows = max(1, len(workload.workflow_names))
    path = np.zeros(flows)
    # `.at`: tasks of one workflow repeat its number, and plain indexing would keep the last of them only.
    np.maximum.at(path, workload.workflow, before + rest)
    cores = np.array([shape.variants[0].cores * shape.parts for shape in workload.shapes], np.float64)
    work = np.bincount(workload.workflow, weights=seconds * cores[workload.shape], minlength=flows)
    return Levels(seconds, before, rest, path[workload.workflow], work[workload.workflow].astype(np.float64), phase)
