"""The report's timeline of a run: bars of attempts by node and lane, and power by group of nodes."""

from __future__ import annotations

import heapq
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from wattflow.lab.figures.power import PowerCurve, busy_threads, power_curve
from wattflow.model.cluster import Cluster, Node
from wattflow.model.run import OUTCOMES, Run

MOST_BARS = 1500
MOST_ROWS = 40
GROUPS = 8
BINS = 160


def timeline(run: Run, most_bars: int = MOST_BARS) -> dict[str, object]:
    """Plain numbers for the page's script. Above ``most_bars`` attempts, rows show the busy share instead of bars."""
    nodes = run.cluster.nodes
    rows_of = _blocks(len(nodes), MOST_ROWS)
    kinds, group_of = machine_kinds(run.cluster)
    curve = power_curve(run)
    edges, watts = curve.binned(len(nodes), BINS)
    grouped = np.zeros((len(kinds), BINS))
    np.add.at(grouped, group_of, watts)
    picture: dict[str, object] = {
        "start": run.start_s,
        "span": run.span_s,
        "rows": _names([node.name for node in nodes], rows_of),
        "rowGroup": [int(group_of[np.flatnonzero(rows_of == row)[0]]) for row in range(int(rows_of.max()) + 1)],
        "groups": kinds,
        "asleep": _asleep(run, curve, rows_of),
        "watts": [[_short(w) for w in row] for row in grouped.tolist()],
        "joules": run.total_j,
        "rebuilt": curve.rebuilt,
        "attempts": len(run.attempts),
    }
    if len(run.attempts) <= most_bars:
        return picture | _bars(run, rows_of)
    return picture | {"busy": _busy_share(run, rows_of, edges)}


def machine_kinds(cluster: Cluster) -> tuple[list[str], NDArray[np.int64]]:
    """Kinds of machine by name, and the kind of each node: equal hardware and watts are one, wherever they stand.

    A kind is called by what its nodes' names share; kinds beyond ``GROUPS`` are one, the last.
    """
    keys = [_machine(node) for node in cluster.nodes]
    known = list(dict.fromkeys(keys))
    most = len(known) if len(known) <= GROUPS else GROUPS - 1
    kind_of = np.array([min(known.index(key), most) for key in keys], np.int64)
    names = []
    for kind in range(int(kind_of.max()) + 1):
        mine = [node.name for node, which in zip(cluster.nodes, kind_of.tolist(), strict=True) if which == kind]
        shared = _shared(mine).rstrip("-_.0123456789") if len(mine) > 1 else mine[0]
        names.append("others" if kind == most else shared or f"{mine[0]} …")
    return names, kind_of


def _shared(names: list[str]) -> str:
    """Find what all names begin with."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def _machine(node: Node) -> tuple[object, ...]:
    devices = tuple((device.kind, device.model) for device in node.devices)
    return node.cores, node.threads_per_core, node.memory_bytes, node.speed, node.architecture, node.power, devices


def _asleep(run: Run, curve: PowerCurve, rows_of: NDArray[np.int64]) -> list[list[float]]:
    """(row, from, to, share of the row's nodes) of each stretch at the watts of a node's sleep state."""
    found: list[list[float]] = []
    if curve.rebuilt:
        return found
    steps, held = curve.steps, curve.steps.held_s(curve.end_s)
    size = np.bincount(rows_of)
    for number, node in enumerate(run.cluster.nodes):
        if node.sleep is None or (node.power is not None and node.sleep.watts >= node.power.idle_w):
            continue
        row = int(rows_of[number])
        mine = (steps.group == number) & (np.abs(steps.value - node.sleep.watts) <= 1e-6 * node.sleep.watts)
        for start, length in zip(steps.time_s[mine].tolist(), held[mine].tolist(), strict=True):
            if length > 0:
                begin = _short(start - run.start_s)
                found.append([row, begin, _short(start + length - run.start_s), round(1 / size[row], 3)])
    return found


def lanes(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """The lowest free lane for each interval in order of start, so that no two in a lane overlap. O(n log n)."""
    lane = np.zeros(len(start_s), np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    used = 0
    for i in np.lexsort((end_s, start_s)).tolist():
        while busy and busy[0][0] <= start_s[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane[i] = heapq.heappop(free)
        else:
            lane[i], used = used, used + 1
        heapq.heappush(busy, (float(end_s[i]), int(lane[i])))
    return lane


def _bars(run: Run, rows_of: NDArray[np.int64]) -> dict[str, object]:
    attempts, workload = run.attempts, run.workload
    row = rows_of[attempts["node"]]
    lane = np.zeros(len(attempts), np.int64)
    deepest = []
    for number in range(int(rows_of.max()) + 1):
        mine = np.flatnonzero(row == number)
        lane[mine] = lanes(attempts["placed_s"][mine], attempts["end_s"][mine])
        deepest.append(int(lane[mine].max()) + 1 if len(mine) else 1)
    names = [workload.functions[shape.function].name for shape in workload.shapes]
    bars = [[int(row[i]), int(lane[i]), *_bar(run, one, names)] for i, one in enumerate(attempts)]
    return {"lanes": deepest, "bars": bars}


def _bar(run: Run, one: np.void, names: list[str]) -> list[object]:
    """Times from the run's start, then what a reader wants to know when pointing at it."""
    shape = int(run.workload.shape[one["task"]])
    return [
        *(_short(float(one[key]) - run.start_s) for key in ("placed_s", "start_s", "end_s")),
        run.workload.task_id(int(one["task"])),
        names[shape],
        run.cluster.nodes[int(one["node"])].name,
        run.workload.shapes[shape].variants[int(one["variant"])].name,
        "" if one["outcome"] == 0 else OUTCOMES[int(one["outcome"])],
    ]


def _busy_share(run: Run, rows_of: NDArray[np.int64], edges: NDArray[np.float64]) -> list[list[float]]:
    steps = busy_threads(run)
    rows = int(rows_of.max()) + 1
    total = np.zeros((rows, len(edges) - 1))
    capacity = np.bincount(rows_of, weights=[node.threads for node in run.cluster.nodes], minlength=rows)
    bounds = np.searchsorted(steps.group, np.arange(len(rows_of) + 1))
    for node in range(len(rows_of)):
        mine = slice(bounds[node], bounds[node + 1])
        times, values = steps.time_s[mine], steps.value[mine]
        if len(times) > 1:
            sums = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
            total[rows_of[node]] += np.diff(np.interp(edges, times, sums)) / np.diff(edges)
    share = total / np.maximum(capacity, 1e-9)[:, None]
    return [[round(value, 3) for value in row] for row in share.tolist()]


def _blocks(count: int, most: int) -> NDArray[np.int64]:
    """Contiguous blocks of nearly equal size, at most ``most`` of them."""
    return np.arange(count, dtype=np.int64) * min(count, most) // count


def _names(names: list[str], block_of: NDArray[np.int64]) -> list[str]:
    """Name of a block: its node, or its first and last."""
    shown = []
    for block in range(int(block_of.max()) + 1):
        mine = np.flatnonzero(block_of == block)
        first, last = names[int(mine[0])], names[int(mine[-1])]
        shown.append(first if len(mine) == 1 else f"{first} … {last}")
    return shown


def _short(value: float) -> float:
    """Four significant digits or two decimals, whichever is more: the page stays small."""
    return float(f"{value:.4g}") if abs(value) < 100 else round(value, 2)
