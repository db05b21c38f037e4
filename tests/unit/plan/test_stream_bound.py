"""The integer relaxation for streams: never above an optimum, nearer than the plain bound, below what policies take."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from research import exact_stream, stream_bound
from research.judge import Judge, Stream
from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.plan import relaxation

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from bounds_streams import small_stream

pytest.importorskip("scipy")
pytest.importorskip("ortools")


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_never_above_the_optimum_and_nearer_than_the_plain_bound(seed: int) -> None:
    workload, cluster, due_s, horizon_s = small_stream(seed)
    best = exact_stream.least_joules(workload, cluster, due_s, horizon_s, limit_s=60.0)
    assert best is not None
    least = stream_bound.least_joules(workload, cluster, due_s, float(horizon_s))
    assert relaxation.energy_bound_j(workload, cluster) < least <= best * (1 + 1e-6)


def test_tasks_that_must_run_at_once_keep_nodes_on_by_hand() -> None:
    """Four tasks of a core on nodes of two, due when they can just end: both nodes are on for those ten seconds."""
    node = Node("n", 2, 1 << 30, power=PowerProfile((0.0, 2.0), (10.0, 14.0)), sleep=Sleep(0.0, 1.0, 0.0))
    cluster = Cluster("two", (node, Node("m", 2, 1 << 30, power=node.power, sleep=node.sleep)))
    workload = Workload.of_columns("four", release_s=np.zeros(4), runtime_s=np.full(4, 10.0))
    least = stream_bound.least_joules(workload, cluster, np.array([10.0]), 10.0)
    assert least == pytest.approx(2 * 10.0 * 10.0 + 4 * 10.0 * 2.0)
    assert stream_bound.least_joules(workload, cluster, np.array([9.0]), 10.0) == np.inf


def test_below_every_policy_in_which_nobody_waits() -> None:
    parts = tuple(Recipe.parse("fork-join:tasks=8,mean=60s").draw(seed) for seed in range(2))
    judge = Judge(Stream(parts, load_cluster("equal"), 0.3, seed=1, estimates="exact", workflows=15), draws=2)
    least = stream_bound.least_joules(judge.workload, judge.stream.cluster, judge.due_s, judge.horizon_s)
    for outcome in judge.base:
        assert 0 < least <= outcome.energy_j
