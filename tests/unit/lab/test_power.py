"""Power over time against areas worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.lab.figures.metrics import accumulate, sweep
from wattflow.lab.figures.power_series import busy_threads, power_curve
from wattflow.model.cluster import Cluster, Device
from wattflow.model.profile import DeviceProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload

from .runs import attempt, node, two_node_run


def test_sweep_sums_overlapping_intervals_by_group() -> None:
    steps = sweep(np.array([1, 0, 1]), np.array([0.0, 0.0, 1.0]), np.array([2.0, 5.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    assert steps.group.tolist() == [0, 0, 1, 1, 1, 1]
    assert steps.time_s.tolist() == [0.0, 5.0, 0.0, 1.0, 2.0, 3.0]
    assert steps.value.tolist() == [2.0, 0.0, 1.0, 5.0, 4.0, 0.0]
    assert steps.held_s(6.0).tolist() == [5.0, 1.0, 1.0, 1.0, 1.0, 3.0]


def test_the_rebuilt_curve_has_the_area_of_idle_run_and_cold_start() -> None:
    curve = power_curve(two_node_run())
    assert curve.rebuilt
    assert curve.energy_j(0) == pytest.approx(100 * 18 + 50 * 10)
    assert curve.energy_j(1) == pytest.approx(50 * 18 + 100 * 10 + 100 * 1)


def test_binning_keeps_the_joules() -> None:
    curve = power_curve(two_node_run())
    edges, watts = curve.binned(2, 7)
    assert (watts * np.diff(edges)).sum(axis=1) == pytest.approx([2300.0, 2000.0])


def test_the_log_is_used_where_there_is_one() -> None:
    log = np.array([(0.0, 0, 5.0), (9.0, 0, 7.0), (9.0, 0, 3.0)], [("time_s", "f8"), ("node", "i4"), ("watts", "f8")])
    curve = power_curve(two_node_run(power_log=log))
    assert not curve.rebuilt
    assert curve.energy_j(0) == pytest.approx(5 * 9 + 3 * 9)
    assert curve.energy_j(1) == 0.0


def test_cold_starts_keep_cores_busy_and_transfers_do_not() -> None:
    steps = busy_threads(two_node_run())
    mine = steps.group == 1
    assert steps.time_s[mine].tolist() == [5.0, 6.0, 8.0, 18.0]
    assert steps.value[mine].tolist() == [1.0, 0.0, 1.0, 0.0]


def device_run(sharing: str, devices: int, share: float) -> Run:
    gpu = Device("gpu", sharing=sharing, power=DeviceProfile((0.0, 0.5, 1.0), (10.0, 100.0, 110.0)))
    cluster = Cluster("one", (node("a", devices=(gpu, gpu)),))
    shape = Shape(0, (Variant(cores=1.0, device="gpu", devices=devices, device_share=share),))
    workload = Workload.of_columns("w", release_s=np.zeros(2), runtime_s=np.full(2, 8.0), shapes=(shape,))
    rows = np.concatenate([attempt(0, (0, 0, 0, 8.0), device=0), attempt(1, (0, 0, 8.0, 10.0), device=0)])
    return Run(workload, cluster, "fifo", rows, np.zeros((1, 8)), np.zeros(1), np.zeros(1), 0.0, 10.0)


@pytest.mark.parametrize(
    ("sharing", "devices", "share", "above_w"),
    [("mps", 1, 0.5, 90.0), ("mps", 1, 0.25, 45.0), ("time-slice", 1, 0.5, 90.0), ("exclusive", 2, 1.0, 200.0)],
)
def test_devices_draw_by_their_busy_share(sharing: str, devices: int, share: float, above_w: float) -> None:
    curve = power_curve(device_run(sharing, devices, share))
    assert curve.energy_j(0) == pytest.approx((150 + 20 + above_w) * 10)


def test_changes_add_up_within_each_group_and_not_across() -> None:
    """Group 3 has one change only; what cancels out is 0 and not a rest of rounding."""
    steps = accumulate(
        np.array([7, 3, 7, 7, 9, 7]), np.array([2.0, 5.0, 1.0, 2.0, 0.0, 4.0]),
        np.array([0.1, 5.0, 0.3, 0.2, -1.0, -0.6]),
    )  # fmt: skip
    assert steps.group.tolist() == [3, 7, 7, 7, 9]
    assert steps.time_s.tolist() == [5.0, 1.0, 2.0, 4.0, 0.0]
    assert steps.value.tolist() == pytest.approx([5.0, 0.3, 0.6, 0.0, -1.0])
    assert steps.value[3] == 0.0
    nothing = accumulate(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    assert len(nothing.group) == len(nothing.held_s(3.0)) == 0
