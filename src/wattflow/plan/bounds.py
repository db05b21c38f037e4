"""Lower bounds: no schedule is shorter, or takes fewer joules, than these.

Makespan: the larger of the critical path (each task on its quickest offer, data at hand) and the area (the work of
all CPU tasks, each where it is least, over the throughput of all nodes). Energy: what the nodes draw with nothing to
do for that long (asleep where they can sleep), plus each task's share of P(k) − P(0) on the thriftiest node at the
thriftiest load. Both hold for any policy, guarantee, frequency and sharing; failures only add. With ortools,
`exact_makespan_s` solves small instances without data to optimality.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine.build import why_not
from wattflow.model.cluster import Cluster
from wattflow.model.errors import MissingExtra
from wattflow.model.workload import Workload
from wattflow.plan.node_offers import Floats, least_by_task, offers


def quickest_s(workload: Workload, cluster: Cluster) -> Floats:
    """Return the least seconds that each task can run: best variant, node, device and frequency, alone."""
    offered = offers(workload, cluster)
    return least_by_task(workload, offered.seconds, offered)


def makespan_bound_s(workload: Workload, cluster: Cluster) -> float:
    """Return seconds from the first release to the last end that no schedule can undercut."""
    if not len(workload):
        return 0.0
    # Both hold for every schedule, so the larger one does.
    return max(critical_path_s(workload, cluster), _area_s(workload, cluster))


def critical_path_s(workload: Workload, cluster: Cluster) -> float:
    """Return the longest chain of tasks, release times included, each as quick as can be."""
    return float((heads_s(workload, quickest_s(workload, cluster))).max())


def heads_s(workload: Workload, run_s: Floats) -> Floats:
    """Return the earliest end of each task after the first release, if each takes ``run_s`` and nothing waits."""
    end_s = workload.release_s.copy()
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload))
    for task in order.tolist():
        parents = workload.parents_of(task)
        ready = max(float(workload.release_s[task]), float(end_s[parents].max(initial=-np.inf)))
        end_s[task] = ready + run_s[task]
    return end_s - float(workload.release_s.min())


def energy_bound_j(workload: Workload, cluster: Cluster) -> float:
    """Return joules that no schedule can undercut, PUE not included."""
    offered = offers(workload, cluster)
    standing_w = float((offered.still_w * offered.nodes).sum())
    least_j = least_by_task(workload, offered.joules, offered)
    return standing_w * makespan_bound_s(workload, cluster) + float(least_j.sum())


def _area_s(workload: Workload, cluster: Cluster) -> float:
    offered = offers(workload, cluster)
    # Device tasks are not slowed by the CPU and count nothing.
    work = np.where((offered.device > 0)[:, None], 0.0, offered.cores[:, None] * offered.seconds)
    least = least_by_task(workload, work, offered)
    return float(least.sum()) / float((offered.throughput * offered.nodes).sum())


def exact_makespan_s(workload: Workload, cluster: Cluster, limit_s: float = 10.0) -> float | None:
    """Find the optimum by CP-SAT for tasks without data, physical cores, nominal speed; None if not proven in time.

    Times are rounded to milliseconds. Needs ortools (extra `plan`).
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise MissingExtra("exact bounds need ortools: pip install ortools") from error
    model = cp_model.CpModel()
    # Time for all tasks one after the other on the slowest node: no optimum is later.
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
        # Exactly one place: a task that fits nowhere makes the model infeasible.
        model.add_exactly_one(chosen)
        for parent in workload.parents_of(t).tolist():
            model.add(start[t] >= end[parent])
    for n, node in enumerate(cluster.nodes):
        model.add_cumulative([i for i, _ in use[n]], [c for _, c in use[n]], node.cores)
    last = model.new_int_var(0, horizon, "makespan")
    model.add_max_equality(last, end)
    model.minimize(last)
    solver = cp_model.CpSolver()
    # One worker: the same answer each time.
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = limit_s, 1
    proven = solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / 1000 - float(workload.release_s.min()) if proven else None


def _worst(workload: Workload, cluster: Cluster) -> float:
    slowest = min(min([node.speed, *node.function_speed.values()]) for node in cluster.nodes)
    return max(v.runtime_factor for shape in workload.shapes for v in shape.variants) / slowest
