"""A third peer of `make bench-sim`: a loop with nothing but the loop.

`bare_ends` is a compiled event loop for this one problem: first in, first out, strict queue, least loaded node, lowest
index; a heap of ends, no policy, no records, no energy. It is the floor that a general simulator is measured against.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from wattflow.model.workload import Workload

Floats = NDArray[np.float64]


def prepared(workload: Workload) -> tuple[Any, ...]:
    """What the bare loop reads."""
    start, child, _ = workload.children()
    pending = np.diff(workload.parent_start).astype(np.int64)
    return workload.release_s, workload.runtime_s, np.asarray(start, np.int64), np.asarray(child, np.int64), pending


DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
PLACES = np.zeros(64, np.int64)
"""Position of a single set bit, by the top six bits of its product with a de Bruijn number."""
for _place in range(64):
    PLACES[((1 << _place) * int(DE_BRUIJN) & (1 << 64) - 1) >> 58] = _place


@numba.njit(cache=False)
def _push(ends: Any, tasks: Any, size: int, end: float, task: int) -> None:
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if ends[up] <= end:
            break
        ends[at], tasks[at] = ends[up], tasks[up]
        at = up
    ends[at], tasks[at] = end, task


@numba.njit(cache=False)
def _pop(ends: Any, tasks: Any, size: int) -> None:
    """Remove the first of ``size`` rows."""
    end, task, at = ends[size - 1], tasks[size - 1], 0
    while True:
        low = 2 * at + 1
        if low >= size - 1:
            break
        if low + 1 < size - 1 and ends[low + 1] < ends[low]:
            low += 1
        if ends[low] >= end:
            break
        ends[at], tasks[at] = ends[low], tasks[low]
        at = low
    ends[at], tasks[at] = end, task


@numba.njit(cache=False)
def bare_ends(release: Any, runtime: Any, child_start: Any, child: Any, pending: Any, nodes: int, slots: int) -> Floats:
    """End of each task. Tasks without parents arrive in order of release."""
    count = len(runtime)
    edges = len(child) > 0
    queue = np.empty(count, np.int64)
    first, last, arrived = 0, 0, 0
    if edges:
        for task in range(count):
            if pending[task] == 0:
                queue[last] = task
                last += 1
        arrived = count
    end_s = np.empty(count)
    node_of = np.empty(count, np.int64)
    # Nodes of each load as bits, so that the lowest index is found at once.
    words = (nodes + 63) >> 6
    levels = np.zeros((slots + 1, words), np.uint64)
    for node in range(nodes):
        levels[0, node >> 6] |= np.uint64(1) << np.uint64(node & 63)
    load = np.zeros(nodes, np.int64)
    ends, tasks, running = np.empty(nodes * slots + 1), np.empty(nodes * slots + 1, np.int64), 0
    now = 0.0
    while True:
        while first < last and running < nodes * slots:
            node, least = -1, 0
            while node < 0:
                for word in range(words):
                    bits = levels[least, word]
                    if bits:
                        low = bits & (~bits + np.uint64(1))
                        node = (word << 6) + PLACES[(low * DE_BRUIJN) >> np.uint64(58)]
                        break
                if node < 0:
                    least += 1
            bit = np.uint64(1) << np.uint64(node & 63)
            levels[least, node >> 6] ^= bit
            levels[least + 1, node >> 6] |= bit
            load[node] = least + 1
            task = queue[first]
            first += 1
            node_of[task] = node
            end_s[task] = now + runtime[task]
            _push(ends, tasks, running, end_s[task], task)
            running += 1
        if arrived < count and (running == 0 or release[arrived] < ends[0]):
            now = release[arrived]
            queue[last] = arrived
            arrived += 1
            last += 1
            continue
        if running == 0:
            return end_s
        now, task = ends[0], tasks[0]
        _pop(ends, tasks, running)
        running -= 1
        node = node_of[task]
        least = load[node]
        bit = np.uint64(1) << np.uint64(node & 63)
        levels[least, node >> 6] ^= bit
        levels[least - 1, node >> 6] |= bit
        load[node] = least - 1
        for at in range(child_start[task], child_start[task + 1]):
            pending[child[at]] -= 1
            if pending[child[at]] == 0:
                queue[last] = child[at]
                last += 1
