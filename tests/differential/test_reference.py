"""The compiled engine against the independent reference: starts and ends to 1e-6 s, energy to 0.01 %.

`WATTFLOW_CASES` sets how many random cases are run (`make test-differential` runs many more than the usual number).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from reference.cases import FEATURES, random_case, random_features
from reference.compare import assert_same, differences
from reference.engine_side import run_engine
from reference.facts import Result
from reference.policies import POLICIES
from reference.simulator import simulate
from wattflow.model.run import Run

CASES = int(os.environ.get("WATTFLOW_CASES", "3000"))
BATCHES = 20
NAMES = tuple(POLICIES)


def both(seed: int, name: str, features: Iterable[str]) -> tuple[Run, Result]:
    """One case in both simulators.

    Equal nodes at different points of one straight piece of their curve have equal marginal watts but for rounding, so
    there are none of them under that policy.
    """
    without = {"twins"} if name == "marginal-energy" else set()
    workload, cluster, options = random_case(seed, set(features) - without)
    return run_engine(workload, cluster, name, options), simulate(workload, cluster, POLICIES[name], options)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_mixed_cases(batch: int) -> None:
    """Random subsets of all features, the policies in turn."""
    failures = []
    for seed in range(batch, CASES, BATCHES):
        name = NAMES[seed // BATCHES % len(NAMES)]
        found = differences(*both(seed, name, random_features(seed)))
        if found:
            failures.append(f"random_case({seed}) under {name}: {len(found)} differences, first: {found[0]}")
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_beside_a_dag_with_arrivals(feature: str) -> None:
    """One feature at a time, so that a difference names its cause."""
    for seed in range(12):
        assert_same(*both(10_000 + seed, NAMES[seed % len(NAMES)], {feature, "dag", "arrivals"}))


@pytest.mark.slow
@pytest.mark.parametrize("features", [
    ("gpu", "multi_device", "fpga", "cold", "twins"),
    ("sleep", "node_failures", "message", "twins", "dag", "arrivals"),
    ("serverless", "transfers", "zones", "estimates", "cold", "overcommit", "arrivals", "carbon"),
    ("parts", "overcommit", "guarantee", "node_failures"),
    ("task_failures", "checkpoints", "node_failures", "frequency"),
    ("easy", "twins", "memory", "estimates", "arrivals", "sleep"),
    ("easy", "parts", "memory", "estimates", "arrivals", "overcommit"),
    ("rounds", "zero_runtimes", "dag", "strict"),
], ids="-".join)  # fmt: skip
def test_features_that_meddle_with_each_other(features: tuple[str, ...]) -> None:
    """Combinations in which the rules meet, under every policy."""
    for seed in range(60):
        assert_same(*both(20_000 + seed, NAMES[seed % len(NAMES)], features))
