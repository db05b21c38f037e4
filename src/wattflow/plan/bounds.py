"""Lower bounds: no schedule is shorter, or takes fewer joules, than these.

Makespan: the larger of the critical path (each task on its quickest offer, data at hand) and the area (the work of
all CPU tasks, each where it is least, over the throughput of all nodes). Energy: what the nodes draw with nothing to
do for that long (asleep where they can sleep), plus each task's share of P(k) − P(0) on the thriftiest node at the
thriftiest load. Both hold for any policy, guarantee, frequency and sharing; failures only add. With ortools,
`exact_makespan_s` solves small instances without data to optimality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import why_not
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Workload

Floats = NDArray[np.float64]
_Cost = Callable[[Variant, Node, Function], float]


def quickest_s(workload: Workload, cluster: Cluster) -> Floats:
    """The least seconds that each task can run: best variant, node, device and frequency, alone."""
    factor = _by_shape(workload, cluster, _slowness)
    return workload.runtime_s * factor[workload.shape]


def makespan_bound_s(workload: Workload, cluster: Cluster) -> float:
    """Seconds from the first release to the last end that no schedule can undercut."""
    if not len(workload):
        return 0.0
    return max(critical_path_s(workload, cluster), _area_s(workload, cluster))


def critical_path_s(workload: Workload, cluster: Cluster) -> float:
    """The longest chain of tasks, release times included, each as quick as can be."""
    run_s, end_s = quickest_s(workload, cluster), workload.release_s.copy()
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload))
    for task in order.tolist():
        parents = workload.parents_of(task)
        ready = max(float(workload.release_s[task]), float(end_s[parents].max(initial=-np.inf)))
        end_s[task] = ready + run_s[task]
    return float(end_s.max() - workload.release_s.min())


def energy_bound_j(workload: Workload, cluster: Cluster) -> float:
    """Joules that no schedule can undercut, PUE not included."""
    still_w = sum(_still_w(node) for node in cluster.nodes)
    factor = _by_shape(workload, cluster, _joules_per_second)
    return still_w * makespan_bound_s(workload, cluster) + float((workload.runtime_s * factor[workload.shape]).sum())


def _by_shape(workload: Workload, cluster: Cluster, cost: _Cost) -> Floats:
    """The least cost per second of runtime of each shape over all variants and kinds of node."""
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    found = []
    for shape in workload.shapes:
        function = workload.functions[shape.function]
        costs = [cost(v, n, function) for v in shape.variants for n in kinds if why_not(v, n, 0.01, 0) is None]
        found.append(min(costs, default=0.0) * (shape.parts if cost is _joules_per_second else 1))
    return np.array(found, np.float64)


def _scale(function: Function, speed: float) -> float:
    return (1.0 - function.compute_bound) + function.compute_bound / speed


def _levels(function: Function, node: Node) -> list[float]:
    """How much longer a task takes at each frequency level; level 0 is nominal."""
    return [1.0, *(_scale(function, level.speed) for level in node.frequencies[1:])]


def _devices(variant: Variant, node: Node) -> Sequence[Device]:
    return [d for d in node.devices if d.kind == variant.device]


def _slowness(variant: Variant, node: Node, function: Function) -> float:
    speed = node.function_speed.get(function.name, node.speed)
    if variant.device is not None:
        speed = max(d.speed for d in _devices(variant, node))
    return variant.runtime_factor / speed * min(_levels(function, node))


def _work(variant: Variant, node: Node, function: Function) -> float:
    """Core-seconds per second of runtime; device tasks are not slowed by the CPU and count nothing."""
    return 0.0 if variant.device is not None else variant.cores * _slowness(variant, node, function)


def _area_s(workload: Workload, cluster: Cluster) -> float:
    factor = _by_shape(workload, cluster, _work)
    parts = np.array([shape.parts for shape in workload.shapes], np.float64)
    throughput = sum(max(node.cores, node.threads / node.smt_slowdown) for node in cluster.nodes)
    return float((workload.runtime_s * (factor * parts)[workload.shape]).sum()) / throughput


def _still_w(node: Node) -> float:
    """The least that a node draws with nothing to do."""
    idle = (node.power.idle_w if node.power else 0.0) + sum(device.power.idle_w for device in node.devices)
    if node.faults is not None:
        return 0.0
    if node.sleep is None:
        return idle
    return min(idle, node.sleep.watts, idle if node.sleep.wake_w is None else node.sleep.wake_w)


def _joules_per_second(variant: Variant, node: Node, function: Function) -> float:
    """Least joules above idle per second of runtime: cores × time × the flattest slope of P from 0."""
    if node.power is None:
        return 0.0
    curve, threads = node.power, float(node.threads)
    points = [k for k in curve.busy if 0 < k <= threads] + [threads]
    slope = max(0.0, min((curve.at(k) - curve.at(0.0)) / k for k in points))
    longer = _levels(function, node)
    power = [1.0, *(level.power for level in node.frequencies[1:])]
    base = _slowness(variant, node, function) / min(longer)
    return variant.cores * slope * base * min(a * b for a, b in zip(longer, power, strict=True))


def exact_makespan_s(workload: Workload, cluster: Cluster, limit_s: float = 10.0) -> float | None:
    """The optimum by CP-SAT for tasks without data on physical cores at nominal speed; None if not proven in time.

    Times are rounded to milliseconds. Needs ortools (extra `plan`).
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise MissingExtra("exact bounds need ortools: pip install ortools") from error
    model = cp_model.CpModel()
    horizon = int(1000 * (workload.release_s.max() + workload.runtime_s.sum() * _worst(workload, cluster))) + 1
    end = [model.new_int_var(0, horizon, f"end{t}") for t in range(len(workload))]
    start = [model.new_int_var(round(1000 * r), horizon, f"start{t}") for t, r in enumerate(workload.release_s)]
    use: dict[int, list[tuple[Any, int]]] = {n: [] for n in range(len(cluster.nodes))}
    for t in range(len(workload)):
        shape = workload.shapes[workload.shape[t]]
        chosen = []
        for n, node in enumerate(cluster.nodes):
            for v in (v for v in shape.variants if v.device is None and why_not(v, node, 1.0, 0) is None):
                speed = node.function_speed.get(workload.functions[shape.function].name, node.speed)
                long = round(1000 * workload.runtime_s[t] * v.runtime_factor / speed)
                here = model.new_bool_var("")
                use[n].append((model.new_optional_interval_var(start[t], long, end[t], here, ""), int(v.cores)))
                chosen.append(here)
        model.add_exactly_one(chosen)
        for parent in workload.parents_of(t).tolist():
            model.add(start[t] >= end[parent])
    for n, node in enumerate(cluster.nodes):
        model.add_cumulative([i for i, _ in use[n]], [c for _, c in use[n]], node.cores)
    last = model.new_int_var(0, horizon, "makespan")
    model.add_max_equality(last, end)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = limit_s, 1
    proven = solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / 1000 - float(workload.release_s.min()) if proven else None


def _worst(workload: Workload, cluster: Cluster) -> float:
    slowest = min(min([node.speed, *node.function_speed.values()]) for node in cluster.nodes)
    return max(v.runtime_factor for shape in workload.shapes for v in shape.variants) / slowest
