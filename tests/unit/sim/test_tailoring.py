"""Policies that fit themselves to what arrives: when they are asked, what they are shown, and what changes then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import simulate

CLUSTER = load_cluster("mixed")


@pytest.fixture(scope="module")
def stream() -> Workload:
    """Nine workflows; the third and the fourth come together."""
    one = generate.workload("montage", 25, 1)
    submit_s = np.array([0.0, 50.0, 100.0, 100.0, 300.0, 500.0, 700.0, 900.0, 1100.0])
    return joining.joined([one] * 9, submit_s, CLUSTER, 4.0, "stream")


def fitting(later: dict[str, float], asked: list[int]) -> Policy:
    """The flagship, with other dials from the second question on; remembers how many workflows it was shown."""

    def tailor(policy: Policy, known: Sequence[Workload], cluster: Cluster) -> Policy:
        asked.append(len(known))
        return replace(policy, tailor=None).with_params(**(later if len(asked) > 1 else {}))

    return replace(registry.load("wattflow"), tailor=tailor, tailor_next=lambda policy, seen: 2 * seen)


def test_it_is_asked_as_often_as_it_says_and_sees_what_has_arrived(stream: Workload) -> None:
    asked: list[int] = []
    run = simulate(stream, CLUSTER, fitting({}, asked))
    assert asked == [1, 2, 4, 8]
    assert run.total_j == simulate(stream, CLUSTER, "wattflow").total_j  # the same dials: the same run
    once: list[int] = []
    simulate(stream, CLUSTER, replace(fitting({}, once), tailor_next=None))
    assert once == [1]


def test_other_dials_hold_from_then_on_and_not_before(stream: Workload) -> None:
    plain, hasty = (simulate(stream, CLUSTER, f"wattflow:idle={idle}") for idle in (1e6, 0.01))
    changed = simulate(stream, CLUSTER, fitting({"idle": 0.01}, []).with_params(idle=1e6))
    before, after = (run.attempts["start_s"][run.attempts["start_s"] < 50.0] for run in (plain, changed))
    assert np.array_equal(before, after)
    # Nodes that idled when the time-out became short are looked at again.
    assert 0 == plain.scalars["sleeps"] < changed.scalars["sleeps"]
    assert hasty.total_j < changed.total_j < plain.total_j
