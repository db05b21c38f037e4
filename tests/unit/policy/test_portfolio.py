"""The portfolio: each rule is the policy that it stands for, pools are kept, and the reference has every node on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.portfolio import FLAGSHIP, PORTFOLIO, REFERENCE, SOONEST, SPREAD, THRIFT, with_own_offers
from wattflow.sim import SimOptions, simulate, steering
from wattflow.sim.simulate import Simulation
from wattflow.testing import check_policy


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    mixed = load_cluster("mixed")
    return replace(mixed, nodes=tuple(replace(node, frequencies=node.frequencies[:1]) for node in mixed.nodes))


@pytest.fixture(scope="module")
def stream(cluster: Cluster) -> Workload:
    parts = [generate.workload("montage", 20, seed) for seed in range(6)]
    return joining.joined(parts, np.arange(0.0, 240.0, 40.0), cluster, 4.0, "stream")


def test_the_flagships_rule_is_the_flagship(stream: Workload, cluster: Cluster) -> None:
    ours, theirs = simulate(stream, cluster, PORTFOLIO), simulate(stream, cluster, "wattflow")
    assert ours.total_j == theirs.total_j
    assert np.array_equal(ours.attempts["node"], theirs.attempts["node"])


def test_whole_requests_are_the_flagships_where_nothing_less_is_offered(stream: Workload, cluster: Cluster) -> None:
    """As on Kubernetes, where the flagship's rule placed nothing at all."""
    ours, theirs = (
        simulate(stream, cluster, one.with_settings(guarantees=(1.0,)))
        for one in (PORTFOLIO, registry.load("wattflow"))
    )
    assert ours.total_j == theirs.total_j
    assert np.array_equal(ours.attempts["node"], theirs.attempts["node"])


def test_the_reference_is_kubernetes_with_all_nodes_on(stream: Workload, cluster: Cluster) -> None:
    ours = simulate(stream, cluster, PORTFOLIO.with_params(**REFERENCE), options=SimOptions())
    theirs = simulate(stream, cluster, "kubernetes")
    assert np.array_equal(ours.attempts["node"], theirs.attempts["node"])
    assert ours.scalars["sleeps"] == 0 and ours.total_j == pytest.approx(theirs.total_j)


@pytest.mark.parametrize("rule", [SOONEST, THRIFT, SPREAD])
def test_a_plain_rule_sleeps_by_its_time_out_or_keeps_a_pool(rule: float, stream: Workload, cluster: Cluster) -> None:
    plain = PORTFOLIO.with_params(rule=rule, after_s=5.0)
    slept = simulate(stream, cluster, plain)
    assert slept.scalars["sleeps"] > 0
    assert simulate(stream, cluster, plain.with_params(rest_s=1e6)).scalars["sleeps"] == 0
    pooled = simulate(stream, cluster, PORTFOLIO.with_params(rule=rule, reserve=0.3, decay_s=60.0))
    assert pooled.scalars["sleeps"] > 0 and np.isfinite(pooled.end_s_by_task()).all()


def test_thrift_within_no_tolerance_ends_as_soon_as_soonest(stream: Workload, cluster: Cluster) -> None:
    first, soon = (
        simulate(stream, cluster, PORTFOLIO.with_params(rule=rule, tolerance=0.0, after_s=1e6)).makespan_s
        for rule in (THRIFT, SOONEST)
    )
    assert first <= 1.05 * soon


@pytest.mark.slow
def test_it_keeps_the_contract_of_a_policy_and_is_listed_nowhere() -> None:
    for dials in ({}, REFERENCE, {"rule": THRIFT}, {"rule": SOONEST, "reserve": 0.3}):
        check_policy(PORTFOLIO.with_params(**dials))
    assert "portfolio" not in registry.names() and registry.load("portfolio") is PORTFOLIO


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(Exception, match="rule = 4 is out of range"):
        PORTFOLIO.with_params(rule=4.0)
    assert PORTFOLIO.with_params(after_s=math.inf).params["after_s"] == math.inf


def test_other_numbers_do_not_make_the_memory_grow(stream: Workload, cluster: Cluster) -> None:
    """A server changes numbers for months, and a race a hundred times a second: nothing may move or grow."""
    run = Simulation(stream, cluster, PORTFOLIO)
    before, handle = len(run.state.memory), run.state.handle()
    for reserve in (0.3, 1.0, -1.0):
        steering.set_numbers(PORTFOLIO.with_params(reserve=reserve), run.state, cluster, run._sleep_after_s)
    assert len(run.state.memory) == before and run.state.handle() is handle


def test_a_pool_keeps_its_least_share_on(stream: Workload, cluster: Cluster) -> None:
    few, half = (
        simulate(stream, cluster, PORTFOLIO.with_params(rule=1.0, reserve=0.0, decay_s=1.0, least=least))
        for least in (0.0, 1.0)
    )
    assert few.scalars["sleeps"] > 0 and half.scalars["sleeps"] == 0


@pytest.mark.parametrize("rule", [FLAGSHIP, SOONEST, THRIFT, SPREAD])
def test_a_rule_decides_as_before_with_its_own_offers_alone(rule: float, stream: Workload, cluster: Cluster) -> None:
    policy = PORTFOLIO.with_params(rule=rule, after_s=30.0)
    own = with_own_offers(policy, cluster)
    assert len(own.settings.guarantees) == len(own.settings.frequencies) == 1
    narrow = replace(cluster, nodes=cluster.nodes[:2])  # somebody waits
    for machine in (cluster, narrow):
        ours, theirs = (simulate(stream, machine, one) for one in (own, policy))
        assert ours.total_j == theirs.total_j
        for column in ("node", "start_s", "end_s"):
            assert np.array_equal(ours.attempts[column], theirs.attempts[column])


def test_until_a_time_all_nodes_are_woken_and_then_sleep_by_their_time_out(stream: Workload, cluster: Cluster) -> None:
    one = Simulation(stream, cluster, PORTFOLIO.with_params(rule=SPREAD, after_s=5.0))
    one.advance(until_s=float(stream.release_s.max()) - 1.0)
    assert one.state.counts.asleep_n[0] > 0
    roused = PORTFOLIO.with_params(rule=SPREAD, after_s=1e6, on_until_s=float(stream.release_s.max()))
    steering.put_in(roused, one.state, one.world, cluster, one._sleep_after_s)
    one.policy = roused
    one.advance(until_s=float(stream.release_s.max()) + 1.0)
    assert one.state.counts.asleep_n[0] == 0
