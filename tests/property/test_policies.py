"""Whatever the policy: every task of every generated case is finished, and no child starts before its parent ends."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.cases import random_case
from wattflow.model.cluster import Cluster
from wattflow.policy import registry
from wattflow.sim import SimOptions, simulate

FEATURES = (
    "dag", "arrivals", "memory", "tags", "gpu", "multi_device", "fpga", "transfers", "zones", "cold", "sleep",
    "serverless", "parts", "frequency", "carbon", "estimates", "zero_runtimes",
)  # fmt: skip
ONLINE = [name for name in registry.names() if registry.load(name).plan is None]


def without_time_limits(cluster: Cluster) -> Cluster:
    """A platform may rightly end a task that takes longer than was estimated; here none does."""
    nodes = (
        node if node.serverless is None else replace(node, serverless=replace(node.serverless, time_limit_s=math.inf))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


@pytest.mark.parametrize("name", ONLINE)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10_000), features=st.sets(st.sampled_from(FEATURES), max_size=8))
def test_every_task_is_finished_after_its_parents(name: str, seed: int, features: set[str]) -> None:
    if features & {"cold", "transfers", "sleep", "fpga"}:
        features.discard("zero_runtimes")
    workload, cluster, _ = random_case(seed, {"dag", *features})
    cluster = without_time_limits(cluster)
    run = simulate(workload, cluster, name, seed=seed, options=SimOptions())
    assert run.finished.all()
    start, end = run.start_s_by_task(), run.end_s_by_task()
    for task in range(len(workload)):
        for parent in workload.parents_of(task):
            assert end[parent] <= start[task] + 1e-9


@pytest.mark.parametrize("name", ["wattflow", "wattflow:order=path", "learned"])
@pytest.mark.parametrize(
    ("seed", "features"),
    [
        (9225, {"fpga", "frequency", "parts", "serverless", "transfers", "zones"}),
        (405, {"arrivals", "cold", "estimates", "fpga", "frequency", "parts"}),
        (8025, {"arrivals", "carbon", "fpga", "gpu", "parts", "sleep"}),
        (425, {"parts", "serverless", "sleep"}),
    ],
)
def test_no_part_of_a_gang_waits_for_another_of_its_own(name: str, seed: int, features: set[str]) -> None:
    """A part once held out for the place of a part already placed, or did not wake a node since "the queue moves"."""
    workload, cluster, _ = random_case(seed, {"dag", *features})
    assert simulate(workload, without_time_limits(cluster), name, seed=seed).finished.all()


@pytest.mark.parametrize("seed", [257, 301, 302, 303])
def test_mashup_never_holds_a_gang_that_needs_both_sides(seed: int) -> None:
    """A gang wider than the fixed nodes once waited for ever beside an idle platform."""
    features = {"dag", "parts", "serverless", "frequency", "arrivals", "sleep", "memory"}
    workload, cluster, _ = random_case(seed, features)
    assert simulate(workload, without_time_limits(cluster), "mashup", seed=seed).finished.all()


@pytest.mark.parametrize("name", ONLINE)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    workload, cluster, _ = random_case(11, {"dag", "arrivals", "gpu", "cold", "sleep", "transfers"})
    first, second = (simulate(workload, cluster, name, seed=5) for _ in range(2))
    assert first.attempts.tobytes() == second.attempts.tobytes()
    assert first.energy_j.tobytes() == second.energy_j.tobytes()
