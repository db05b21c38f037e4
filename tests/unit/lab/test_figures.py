"""Figures of runs that are small enough for a pencil: the grid beside a supply, ideal times, responses, logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from research.grid_energy import grid_j
from wattflow.lab.figures.ideal import alone_factor, distinct_nodes, ideal_s
from wattflow.lab.figures.metrics import metrics, response_values, workflow_response_s
from wattflow.lab.figures.power_series import power_curve
from wattflow.lab.figures.statistics import pareto_front, t_cdf
from wattflow.model.cluster import Cluster, Device, Series, Zone
from wattflow.model.profile import DeviceProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy.renewable import EFFICIENCY

from .runs import attempt, node, two_node_run

LOG = [("time_s", "f8"), ("node", "i4"), ("watts", "f8")]


def logged() -> Run:
    """18 s: node 0 draws 10 W and from 4 s on 30 W, node 1 5 W from 2 s on: 10, 15 and 35 W in all."""
    return two_node_run(power_log=np.array([(0.0, 0, 10.0), (2.0, 1, 5.0), (4.0, 0, 30.0)], LOG))


@pytest.mark.parametrize(
    ("supply_w", "battery_j", "expected"),
    [
        ((20.0, 0.0), 0.0, 15.0 * 6 + 35.0 * 8),
        ((20.0, 0.0), 1e9, 15.0 * 6 + 35.0 * 8 - 30.0 * EFFICIENCY),
        ((20.0, 0.0), 12.0, 15.0 * 6 + 35.0 * 8 - 12.0),
        ((0.0,), 50.0, 10.0 * 2 + 15.0 * 2 + 35.0 * 14),
        ((100.0,), 0.0, 0.0),
        ((40.0, 30.0), 0.0, 5.0 * 8),
        ((40.0, 30.0), 1e9, 0.0),
        ((35.0,), 0.0, 0.0),
    ],
)
def test_the_grid_gives_what_supply_and_battery_do_not(
    supply_w: tuple[float, ...], battery_j: float, expected: float
) -> None:
    """Steps of 10 s. With 20 W at first, 10 W are to spare for 2 s and 5 W for 2 s more; the rest is beyond it."""
    assert grid_j(logged(), Series(10.0, supply_w), battery_j) == pytest.approx(expected)


def test_of_several_rows_of_a_log_at_one_time_the_last_counts() -> None:
    rows = [(3.0, 1, 7.0), (0.0, 0, 5.0), (0.0, 1, 1.0), (3.0, 0, 9.0), (3.0, 0, 4.0), (3.0, 1, 2.0), (5.0, 1, 2.0)]
    steps = power_curve(two_node_run(power_log=np.array(rows, LOG))).steps
    assert steps.group.tolist() == [0, 0, 1, 1, 1]
    assert steps.time_s.tolist() == [0.0, 3.0, 0.0, 3.0, 5.0]
    assert steps.value.tolist() == [5.0, 4.0, 1.0, 2.0, 2.0]


def test_ideal_times_of_several_shapes() -> None:
    """Shapes of factors 3, 1 and 2, of which the middle one is not asked for."""
    shapes = tuple(
        Shape(0, (Variant(runtime_factor=factor), Variant("slow", runtime_factor=9.0))) for factor in (3, 1, 2)
    )
    work = Workload.of_columns(
        "w", release_s=np.zeros(4), runtime_s=np.array([1.0, 2.0, 3.0, 4.0]), shapes=shapes,
        shape=np.array([2, 0, 2, 0], np.int32),
    )  # fmt: skip
    assert ideal_s(work, Cluster("c", (node("a", speed=0.5), node("b", speed=2.0)))).tolist() == [1.0, 3.0, 3.0, 6.0]


def test_a_variant_needs_as_many_devices_as_it_asks_for() -> None:
    cards = (Device("gpu", "a", speed=1.0), Device("gpu", "b", speed=4.0), Device("fpga", "a"))
    host = node("a", devices=cards)
    factors = [alone_factor(Variant(device="gpu", devices=count), Function("f"), host) for count in (0, 1, 2, 3)]
    assert factors == [0.25, 0.25, 0.25, None]
    assert alone_factor(Variant(device="gpu", devices=1, device_models=("a",)), Function("f"), host) == 1.0
    assert alone_factor(Variant(device="gpu", devices=2, device_models=("a",)), Function("f"), host) is None
    assert alone_factor(Variant(cores=2.0), Function("f"), node("b", function_speed={"f": 4.0})) == 0.25


def test_nodes_that_differ_only_in_what_speed_does_not_see_are_one() -> None:
    kinds = (
        node("a"),
        node("b", idle_w=1.0),
        node("c", speed=2.0),
        node("d", price_per_hour=3.0),
        node("e", speed=2.0),
    )
    assert [each.name for each in distinct_nodes(Cluster("c", kinds))] == ["a", "c"]


def two_workflows(**changes: object) -> Run:
    """Workflow 0 is submitted at 3 s, workflow 1 at 7 s; their last tasks end at 10 and 18 s."""
    work = Workload.of_columns(
        "w", release_s=np.array([3.0, 7.0, 3.0]), runtime_s=np.array([10.0, 20.0, 0.0]),
        workflow=np.array([0, 1, 0], np.int32),
    )  # fmt: skip
    return two_node_run(workload=work, **changes)


def test_a_workflow_responds_when_its_last_task_ends() -> None:
    run = two_workflows()
    ends = np.array([10.0, 18.0, 4.0])
    assert workflow_response_s(run, ends).tolist() == [7.0, 11.0]
    assert response_values(run, ends) == pytest.approx(
        {"workflow_response_mean_s": 9.0, "workflow_response_p95_s": 7.0 + 0.95 * 4.0}
    )
    open_ = workflow_response_s(run, np.array([10.0, 18.0, np.nan]))
    assert np.isnan(open_[0]) and open_[1] == 11.0
    assert set(response_values(run, np.array([10.0, 18.0, np.nan])).values()) == {None}


def test_devices_of_a_run_of_half_a_second_are_used() -> None:
    card = Device("gpu", power=DeviceProfile((0.0, 1.0), (20.0, 120.0)))
    cluster = Cluster("one", (node("a", devices=(card, card)),))
    shape = Shape(0, (Variant(device="gpu", devices=2),))
    work = Workload.of_columns("w", release_s=np.zeros(1), runtime_s=np.full(1, 0.25), shapes=(shape,))
    zero = np.zeros(1)
    run = Run(
        work, cluster, "fifo", attempt(0, (0.0, 0.0, 0.0, 0.25), device=0), np.zeros((1, 8)), zero, zero, 0.0, 0.5
    )
    assert metrics(run)["device_utilisation"] == pytest.approx(0.5)
    assert metrics(run)["utilisation"] == pytest.approx(0.25 / (2 * 0.5))


@pytest.mark.parametrize(
    ("zone", "more", "known"),
    [
        (Zone(), {}, False),
        (Zone(price_known=True), {}, True),
        (Zone(), {"price_per_hour": 1.0}, True),
        (Zone(price_known=True), {"power": None}, False),
        (Zone(), {"price_per_hour": 1.0, "power": None}, True),
    ],
)
def test_money_is_known_where_something_has_a_price_and_all_joules_are_known(
    zone: Zone, more: dict[str, Any], known: bool
) -> None:
    cluster = Cluster("c", (node("a", **more), node("b", speed=2.0)), (zone,))
    found = metrics(two_node_run(cluster=cluster, cost=np.array([1.0, 2.0])))["cost"]
    assert found == (3.0 if known else None)


def test_deadlines_missed_are_those_of_tasks_that_end_late() -> None:
    work = Workload.of_columns(
        "w", release_s=np.zeros(3), runtime_s=np.array([10.0, 20.0, 0.0]), deadline_s=np.array([10.0, 17.9, np.inf])
    )
    assert metrics(two_node_run(workload=work))["deadlines_missed"] == 1.0
    assert metrics(two_node_run())["deadlines_missed"] is None


def test_a_front_keeps_what_no_other_beats() -> None:
    x = [3.0, 1.0, 2.0, 2.0, float("nan"), 1.0, 3.0]
    y = [1.0, 5.0, 3.0, 3.0, 0.0, 6.0, 2.0]
    assert pareto_front(x, y).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [(1.0, 1, 0.75), (1.0, 2, 0.788675), (2.0, 3, 0.930337), (1.5, 4, 0.896), (2.0, 7, 0.957190)],
)
def test_the_distribution_has_the_printed_values(t: float, freedom: int, expected: float) -> None:
    assert t_cdf(t, freedom) == pytest.approx(expected, abs=2e-6)
