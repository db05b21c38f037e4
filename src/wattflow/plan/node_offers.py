"""Ways to run each shape on each class of nodes, as bounds need them: seconds, cores, joules, and what nodes draw.

An *option* is a variant at a frequency level; options of a shape are numbered as the engine numbers its offers when
guarantee 1 and all levels are offered. A node with k busy threads draws at least idle + a + b · k watts, a line below
its curve wherever something runs: a is charged while the node is busy, b to the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import why_not
from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Workload

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlanOffers:
    """Rows by option, columns by class of nodes.

    Attributes:
        levels: Frequency levels offered; option number = variant × levels + level.
        first, count: Options of each shape.
        seconds: Runtime per second of the task's own, alone; inf where the option does not fit.
        cores: Cores that all parts of the option keep busy.
        joules: b × busy core seconds per second of the task's own: its least joules above idle and a.
        joules_with_devices: The same and the watts of the part of a device that it keeps busy.
        device: Part of a device that a task takes (of all devices it takes together); 0 without one.
        cls: Class of each node.
        nodes: How many nodes each class has.
        physical: Physical cores of a node of each class.
        throughput: Most work per second that a node of each class does.
        devices: Devices of a node of each class.
        idle_w, still_w: Watts of a node of each class with nothing to do: on, and at its stillest.
        busy_w: a of each class.
        enter_j: Least joules above its stillest watts of a node that falls asleep once; 0 where it may be less.
    """

    levels: int
    first: Longs
    count: Longs
    seconds: Floats
    cores: Floats
    joules: Floats
    joules_with_devices: Floats
    device: Floats
    cls: Longs
    nodes: Longs
    physical: Longs
    throughput: Floats
    devices: Longs
    idle_w: Floats
    still_w: Floats
    busy_w: Floats
    enter_j: Floats

    @property
    def settings(self) -> PolicySettings:
        """Settings under which the engine numbers its offers alike."""
        return PolicySettings(frequencies=tuple(range(self.levels)), wakes=True)


def offers(workload: Workload, cluster: Cluster) -> PlanOffers:
    """Return all options of a workload's shapes on a cluster's classes."""
    # The first node of each class stands for it, in the order of the file.
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    place = {node.class_key: i for i, node in enumerate(kinds)}
    cls = np.array([place[node.class_key] for node in cluster.nodes], np.int64)
    levels = max(len(node.frequencies) for node in kinds)
    narrow = min((v.cores for shape in workload.shapes for v in shape.variants), default=0.0)
    lines = [_line(node, narrow, float(node.threads)) for node in kinds]
    rows: list[list[tuple[float, float, float]]] = []
    cores, device, first, count = [], [], [], []
    for shape in workload.shapes:
        function = workload.functions[shape.function]
        first.append(len(rows))
        # Numbered as the engine does: variant by variant, each with all levels; `PlanOffers.settings` asks so too.
        count.append(len(shape.variants) * levels)
        for variant in shape.variants:
            for level in range(levels):
                rows.append(
                    [
                        _option(variant, node, function, level, shape.parts, line[1])
                        for node, line in zip(kinds, lines, strict=True)
                    ]
                )
                cores.append(variant.cores * shape.parts)
                device.append(_taken(variant, kinds) * shape.parts)
    table = np.array(rows, np.float64).reshape(len(rows), len(kinds), 3)
    return PlanOffers(
        levels, np.array(first, np.int64), np.array(count, np.int64), np.ascontiguousarray(table[:, :, 0]),
        np.array(cores, np.float64), np.ascontiguousarray(table[:, :, 1]), np.ascontiguousarray(table[:, :, 2]),
        np.array(device, np.float64), cls, np.bincount(cls, minlength=len(kinds)).astype(np.int64),
        np.array([node.cores for node in kinds], np.int64),
        # The most that SMT gives: with all threads busy.
        np.array([max(node.cores, node.threads / node.smt_slowdown) for node in kinds]),
        np.array([len(node.devices) for node in kinds], np.int64), np.array([idle_w(node) for node in kinds]),
        np.array([still_w(node) for node in kinds]), np.array([line[0] for line in lines]),
        np.array([_enter_j(node) for node in kinds]),
    )  # fmt: skip


def idle_w(node: Node) -> float:
    """Return watts of a node that is on and has nothing to do, its devices included."""
    return (node.power.idle_w if node.power else 0.0) + sum(device.power.idle_w for device in node.devices)


def still_w(node: Node) -> float:
    """Return the least that a node draws with nothing to do; a node that fails may be off."""
    if node.faults is not None:
        return 0.0
    if node.sleep is None:
        return idle_w(node)
    return min(idle_w(node), node.sleep.watts, idle_w(node) if node.sleep.wake_w is None else node.sleep.wake_w)


def least_by_task(workload: Workload, table: Floats, offered: PlanOffers) -> Floats:
    """Return the least of a table of options × classes for each task; 0 where nothing fits."""
    least = np.zeros(len(workload.shapes))
    for shape, (at, count) in enumerate(zip(offered.first.tolist(), offered.count.tolist(), strict=True)):
        found = float(table[at : at + count].min(initial=np.inf))
        least[shape] = found if np.isfinite(found) else 0.0
    return workload.runtime_s * least[workload.shape]


def _option(
    variant: Variant, node: Node, function: Function, level: int, parts: int, slope_w: float
) -> tuple[float, float, float]:
    """(seconds, joules, joules with devices) per second of the task's own; inf where it does not fit."""
    # Guarantee 0.01: a policy may reserve less than the cores that a task keeps busy.
    if why_not(variant, node, 0.01, level) is not None:
        return np.inf, np.inf, np.inf
    speed = node.function_speed.get(function.name, node.speed)
    fitting: list[Device] = [d for d in node.devices if d.kind == variant.device]
    if fitting:
        speed = max(device.speed for device in fitting)
    at = node.frequencies[level]
    longer = 1.0 if level == 0 else (1.0 - function.compute_bound) + function.compute_bound / at.speed
    seconds = variant.runtime_factor / speed * longer
    joules = variant.cores * parts * seconds * (1.0 if level == 0 else at.power) * slope_w
    watts = max((device.power.full_w - device.power.idle_w for device in fitting), default=0.0)
    watts *= max(1, variant.devices) * parts * variant.device_share * variant.device_duty
    return seconds, joules, joules + watts * seconds


def _line(node: Node, narrow: float, most: float) -> tuple[float, float]:
    """(a, b) with P(k) − P(0) ≥ a + b · k from ``narrow`` to ``most`` busy threads; a counts at the lowest power."""
    if node.power is None:
        return 0.0, 0.0
    low = min(max(narrow, 1e-6), most)
    above = {k: node.power.at(k) - node.power.at(0.0) for k in [low, *node.power.busy, most] if low <= k <= most}
    flat = max(0.0, min(watts / k for k, watts in above.items()))
    if most > low:
        slope = (above[most] - above[low]) / (most - low)
        base = min(watts - slope * k for k, watts in above.items())
        # A line that is nowhere below the plain one, or that one.
        if slope >= 0 and base >= 0 and base + slope * most >= flat * most * (1 - 1e-12):
            # At the lowest frequency the watts of being busy fall, too.
            return base * min(1.0, *(level.power for level in node.frequencies)), slope
    return 0.0, flat


def _enter_j(node: Node) -> float:
    """Falling asleep; where that draws less than idling it may stand for anything."""
    if node.sleep is None or node.faults is not None:
        return 0.0
    watts = idle_w(node) if node.sleep.wake_w is None else node.sleep.wake_w
    # Where falling draws less than idling a schedule may gain by it: then it costs nothing in a bound.
    return node.sleep.enter_s * (watts - still_w(node)) if watts >= idle_w(node) else 0.0


def _taken(variant: Variant, kinds: list[Node]) -> float:
    """Return the least part of a device that a task takes on any kind of node."""
    if variant.device is None:
        return 0.0
    if variant.devices > 1:
        return float(variant.devices)
    parts = [1.0]
    for device in (d for node in kinds for d in node.devices if d.kind == variant.device):
        parts.append({"exclusive": 1.0, "time-slice": 1.0 / device.slots}.get(device.sharing, variant.device_share))
    # The least on any kind of node, as everything in a bound.
    return min(parts)
