"""HEFT and CPOP against anrg-saga on random instances.

Speeds, costs and sizes are continuous random numbers, so ties cannot matter. The two programs read the paper
differently in two places, and both are kept apart from the comparison of schedules:

- Mean communication: saga averages over all links and each node's link to itself, the paper over links between
  different processors. Without data that is the same; with data we compare as they are where both order the tasks
  alike.
- Downward rank (CPOP): saga adds the task's own cost at the mean speed, the paper the parent's mean cost. With the
  paper's formulas in the place of saga's rank functions, the schedules are compared on every instance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattflow.model.cluster import Cluster, Network, Node
from wattflow.model.workload import Workload
from wattflow.policy import cpop, planning

saga = pytest.importorskip("saga")
saga_cpop = pytest.importorskip("saga.schedulers.cpop")
saga_heft = pytest.importorskip("saga.schedulers.heft")


class Instance:
    """One entry, one exit, random edges between; the same facts in both programs' terms."""

    def __init__(self, seed: int, data: bool = True) -> None:
        random = np.random.default_rng(seed)
        count, nodes = int(random.integers(5, 16)), int(random.integers(2, 6))
        pairs = [(a, b) for b in range(1, count - 1) for a in range(b) if random.random() < 2.0 / count]
        children, parents = {b for _, b in pairs}, {a for a, _ in pairs}
        pairs += [(0, b) for b in range(1, count - 1) if b not in children]
        pairs += [(a, count - 1) for a in range(1, count - 1) if a not in parents]
        self.edges = sorted(set(pairs))
        self.cost = random.uniform(1.0, 20.0, count)
        self.speed = random.uniform(0.5, 2.0, nodes)
        self.size = random.uniform(1.0, 30.0, len(self.edges)) if data else np.zeros(len(self.edges))
        self.link = float(random.uniform(0.5, 5.0))

    def ours(self) -> planning.PlanningProblem:
        network = Network(bandwidth_bytes_per_s=self.link)
        nodes = tuple(Node(f"n{i}", 1, 0, speed=float(s), network=network) for i, s in enumerate(self.speed))
        workload = Workload.of_columns(
            "random",
            release_s=np.zeros(len(self.cost)),
            runtime_s=self.cost,
            edges=(np.array([a for a, _ in self.edges]), np.array([b for _, b in self.edges])),
            edge_bytes=self.size,
        )
        return planning.problem(workload, Cluster("random", nodes), {"overlap": 1.0})

    def theirs(self):
        names = [f"n{i}" for i in range(len(self.speed))]
        links = [(a, b, self.link) for a in names for b in names if a < b]
        network = saga.Network.create(list(zip(names, self.speed.tolist(), strict=True)), links)
        tasks = [(str(t), float(c)) for t, c in enumerate(self.cost)]
        edges = [(str(a), str(b), float(s)) for (a, b), s in zip(self.edges, self.size, strict=True)]
        return network, saga.TaskGraph.create(tasks, edges)


def heft_s(problem: planning.PlanningProblem) -> float:
    return planning.makespan_s(problem, planning.schedule(problem, planning.upward_rank(problem)))


def cpop_s(problem: planning.PlanningProblem) -> float:
    length = cpop.priority(problem)
    only = cpop.path_nodes(problem, length)
    return planning.makespan_s(problem, planning.schedule(problem, length, only=only))


def test_heft_without_data_agrees_on_every_instance():
    for seed in range(60):
        instance = Instance(seed, data=False)
        theirs = saga_heft.HeftScheduler().schedule(*instance.theirs())
        assert heft_s(instance.ours()) == pytest.approx(theirs.makespan, rel=1e-9), f"seed {seed}"


def test_heft_agrees_wherever_both_order_the_tasks_alike():
    compared = 0
    for seed in range(300):
        instance = Instance(seed)
        network, graph = instance.theirs()
        rank = planning.upward_rank(instance.ours())
        if [str(t) for t in np.argsort(-rank)] != saga_heft.heft_rank_sort(network, graph):
            continue
        theirs = saga_heft.HeftScheduler().schedule(network, graph)
        assert heft_s(instance.ours()) == pytest.approx(theirs.makespan, rel=1e-9), f"seed {seed}"
        compared += 1
    assert compared >= 100


def paper_ranks(instance: Instance):
    """The paper's equations for both ranks, written again for saga's types."""
    mean = {str(t): float(np.mean(c / instance.speed)) for t, c in enumerate(instance.cost)}

    def upward(network, graph):
        rank: dict[Any, float] = {}
        for task in reversed(graph.topological_sort()):
            after = [rank[e.target] + e.size / instance.link for e in graph.out_edges(task.name)]
            rank[task.name] = mean[task.name] + max(after, default=0.0)
        return rank

    def downward(network, graph):
        rank: dict[Any, float] = {}
        for task in graph.topological_sort():
            before = [rank[e.source] + mean[e.source] + e.size / instance.link for e in graph.in_edges(task.name)]
            rank[task.name] = max(before, default=0.0)
        return rank

    return upward, downward


def test_heft_and_cpop_agree_on_every_instance_by_the_papers_ranks(monkeypatch):
    for seed in range(300):
        instance = Instance(seed)
        upward, downward = paper_ranks(instance)
        monkeypatch.setattr(saga_heft, "upward_rank", upward)
        monkeypatch.setattr(saga_cpop, "upward_rank", upward)
        monkeypatch.setattr(saga_cpop, "downward_rank", downward)
        saga_cpop.cpop_ranks.cache_clear()
        network, graph = instance.theirs()
        theirs = saga_heft.HeftScheduler().schedule(network, graph)
        assert heft_s(instance.ours()) == pytest.approx(theirs.makespan, rel=1e-9), f"heft, seed {seed}"
        theirs = saga_cpop.CpopScheduler().schedule(network, graph)
        assert cpop_s(instance.ours()) == pytest.approx(theirs.makespan, rel=1e-9), f"cpop, seed {seed}"
    saga_cpop.cpop_ranks.cache_clear()
