"""The compiled engine against the independent reference: starts and ends to 1e-6 s, energy to 0.01 %.

`WATTFLOW_CASES` sets how many random cases are run (`make test-differential` runs many more than the usual number).
"""

from __future__ import annotations

import os

import pytest

from reference.cases import FEATURES, random_case
from reference.compare import assert_same, differences
from reference.engine_side import run_engine
from reference.policies import POLICIES
from reference.simulator import simulate

CASES = int(os.environ.get("WATTFLOW_CASES", "3000"))
BATCHES = 20
NAMES = tuple(POLICIES)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_mixed_cases(batch: int) -> None:
    """Random subsets of all features, the policies in turn."""
    failures = []
    for seed in range(batch, CASES, BATCHES):
        name = NAMES[seed // BATCHES % len(NAMES)]
        workload, cluster, options = random_case(seed)
        found = differences(
            run_engine(workload, cluster, name, options), simulate(workload, cluster, POLICIES[name], options)
        )
        if found:
            failures.append(f"random_case({seed}) under {name}: {len(found)} differences, first: {found[0]}")
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_beside_a_dag_with_arrivals(feature: str) -> None:
    """One feature at a time, so that a difference names its cause."""
    for seed in range(12):
        name = NAMES[seed % len(NAMES)]
        workload, cluster, options = random_case(10_000 + seed, {feature, "dag", "arrivals"})
        result = simulate(workload, cluster, POLICIES[name], options)
        assert_same(run_engine(workload, cluster, name, options), result)


@pytest.mark.slow
@pytest.mark.parametrize("features", [
    ("gpu", "multi_device", "fpga", "cold", "twins"),
    ("sleep", "node_failures", "message", "twins", "dag", "arrivals"),
    ("serverless", "transfers", "zones", "estimates", "cold", "overcommit", "arrivals", "carbon"),
    ("parts", "overcommit", "guarantee", "node_failures", "twins"),
    ("task_failures", "checkpoints", "node_failures", "frequency"),
    ("easy", "twins", "parts", "memory", "estimates", "arrivals", "sleep"),
    ("rounds", "zero_runtimes", "dag", "strict"),
], ids=lambda names: names[0])  # fmt: skip
def test_features_that_meddle_with_each_other(features: tuple[str, ...]) -> None:
    """Combinations in which the rules meet, under every policy."""
    for seed in range(60):
        name = NAMES[seed % len(NAMES)]
        workload, cluster, options = random_case(20_000 + seed, features)
        result = simulate(workload, cluster, POLICIES[name], options)
        assert_same(run_engine(workload, cluster, name, options), result)
