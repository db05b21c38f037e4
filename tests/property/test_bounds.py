"""Bounds on energy at a makespan: relaxation ≤ exact ≤ annealing, and none is beaten by a simulated policy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.model.cluster import Cluster, Frequency, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.plan import annealing, exact, relaxation
from wattflow.sim import simulate

pytest.importorskip("scipy")
EVALUATIONS = 3_000


def small_cluster(rng: np.random.Generator) -> Cluster:
    nodes = []
    for i in range(int(rng.integers(1, 4))):
        cores = int(rng.choice([1, 2, 4]))
        idle = float(rng.uniform(5, 50))
        steps = np.sort(rng.uniform(1, 30, 3))[::-1] if rng.random() < 0.7 else rng.uniform(1, 30, 3)
        watts = tuple(np.cumsum([idle, *steps]).tolist())
        sleep = Sleep(float(rng.uniform(0, 4)), 2.0, float(rng.uniform(0, 5)), None) if rng.random() < 0.7 else None
        levels = (Frequency(), Frequency(0.7, 0.5)) if rng.random() < 0.5 else (Frequency(),)
        nodes.append(
            Node(
                f"n{i}", cores, 1 << 34, int(rng.choice([1, 2])), speed=float(rng.choice([0.5, 1.0, 1.5])),
                power=PowerProfile((0, 1, 2, 8), watts), sleep=sleep, frequencies=levels,
            )
        )  # fmt: skip
    return Cluster("small", tuple(nodes))


def small_workload(rng: np.random.Generator, tasks: int) -> Workload:
    edges = [(int(rng.integers(t)), t) for t in range(1, tasks) if rng.random() < 0.6]
    sides = np.array(edges, np.int32).reshape(-1, 2)
    return Workload.of_columns(
        "small", release_s=np.zeros(tasks), runtime_s=rng.uniform(1, 30, tasks), shapes=(Shape(0, (Variant(),)),),
        functions=(Function("f", compute_bound=float(rng.uniform(0.5, 1))),), edges=(sides[:, 0], sides[:, 1]),
    )  # fmt: skip


NAMES = ["heft", "wattflow", "eft:sleep=120", "hpe:sleep=30", "priced-energy:order=path", "fifo"]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([1.0, 1.2, 2.0]))
def test_relaxation_exact_and_annealing_are_in_order(seed: int, tasks: int, slack: float) -> None:
    pytest.importorskip("ortools")
    rng = np.random.default_rng(seed)
    cluster, workload = small_cluster(rng), small_workload(rng, tasks)
    limit_s = slack * simulate(workload, cluster, "heft").makespan_s
    found = annealing.anneal(workload, cluster, limit_s, evaluations=EVALUATIONS)
    least = relaxation.least_energy(workload, cluster, limit_s)
    best = exact.least_energy(workload, cluster, limit_s, hint=found.schedule)
    assert least.energy_j <= best.least_j * (1 + 1e-3) + 0.1 or not best.proven
    if found.schedule is not None:
        assert found.run is not None
        assert best.least_j <= found.schedule.energy_j * (1 + 1e-6) + 1e-3
        assert found.schedule.energy_j <= found.energy_j * (1 + 1e-6) + 1e-3
        assert found.run.makespan_s <= limit_s * (1 + 1e-6)
        assert found.run.finished.all()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(NAMES))
def test_no_policy_beats_the_relaxation(seed: int, policy: str) -> None:
    rng = np.random.default_rng(seed)
    cluster, workload = small_cluster(rng), small_workload(rng, 12)
    run = simulate(workload, cluster, policy)
    least = relaxation.least_energy(workload, cluster, run.makespan_s)
    assert least.energy_j <= run.total_j * (1 + 1e-6) + 1e-6
    assert least.makespan_s <= run.makespan_s * (1 + 1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25))
def test_a_walked_schedule_keeps_cores_edges_and_its_own_account(seed: int, tasks: int) -> None:
    rng = np.random.default_rng(seed)
    cluster, workload = small_cluster(rng), small_workload(rng, tasks)
    game = annealing.Game(workload, cluster)
    found, _ = game.walk(math.inf if seed % 2 else 1e3, 500, seed)
    if found is None:
        return
    for t in range(tasks):
        for parent in workload.parents_of(t).tolist():
            assert found.end_s[parent] <= found.start_s[t] + 1e-9
    for n, node in enumerate(cluster.nodes):
        mine = np.flatnonzero(found.node == n)
        for t in mine.tolist():
            at_once = (found.start_s[mine] <= found.start_s[t]) & (found.start_s[t] < found.end_s[mine])
            assert at_once.sum() <= node.cores
    assert found.energy_j == pytest.approx(model_joules(game, found), rel=1e-9)


def model_joules(game: annealing.Game, found: annealing.Schedule) -> float:
    """The model once more, in plain words."""
    offered, total = game.offered, 0.0
    for t, (n, o) in enumerate(zip(found.node.tolist(), found.option.tolist(), strict=True)):
        total += game.workload.runtime_s[t] * offered.joules[o, offered.cls[n]]
    for n, node in enumerate(game.cluster.nodes):
        c = offered.cls[n]
        still_w = min(node.sleep.watts, offered.idle_w[c]) if node.sleep else offered.idle_w[c]
        mine = found.node == n
        last = found.end_s[mine].max(initial=0.0)
        marks = np.unique(np.concatenate([found.start_s[mine], found.end_s[mine]]))
        busy = sum(
            b - a for a, b in itertools.pairwise(marks) if ((found.start_s[mine] <= a) & (found.end_s[mine] >= b)).any()
        )
        stays = (offered.idle_w[c] - still_w) * (found.makespan_s - last)
        falls = node.sleep.enter_s * (offered.idle_w[c] - still_w) if node.sleep else math.inf
        total += still_w * found.makespan_s + (offered.idle_w[c] - still_w) * last + offered.busy_w[c] * busy
        total += min(stays, falls)
    return float(total)


def test_a_makespan_that_cannot_be_kept_has_no_energy() -> None:
    rng = np.random.default_rng(1)
    cluster, workload = small_cluster(rng), small_workload(rng, 5)
    assert relaxation.least_energy(workload, cluster, 1e-3).energy_j == math.inf
    assert annealing.anneal(workload, cluster, 1e-3, evaluations=100).energy_j == math.inf
    assert exact.least_energy(workload, cluster, 1e-3).energy_j == math.inf
