"""Figures against numbers worked out by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from wattflow.frames.frame_run import STAGES as FRAME_STAGES
from wattflow.generate import benchmark_workload
from wattflow.lab.explore.point import values_of
from wattflow.lab.figures.ideal import alone_factor, ideal_s
from wattflow.lab.figures.metrics import METRICS, STAGES, TaskTimes, metrics, node_provenance, slowdown
from wattflow.model.cluster import Cluster, Device, Frequency, Node, Serverless, Zone
from wattflow.model.profile import DeviceProfile, Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

from .runs import attempt, node, two_node_run


def test_energy_power_and_their_product() -> None:
    values = metrics(two_node_run())
    assert values["energy_j"] == 4300.0
    assert values["energy_idle_j"] == 2700.0
    assert values["energy_cold_start_j"] == 100.0
    assert values["energy_measured_j"] == 4300.0
    assert values["energy_modelled_j"] == 0.0
    assert values["mean_w"] == pytest.approx(4300 / 18)
    assert values["edp_js"] == pytest.approx(4300 * 18)
    assert values["peak_w"] == 300.0


def test_accounts_and_provenance_each_sum_to_the_energy() -> None:
    values = metrics(two_node_run())
    assert sum(values[f"energy_{account}_j"] or 0.0 for account in ACCOUNTS) == values["energy_j"]
    assert sum(values[f"energy_{kind}_j"] or 0.0 for kind in Provenance) == values["energy_j"]


def test_slowdown_is_response_over_ideal_and_leaves_out_empty_tasks() -> None:
    run = two_node_run()
    ideal = ideal_s(run.workload, run.cluster)
    assert ideal.tolist() == [5.0, 10.0, 0.0]
    each = slowdown(TaskTimes.of(run), ideal)
    assert each[:2].tolist() == [2.0, 1.8]
    assert np.isnan(each[2])
    values = metrics(run)
    assert values["ideal_zero"] == 1.0
    assert values["slowdown_p50"] == pytest.approx(1.9)
    assert values["bounded_slowdown_p50"] == pytest.approx(1.0)
    assert values["bounded_slowdown_p99"] == pytest.approx(1 + 0.8 * 0.98)
    assert values["stretch_mean"] == pytest.approx(1.5)
    assert values["stretch_max"] == 2.0


def test_waits_sum_to_the_response_time() -> None:
    values = metrics(two_node_run())
    assert values["wait_queue_s"] == pytest.approx(5 / 3)
    assert values["wait_cold_start_s"] == pytest.approx(1 / 3)
    assert values["wait_data_s"] == pytest.approx(2 / 3)
    assert values["wait_run_s"] == pytest.approx(20 / 3)
    assert sum(values[f"wait_{stage}_s"] or 0.0 for stage in STAGES) == pytest.approx(values["response_mean_s"])


def test_a_retry_counts_from_the_first_release() -> None:
    rows = np.concatenate([
        attempt(0, (0.0, 0.0, 0.0, 4.0), outcome=1),
        attempt(0, (4.0, 5.0, 5.0, 15.0), attempt=1),
        attempt(1, (0.0, 0.0, 0.0, 10.0), node=1),
        attempt(2, (0.0, 0.0, 0.0, 0.0)),
    ])  # fmt: skip
    tasks = TaskTimes.of(two_node_run(attempts=rows))
    assert tasks.response_s[0] == 15.0
    assert tasks.stages["retries"][0] == 4.0
    assert tasks.stages["queue"][0] == 1.0


def test_a_task_that_never_finished_is_counted_and_left_out() -> None:
    rows = np.concatenate([attempt(0, (0.0, 0.0, 0.0, 10.0)), attempt(1, (0.0, 0.0, 0.0, 3.0), node=1, outcome=1)])
    values = metrics(two_node_run(attempts=rows))
    assert values["unfinished"] == 2.0
    assert values["slowdown_p99"] == 2.0


def test_a_run_in_which_nothing_finished_has_unknown_figures() -> None:
    values = metrics(two_node_run(attempts=np.zeros(0, ATTEMPT), makespan_s=0.0))
    assert values["slowdown_p50"] is None and values["response_mean_s"] is None and values["utilisation"] is None
    assert values["mean_w"] is None


def test_utilisation_is_busy_thread_seconds_over_all() -> None:
    assert metrics(two_node_run())["utilisation"] == pytest.approx((10 + 10) / (4 * 18))


def test_utilisation_never_counts_more_threads_than_there_are() -> None:
    rows = np.concatenate([attempt(t, (0.0, 0.0, 0.0, 10.0), guarantee=0.5) for t in range(3)])
    assert metrics(two_node_run(attempts=rows))["utilisation"] == pytest.approx(2 * 10 / (4 * 18))


def test_device_utilisation_counts_shares() -> None:
    gpu = Device("gpu", power=DeviceProfile((0.0, 1.0), (20.0, 120.0)))
    cluster = Cluster("one", (node("a", devices=(gpu, gpu)),))
    shape = Shape(0, (Variant(device="gpu", devices=1, device_share=0.5),))
    workload = Workload.of_columns("w", release_s=np.zeros(1), runtime_s=np.full(1, 8.0), shapes=(shape,))
    zero = np.zeros(1)
    run = Run(workload, cluster, "fifo", attempt(0, (0.0, 0.0, 0.0, 8.0), device=1), np.zeros((1, 8)), zero, zero, 0, 8)
    assert metrics(run)["device_utilisation"] == pytest.approx(0.25)


def test_unknown_is_none_and_never_zero() -> None:
    nodes = (Node("a", 2, 2**30), Node("b", 2, 2**30, speed=2.0))
    values = metrics(two_node_run(cluster=Cluster("dark", nodes), energy_j=np.zeros((2, 8)), scalars={}))
    for name in ("energy_j", "mean_w", "peak_w", "edp_js", "cost", "carbon_g", "embodied_g", "decision_us"):
        assert values[name] is None, name
    assert values["unknown_power_nodes"] == 2.0


def test_one_dark_node_makes_a_lower_bound_of_the_total() -> None:
    """What the other node used is told under its own name; no total, account, peak or product is."""
    lit = two_node_run()
    half = replace(lit.cluster, nodes=(replace(lit.cluster.nodes[0], power=None), lit.cluster.nodes[1]))
    waits = {f"wait_{stage}_s": 0.0 for stage in FRAME_STAGES}
    lit = replace(lit, scalars={**lit.scalars, **waits})
    run = replace(lit, cluster=half)
    for values in (metrics(run), values_of(run, np.ones(3))):
        assert values["known_energy_j"] == pytest.approx(run.total_j)
        for name in ("energy_j", "energy_run_j", "energy_idle_j", "peak_w", "mean_w", "edp_js"):
            assert values[name] is None, name
        assert values["unknown_power_nodes"] == 1.0
    assert metrics(lit)["known_energy_j"] is None
    assert values_of(lit, np.ones(3))["energy_j"] == pytest.approx(lit.total_j)


def test_cost_and_carbon_are_shown_where_known() -> None:
    run = two_node_run(carbon_g=np.array([1.0, 2.0]), cost=np.array([0.25, 0.5]))
    zone = Zone(carbon_known=True, price_known=True)
    values = metrics(replace(run, cluster=replace(run.cluster, zones=(zone,))))
    assert values["carbon_g"] == 3.0 and values["cost"] == 0.75
    assert values["decision_us"] == pytest.approx(2.0)


def test_making_a_node_counts_by_its_share_of_a_lifetime() -> None:
    """900 kg over five years, of which 18 s: a year is 31,557,600 s."""
    run = two_node_run()
    first, second = run.cluster.nodes
    made = replace(run.cluster, nodes=(replace(first, embodied_kg=900.0, lifetime_years=5.0), second))
    assert metrics(replace(run, cluster=made))["embodied_g"] == pytest.approx(900_000 * 18 / (5 * 31_557_600))


def test_the_weakest_profile_names_the_provenance_of_a_node() -> None:
    guessed = Device("gpu", power=DeviceProfile((0.0, 1.0), (5.0, 50.0), Provenance.GUESSED))
    silent = Device("fpga")
    assert node_provenance(node("a", devices=(silent,))) is Provenance.MEASURED
    assert node_provenance(node("a", devices=(silent, guessed))) is Provenance.GUESSED
    assert node_provenance(Node("a", 1, 1)) is None


def test_ideal_uses_the_best_variant_device_and_clock() -> None:
    function = Function("f", compute_bound=0.5)
    fast = Device("gpu", memory_bytes=100, speed=4.0)
    host = node("a", devices=(Device("gpu", memory_bytes=100), fast), frequencies=(Frequency(), Frequency(2.0, 3.0)))
    assert alone_factor(Variant(), function, host) == pytest.approx(0.75)
    assert alone_factor(Variant(device="gpu", devices=1), function, host) == pytest.approx(0.75 / 4)
    assert alone_factor(Variant(device="gpu", devices=3), function, host) is None
    assert alone_factor(Variant(device="gpu", devices=1, device_memory_bytes=101), function, host) is None
    assert alone_factor(Variant(features=("avx",)), function, host) is None
    assert alone_factor(Variant(cores=3.0), function, host) is None


def test_ideal_of_a_task_wider_than_the_cores_follows_the_smt_curve() -> None:
    host = Node("a", 4, 1, threads_per_core=2, smt_slowdown=1.5)
    assert alone_factor(Variant(cores=8.0), Function("f"), host) == pytest.approx(1.5)
    assert alone_factor(Variant(cores=6.0), Function("f"), host) == pytest.approx(6 / (4 + 2 * (8 / 1.5 - 4) / 4))
    assert alone_factor(Variant(cores=4.0), Function("f"), host) == 1.0


def test_ideal_keeps_the_time_limit_of_a_serverless_node() -> None:
    cloud = Node("cloud", 100, 2**40, speed=10.0, serverless=Serverless(time_limit_s=5.0))
    cluster = Cluster("both", (node("a"), cloud))
    workload = Workload.of_columns("w", release_s=np.zeros(2), runtime_s=np.array([40.0, 60.0]))
    assert ideal_s(workload, cluster).tolist() == [4.0, 60.0]


def test_ideal_is_unknown_where_nothing_fits() -> None:
    shape = Shape(0, (Variant(cores=99.0),))
    workload = Workload.of_columns("w", release_s=np.zeros(1), runtime_s=np.ones(1), shapes=(shape,))
    assert np.isnan(ideal_s(workload, Cluster("one", (node("a"),)))[0])


def test_every_figure_is_described() -> None:
    assert set(metrics(two_node_run())) == set(METRICS)


@pytest.mark.slow
def test_a_million_attempts_take_seconds() -> None:
    count = 1_000_000
    workload, cluster = benchmark_workload(count), Cluster("flat", tuple(node(f"n{i}") for i in range(64)))
    rows = np.zeros(count, ATTEMPT)
    rows["task"] = np.arange(count)
    rows["node"], rows["guarantee"], rows["device"] = np.arange(count) % 64, 1.0, -1
    rows["ready_s"] = rows["placed_s"] = rows["start_s"] = workload.release_s
    rows["end_s"] = workload.release_s + workload.runtime_s
    zero, span = np.zeros(64), float(rows["end_s"].max())
    run = Run(workload, cluster, "fifo", rows, np.ones((64, 8)), zero, zero, 1.0, span)
    began = time.process_time()
    values = metrics(run)
    assert time.process_time() - began < 5.0
    assert values["slowdown_p99"] == pytest.approx(1.0)
