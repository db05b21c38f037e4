"""The ideal execution time of a task: its best variant on an idle, warm node with its data at hand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload


def ideal_s(workload: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Ideal seconds of each task; NaN where no node of the cluster can run it.

    Time limits of serverless nodes are kept: a node counts for a task only if the task would end in time there.
    """
    ideal = np.full(len(workload), np.nan)
    nodes = distinct_nodes(cluster)
    order = np.argsort(workload.shape, kind="stable")
    bounds = np.searchsorted(workload.shape[order], np.arange(len(workload.shapes) + 1))
    for number, shape in enumerate(workload.shapes):
        tasks = order[bounds[number] : bounds[number + 1]]
        if not len(tasks):
            continue
        runtime_s = workload.runtime_s[tasks]
        best = np.full(len(tasks), np.inf)
        for factor, limit_s in _factors(shape, workload.functions[shape.function], nodes):
            here = runtime_s * factor
            # Where the platform would stop it, it does not count as a way to run.
            np.minimum(best, np.where(here <= limit_s, here, np.inf), out=best)
        ideal[tasks] = np.where(np.isfinite(best), best, np.nan)
    return ideal


def distinct_nodes(cluster: Cluster) -> list[Node]:
    """Return one node of each kind, in order of first appearance; what does not touch speed or fit is ignored."""
    first: dict[Hashable, Node] = {}
    for node in cluster.nodes:
        key = (
            node.cores, node.threads_per_core, node.smt_slowdown, node.memory_bytes, node.allocatable_cores, node.speed,
            tuple(sorted(node.function_speed.items())), node.architecture, node.features, node.devices,
            node.frequencies, node.serverless,
        )  # fmt: skip
        first.setdefault(key, node)
    return list(first.values())


def _factors(shape: Shape, function: Function, nodes: Iterable[Node]) -> set[tuple[float, float]]:
    """(runtime factor, time limit) of every way to run the shape alone on one of the nodes."""
    found = set()
    for node in nodes:
        limit_s = node.serverless.time_limit_s if node.serverless is not None else float("inf")
        for variant in shape.variants:
            factor = alone_factor(variant, function, node)
            if factor is not None:
                # A set: most nodes of a kind give the same pair, and each costs a pass over the tasks.
                found.add((factor, limit_s))
    return found


def alone_factor(variant: Variant, function: Function, node: Node) -> float | None:
    """Return seconds on this node, alone and warm, per second of ``runtime_s``; None where it cannot run here."""
    if not _fits(variant, node):
        return None
    bound = function.compute_bound
    # The quickest level: an ideal time is never above what a policy could reach.
    clock = min((1.0 - bound) + bound / level.speed for level in node.frequencies)
    if variant.device is not None:
        usable = _usable_devices(variant, node)
        if len(usable) < max(1, variant.devices):
            return None
        # The fastest one, even where several are taken together.
        return variant.runtime_factor * clock / max(device.speed for device in usable)
    speed = node.function_speed.get(function.name, node.speed)
    return variant.runtime_factor * clock / (speed * _own_rate(variant.cores, node))


def _fits(variant: Variant, node: Node) -> bool:
    return (
        # Sums of requests stray from whole cores by a rounding.
        variant.cores <= node.request_cores + 1e-9
        and variant.memory_bytes <= node.memory_bytes
        and variant.architecture in (None, node.architecture)
        and set(variant.features) <= set(node.features)
    )


def _usable_devices(variant: Variant, node: Node) -> list[Device]:
    return [
        device
        for device in node.devices
        if device.kind == variant.device
        and device.memory_bytes >= variant.device_memory_bytes
        and (not variant.device_models or device.model in variant.device_models)
    ]


def _own_rate(cores: float, node: Node) -> float:
    """Progress rate of a task alone on the node: below 1 only if it keeps more threads busy than there are cores."""
    if cores <= node.cores:
        return 1.0
    if node.threads == node.cores:
        return node.cores / cores
    # As the simulator shares threads (docs/physics.md, section 6).
    full = node.threads / node.smt_slowdown
    if cores >= node.threads:
        return full / cores
    return (node.cores + (cores - node.cores) * (full - node.cores) / (node.threads - node.cores)) / cores
