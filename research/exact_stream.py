"""The least joules of a small stream with due times by CP-SAT, in whole seconds: what `stream_bound` is held against.

Tasks take one node each and their cores there, whole; a node is on or asleep in every second, all are on at first, and
falling asleep and waking cost joules but no time, so the optimum is no more than the simulator's. Threads share no
cores: for nodes of one thread a core, linear watts, runtimes and times that are whole seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from research.stream_bound import wake_j
from wattflow.engine.build import why_not
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.workload import Workload
from wattflow.plan.node_offers import Floats, PlanOffers, offers

_MJ = 1000


def least_joules(
    workload: Workload, cluster: Cluster, due_s: Floats, horizon_s: int, limit_s: float = 10.0
) -> float | None:
    """Find the optimum to the horizon, by which all must end; None if not proven in time, inf if none is in time."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise MissingExtra("exact bounds need ortools: pip install ortools") from error
    model, offered = cp_model.CpModel(), offers(workload, cluster)
    on = [[model.new_bool_var("") for _ in range(horizon_s)] for _ in cluster.nodes]
    use: list[list[tuple[Any, int]]] = [[] for _ in cluster.nodes]
    cost: list[Any] = []
    ends: list[Any] = []
    for task in range(len(workload)):
        start, end = (model.new_int_var(0, horizon_s, "") for _ in range(2))
        ends.append(end)
        # Whole seconds: a start is rounded up and a due time down, which can only cost.
        model.add(start >= math.ceil(workload.release_s[task]))
        model.add(end <= math.floor(due_s[workload.workflow[task]]))
        for parent in workload.parents_of(task).tolist():
            model.add(start >= ends[parent])
        literals = []
        for n, seconds, joules, cores in _places(workload, cluster, task, offered):
            literals.append(model.new_bool_var(""))
            use[n].append((model.new_optional_interval_var(start, seconds, end, literals[-1], ""), cores))
            cost.append(joules * literals[-1])
        model.add_exactly_one(literals)
    for n, node in enumerate(cluster.nodes):
        # A second asleep takes all cores: no task can be in it.
        asleep = [(model.new_fixed_size_interval_var(t, 1, ""), node.cores * (1 - on[n][t])) for t in range(horizon_s)]
        spans, needs = zip(*use[n], *asleep, strict=True)
        model.add_cumulative(spans, needs, node.cores)
        cost += _standing(model, on[n], node, offered, int(offered.cls[n]))
    model.minimize(sum(cost))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = limit_s, 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return math.inf
    standing_j = float((offered.still_w * offered.nodes).sum()) * horizon_s
    return solver.objective_value / _MJ + standing_j if status == cp_model.OPTIMAL else None


def _standing(model: Any, on: list[Any], node: Node, offered: PlanOffers, cls: int) -> list[Any]:
    """Return joules above the stillest watts of being on, falling asleep and waking, second by second."""
    awake_w = max(0.0, float(offered.idle_w[cls] - offered.still_w[cls]))
    found = []
    for t, now in enumerate(on):
        # All nodes are on before the first second.
        before = on[t - 1] if t else model.new_constant(1)
        falls, wakes = model.new_bool_var(""), model.new_bool_var("")
        model.add(falls >= before - now)
        model.add(wakes >= now - before)
        found += [round(_MJ * awake_w) * now, round(_MJ * float(offered.enter_j[cls])) * falls]
        found.append(round(_MJ * wake_j(node)) * wakes)
    return found


def _places(
    workload: Workload, cluster: Cluster, task: int, offered: PlanOffers
) -> Iterator[tuple[int, int, int, int]]:
    """(node, seconds, millijoules, cores) of each node that can take the task in its first variant."""
    shape = int(workload.shape[task])
    variant, option, own_s = workload.shapes[shape].variants[0], int(offered.first[shape]), workload.runtime_s[task]
    for n, node in enumerate(cluster.nodes):
        if why_not(variant, node, 1.0, 0) is None:
            seconds, joules = (
                float(own_s * table[option, offered.cls[n]]) for table in (offered.seconds, offered.joules)
            )
            # A rounding above a whole second must not cost another.
            yield n, math.ceil(seconds - 1e-9), round(_MJ * joules), int(variant.cores)
