"""Lanes of a node's attempts and kinds of machine: what timelines draw rows and bands by."""

from __future__ import annotations

import heapq
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster, Node

GROUPS = 8


def machine_kinds(cluster: Cluster) -> tuple[list[str], NDArray[np.int64]]:
    """Kinds of machine by name, and the kind of each node: equal hardware and watts are one, wherever they stand.

    A kind is called by what its nodes' names share; kinds beyond ``GROUPS`` are one, the last.
    """
    keys = [_machine(node) for node in cluster.nodes]
    known = list(dict.fromkeys(keys))
    most = len(known) if len(known) <= GROUPS else GROUPS - 1
    # The last kind gathers all that are left.
    kind_of = np.array([min(known.index(key), most) for key in keys], np.int64)
    names = []
    for kind in range(int(kind_of.max()) + 1):
        mine = [node.name for node, which in zip(cluster.nodes, kind_of.tolist(), strict=True) if which == kind]
        # Trailing digits are numbers of nodes, not part of what they share.
        shared = _shared(mine).rstrip("-_.0123456789") if len(mine) > 1 else mine[0]
        names.append("others" if kind == most else shared or f"{mine[0]} …")
    return names, kind_of


def _shared(names: list[str]) -> str:
    """Find the longest common prefix of the names."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def _machine(node: Node) -> tuple[object, ...]:
    devices = tuple((device.kind, device.model) for device in node.devices)
    return node.cores, node.threads_per_core, node.memory_bytes, node.speed, node.architecture, node.power, devices


def lanes(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the lowest free lane for each interval in order of start, so that no two in a lane overlap. O(n log n)."""
    lane = np.zeros(len(start_s), np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    used = 0
    # By start, then end: of equal starts the shorter one first, so that lanes are the same each time.
    for i in np.lexsort((end_s, start_s)).tolist():
        # An interval that ends where another starts leaves its lane free.
        while busy and busy[0][0] <= start_s[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane[i] = heapq.heappop(free)
        else:
            lane[i], used = used, used + 1
        heapq.heappush(busy, (float(end_s[i]), int(lane[i])))
    return lane
