"""A steered policy in a simulation: asked at arrivals with what has been observed by then, in a bounded window."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import PORTFOLIO, REFERENCE
from wattflow.sim import simulate, steering

CLUSTER = load_cluster("mixed")
PARTS = [generate.workload("montage", 12, seed) for seed in range(8)]
STREAM = joining.joined(PARTS, np.arange(0.0, 240.0, 30.0), CLUSTER, math.inf, "stream")


class Listening:
    """Notes what it is told; from the fourth arrival on another policy is used."""

    def __init__(self, policy: Policy) -> None:
        self.notes: list[dict[str, object]] = []
        self.told: list[tuple[float, Seen]] = []
        self._policy = policy

    def is_due(self, arrived: int) -> bool:
        return arrived % 2 == 0

    def summary(self) -> dict[str, object]:
        return {}

    def consider(self, now_s: float, seen: Seen) -> Policy | None:
        self.told.append((now_s, seen))
        if len(self.told) != 2:
            return None
        self.notes.append({"at_s": now_s})
        return self._policy.with_params(rule=1.0, after_s=1e6)


def test_it_is_told_what_arrived_and_ended_by_then_and_its_choice_is_used() -> None:
    heard: list[Listening] = []

    def steer(policy: Policy, cluster: Cluster) -> Listening:
        heard.append(Listening(policy))
        return heard[-1]

    run = simulate(STREAM, CLUSTER, replace(PORTFOLIO.with_params(**REFERENCE), steer=steer))
    told = heard[0].told
    assert [now_s for now_s, _ in told] == [30.0, 90.0, 150.0, 210.0]
    ends = run.end_s_by_task()
    for now_s, seen in told:
        assert all(float(flow.workflow_submit_s[0]) <= now_s for flow in seen.flows)
        assert not (seen.end_s > now_s).any()
        for i in range(len(seen.flows)):
            rows = STREAM.workflow == seen.number + i
            done = ends[rows] <= now_s
            assert np.array_equal(np.isfinite(seen.runtime_s[i]), done)
            assert np.array_equal(seen.runtime_s[i][done], STREAM.runtime_s[rows][done])
    assert run.manifest["steering"] == [{"at_s": 90.0}]
    params = run.manifest["params"]
    assert isinstance(params, dict) and params["rule"] == 1.0


def test_nodes_that_idle_already_are_looked_at_again() -> None:
    """A time-out that becomes short counts for those that have idled longer than that."""
    plain, hasty = (registry.load(f"wattflow:idle={idle}") for idle in (1e6, 0.01))

    class Shortened(Listening):
        def consider(self, now_s: float, seen: Seen) -> Policy | None:
            return hasty

    never, always = (simulate(STREAM, CLUSTER, policy) for policy in (plain, hasty))
    changed = simulate(STREAM, CLUSTER, replace(plain, steer=lambda policy, cluster: Shortened(policy)))
    before, after = (run.attempts["start_s"][run.attempts["start_s"] < 30.0] for run in (never, changed))
    assert np.array_equal(before, after)
    assert 0 == never.scalars["sleeps"] < changed.scalars["sleeps"]
    assert always.total_j < changed.total_j < never.total_j


def test_the_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Listening] = []

    def steer(policy: Policy, cluster: Cluster) -> Listening:
        heard.append(Listening(policy))
        return heard[-1]

    for limit in ("MOST_TASKS", "LARGE"):
        monkeypatch.setattr(steering, limit, 3 * len(PARTS[0]))
    simulate(STREAM, CLUSTER, replace(PORTFOLIO.with_params(**REFERENCE), steer=steer))
    assert [(seen.number, len(seen.flows)) for _, seen in heard[0].told] == [(0, 2), (1, 3), (3, 3), (5, 3)]


class Counting(Listening):
    """Is due two arrivals after it has looked."""

    def is_due(self, arrived: int) -> bool:
        return arrived - (self.told[-1][1].number + len(self.told[-1][1].flows) if self.told else 0) >= 2


def test_the_next_look_counts_from_the_last_one() -> None:
    heard: list[Counting] = []

    def steer(policy: Policy, cluster: Cluster) -> Counting:
        heard.append(Counting(policy))
        return heard[-1]

    simulate(STREAM, CLUSTER, replace(PORTFOLIO.with_params(**REFERENCE), steer=steer))
    assert [now_s for now_s, _ in heard[0].told] == [30.0, 90.0, 150.0, 210.0], "asked again too soon"
