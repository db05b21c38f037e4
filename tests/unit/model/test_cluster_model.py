"""The facts of a cluster refuse what cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from wattflow.model.cluster import (
    Cluster,
    Device,
    Faults,
    Frequency,
    Network,
    Node,
    Series,
    Serverless,
    Sleep,
    Zone,
)


def node(**facts: object) -> Node:
    return Node(**({"name": "n", "cores": 4, "memory_bytes": 1 << 30} | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: node(cores=0), "cores must be at least 1"),
        (lambda: node(cores=-4), "cores"),
        (lambda: node(threads_per_core=0), "threads_per_core"),
        (lambda: node(memory_bytes=-1), "memory_bytes"),
        (lambda: node(speed=0.0), "speed must be more than 0"),
        (lambda: node(speed=math.nan), "speed"),
        (lambda: node(speed=math.inf), "speed must be finite"),
        (lambda: node(function_speed={"f": 0.0}), "function_speed of f"),
        (lambda: node(allocatable_cores=0.0), "allocatable_cores"),
        (lambda: node(smt_slowdown=0.9), "smt_slowdown"),
        (lambda: node(tdp_w=0.0), "tdp_w"),
        (lambda: node(lifetime_years=0.0), "lifetime_years"),
        (lambda: node(frequencies=()), "frequency level"),
        (lambda: node(frequencies=(Frequency(0.8, 0.6),)), "nominal"),
        (lambda: Device("gpu", sharing="half"), "sharing must be one of"),
        (lambda: Device("gpu", slots=0), "slots"),
        (lambda: Device("gpu", speed=0.0), "speed"),
        (lambda: Device("fpga", reconfigure_s=-1.0), "reconfigure_s"),
        (lambda: Network(bandwidth_bytes_per_s=0.0), "bandwidth"),
        (lambda: Network(latency_s=-1.0), "latency_s"),
        (lambda: Frequency(speed=0.0), "speed"),
        (lambda: Sleep(watts=-1.0, wake_s=1.0), "watts"),
        (lambda: Sleep(watts=1.0, wake_s=1.0, after_s=-1.0), "after_s"),
        (lambda: Serverless(time_limit_s=0.0), "time_limit_s"),
        (lambda: Faults(mtbf_s=0.0), "mtbf_s"),
        (lambda: Series(0.0, (1.0,)), "step_s"),
        (lambda: Series(1.0, ()), "at least one value"),
        (lambda: Series(1.0, (math.nan,)), "finite"),
        (lambda: Zone(pue=0.9), "pue"),
        (lambda: Zone(carbon=Series(1.0, (-1.0,))), "carbon"),
        (lambda: Cluster("c", ()), "at least one node"),
        (lambda: Cluster("c", (node(zone="moon"),)), "moon"),
        (lambda: Cluster("c", (node(), node())), "node names must differ"),
        (lambda: Cluster("c", (node(),), (Zone(), Zone())), "zone names must differ"),
    ],
)
def test_impossible_facts_are_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_requests_go_to_hardware_threads_unless_told() -> None:
    assert node(threads_per_core=2).request_cores == 8
    assert node(threads_per_core=2, allocatable_cores=3.5).request_cores == 3.5


def test_what_may_be_endless_may_be() -> None:
    Network(bandwidth_bytes_per_s=math.inf)
    assert node(keep_alive_s=math.inf).keep_alive_s == math.inf


def test_nodes_of_one_class_differ_only_in_name() -> None:
    assert node(name="a").class_key == node(name="b").class_key
    assert hash(node(function_speed={"f": 2.0}).class_key) != hash(node().class_key)
    assert node(function_speed={"f": 2.0}).class_key != node().class_key


def test_a_series_holds_each_value_for_a_step_and_repeats() -> None:
    series = Series(60.0, (1.0, 2.0, 6.0))
    assert [series.at(t) for t in (0.0, 59.9, 60.0, 179.0, 180.0, 3600.0)] == [1, 1, 2, 6, 1, 1]
    assert series.mean == 3


def test_prices_may_be_negative() -> None:
    assert Zone(price=Series(3600.0, (-0.02,))).price.values == (-0.02,)
