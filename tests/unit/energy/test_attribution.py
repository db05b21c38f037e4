"""Attribution by hand-worked examples; CPU time readers."""

from __future__ import annotations

import pytest

from wattflow.energy.attribution import Attributor, DeviceUse, MeterSample
from wattflow.model.profile import DeviceProfile, PowerProfile

CURVE = PowerProfile((0.0, 1.0, 2.0), (20.0, 60.0, 80.0))


def test_two_busy_threads_share_the_watts_above_idle_equally() -> None:
    attributor = Attributor(CURVE)
    attributor.add(MeterSample(0.0, 100.0, {"a": 0.0, "b": 0.0}))
    attributor.add(MeterSample(10.0, 900.0, {"a": 10.0, "b": 10.0}))
    result = attributor.result()
    assert result.idle_j == pytest.approx(200.0)
    assert result.tasks["a"].attributed_j == pytest.approx(300.0)
    # Without it the node would have drawn 60 W instead of 80 W.
    assert result.tasks["a"].marginal_j == pytest.approx(200.0)
    assert result.unattributed_j == pytest.approx(0.0)


def test_a_window_is_laid_over_its_samples_as_the_curve_says() -> None:
    attributor = Attributor(CURVE, window_s=2.0)
    attributor.add(MeterSample(0.0, 0.0, {"a": 0.0, "b": 0.0}))
    attributor.add(MeterSample(1.0, 0.0, {"a": 1.0, "b": 0.0}))  # the counter lags
    attributor.add(MeterSample(2.0, 140.0, {"a": 2.0, "b": 1.0}))
    tasks = attributor.result().tasks
    # 100 J above idle: 40 in the first second (a alone), 60 in the second, shared.
    assert (tasks["a"].attributed_j, tasks["b"].attributed_j) == (pytest.approx(70.0), pytest.approx(30.0))


def test_what_no_task_used_is_unattributed() -> None:
    attributor = Attributor(CURVE)
    attributor.add(MeterSample(0.0, 0.0, {"a": 0.0}, other_cpu_s=0.0))
    attributor.add(MeterSample(1.0, 80.0, {"a": 1.0}, other_cpu_s=1.0))
    attributor.add(MeterSample(2.0, 130.0, {"a": 1.0}, other_cpu_s=1.0))
    result = attributor.result()
    assert result.tasks["a"].attributed_j == pytest.approx(30.0)
    assert result.unattributed_j == pytest.approx(30.0 + 30.0)
    assert result.accounted_j == pytest.approx(130.0)


def test_a_hole_in_the_counter_is_bridged_and_a_missing_end_is_said() -> None:
    attributor = Attributor(CURVE, window_s=0.5)
    attributor.add(MeterSample(0.0, 0.0, {"a": 0.0}))
    attributor.add(MeterSample(1.0, None, {"a": 1.0}))
    attributor.add(MeterSample(2.0, 120.0, {"a": 2.0}))
    attributor.add(MeterSample(3.0, None, {"a": 3.0}))
    result = attributor.result()
    assert result.tasks["a"].attributed_j == pytest.approx(80.0)
    assert result.unread_s == pytest.approx(1.0)
    assert result.tasks["a"].cpu_s == pytest.approx(3.0)


def test_a_gpu_is_charged_by_share_and_active_time() -> None:
    gpu = DeviceProfile((0.0, 0.5, 1.0), (60.0, 460.0, 660.0))
    attributor = Attributor(CURVE, {"gpu": gpu})
    idle = {"a": DeviceUse(0.5, 0.0), "b": DeviceUse(0.5, 0.0)}
    busy = {"a": DeviceUse(0.5, 2.0), "b": DeviceUse(0.5, 1.0)}
    attributor.add(MeterSample(0.0, 0.0, {}, device_j={"gpu": 0.0}, task_device={"gpu": idle}))
    attributor.add(MeterSample(2.0, 40.0, {}, device_j={"gpu": 1120.0}, task_device={"gpu": busy}))
    tasks = attributor.result().tasks
    assert tasks["a"].device_j == pytest.approx(1000.0 * 2 / 3)
    assert tasks["b"].device_j == pytest.approx(1000.0 / 3)
    assert attributor.result().idle_j == pytest.approx(40.0 + 120.0)
    assert tasks["a"].device_marginal_j < tasks["a"].device_j
