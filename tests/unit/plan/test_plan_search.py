"""NSGA-II, its extra, and the exact bound."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from wattflow.engine.build import why_not
from wattflow.model.cluster import Cluster, Frequency, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.plan import nsga2, relaxation
from wattflow.policy import registry
from wattflow.sim import simulate


def chain_of_forks() -> Workload:
    parents = [0, 0, 0, 1, 2, 3, 4, 4]
    children = [1, 2, 3, 4, 4, 4, 5, 6]
    return Workload.of_columns(
        "forks",
        release_s=np.zeros(7),
        runtime_s=np.array([2.0, 8.0, 5.0, 3.0, 2.0, 6.0, 7.0]),
        edges=(np.array(parents), np.array(children)),
    )


def fast_and_thrifty() -> Cluster:
    """A quick node of many watts and a slow one of few, both for nothing when idle: time can be had for energy."""
    quick = Node("quick", 2, 0, speed=2.0, power=PowerProfile((0.0, 2.0), (0.0, 200.0)))
    thrifty = Node("thrifty", 2, 0, speed=1.0, power=PowerProfile((0.0, 2.0), (0.0, 20.0)))
    return Cluster("pair", (quick, thrifty))


def test_front_trades_time_for_energy_and_no_point_is_dominated():
    pytest.importorskip("pymoo")
    small = {"population": 12, "generations": 6}
    found = nsga2.front(chain_of_forks(), fast_and_thrifty(), small)
    assert len(found.plans) >= 3
    assert (np.diff(found.makespan_s) > 0).all()
    assert (np.diff(found.energy_j) < 0).all()
    again = nsga2.front(chain_of_forks(), fast_and_thrifty(), small)
    assert found.energy_j.tolist() == again.energy_j.tolist()


def test_the_search_knows_variants_and_frequencies():
    """One task: a second variant takes half the time, and a lower level half the watts; each is on the front."""
    pytest.importorskip("pymoo")
    levels = (Frequency(1.0, 1.0), Frequency(0.5, 0.25))
    one = Node("one", 1, 0, power=PowerProfile((0.0, 1.0), (0.0, 100.0)), frequencies=levels)
    shape = Shape(0, (Variant(), Variant(runtime_factor=0.5)))
    workload = Workload.of_columns("one", release_s=np.zeros(1), runtime_s=np.array([8.0]), shapes=[shape])
    found = nsga2.front(workload, Cluster("one", (one,)), {"population": 12, "generations": 6})
    # The quicker variant: 4 s at 100 W, or 8 s at 25 W.
    assert found.makespan_s.tolist() == pytest.approx([4.0, 8.0])
    assert found.energy_j.tolist() == pytest.approx([400.0, 200.0])


def test_policy_follows_the_knee():
    pytest.importorskip("pymoo")
    small = {"population": 8, "generations": 3}
    found = nsga2.front(chain_of_forks(), fast_and_thrifty(), small)
    run = simulate(chain_of_forks(), fast_and_thrifty(), registry.load("nsga2", **small))
    assert run.makespan_s == pytest.approx(found.makespan_s[found.knee])
    assert run.total_j == pytest.approx(found.energy_j[found.knee])


def test_knee_is_the_point_nearest_the_corner():
    costs = np.array([[0.0, 10.0], [1.0, 2.0], [5.0, 1.0], [10.0, 0.0]])
    assert nsga2.knee(costs) == 1
    assert nsga2.knee(costs[:1]) == 0


def test_without_pymoo_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymoo.algorithms.moo.nsga2", None)
    with pytest.raises(MissingExtra, match=r"wattflow\[plan\]"):
        simulate(chain_of_forks(), fast_and_thrifty(), "nsga2")


def exact_makespan_s(workload: Workload, cluster: Cluster, limit_s: float = 10.0) -> float | None:
    """Find the optimum by CP-SAT for tasks without data, physical cores, nominal speed; None if not proven in time.

    Times are rounded to milliseconds.
    """
    from ortools.sat.python import cp_model

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


def test_planners_lie_between_the_optimum_and_twice_it():
    pytest.importorskip("ortools")
    workload, cluster = chain_of_forks(), fast_and_thrifty()
    best = exact_makespan_s(workload, cluster)
    assert best is not None
    assert relaxation.makespan_bound_s(workload, cluster) <= best + 1e-3
    for name in ("heft", "peft", "cpop", "eheft", "dewts"):
        assert best - 1e-3 <= simulate(workload, cluster, name).makespan_s <= 2 * best


def test_an_empty_workload_is_planned():
    empty = Workload.of_columns("empty", release_s=np.zeros(0), runtime_s=np.zeros(0))
    for name in ("heft", "peft", "cpop", "eheft", "dewts", "nsga2"):
        assert simulate(empty, fast_and_thrifty(), name).makespan_s == 0.0


def test_unknown_estimates_are_planned_as_one_second():
    workload = chain_of_forks().with_estimates(np.full(7, np.nan))
    assert simulate(workload, fast_and_thrifty(), "heft").finished.all()
