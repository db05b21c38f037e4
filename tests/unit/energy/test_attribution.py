"""Attribution by hand-worked examples; CPU time readers; functions' activity through a concave curve."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.energy import activity
from wattflow.energy.attribution import Attributor, DeviceUse, Sample, kepler_split
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile, PowerProfile

CURVE = PowerProfile((0.0, 1.0, 2.0), (20.0, 60.0, 80.0))


def test_two_busy_threads_share_the_watts_above_idle_equally() -> None:
    attributor = Attributor(CURVE)
    attributor.add(Sample(0.0, 100.0, {"a": 0.0, "b": 0.0}))
    attributor.add(Sample(10.0, 900.0, {"a": 10.0, "b": 10.0}))
    result = attributor.result()
    assert result.idle_j == pytest.approx(200.0)
    assert result.tasks["a"].attributed_j == pytest.approx(300.0)
    # Without it the node would have drawn 60 W instead of 80 W.
    assert result.tasks["a"].marginal_j == pytest.approx(200.0)
    assert result.unattributed_j == pytest.approx(0.0)


def test_a_window_is_laid_over_its_samples_as_the_curve_says() -> None:
    attributor = Attributor(CURVE, window_s=2.0)
    attributor.add(Sample(0.0, 0.0, {"a": 0.0, "b": 0.0}))
    attributor.add(Sample(1.0, 0.0, {"a": 1.0, "b": 0.0}))  # the counter lags
    attributor.add(Sample(2.0, 140.0, {"a": 2.0, "b": 1.0}))
    tasks = attributor.result().tasks
    # 100 J above idle: 40 in the first second (a alone), 60 in the second, shared.
    assert (tasks["a"].attributed_j, tasks["b"].attributed_j) == (pytest.approx(70.0), pytest.approx(30.0))


def test_what_no_task_used_is_unattributed() -> None:
    attributor = Attributor(CURVE)
    attributor.add(Sample(0.0, 0.0, {"a": 0.0}, other_cpu_s=0.0))
    attributor.add(Sample(1.0, 80.0, {"a": 1.0}, other_cpu_s=1.0))
    attributor.add(Sample(2.0, 130.0, {"a": 1.0}, other_cpu_s=1.0))
    result = attributor.result()
    assert result.tasks["a"].attributed_j == pytest.approx(30.0)
    assert result.unattributed_j == pytest.approx(30.0 + 30.0)
    assert result.accounted_j == pytest.approx(130.0)


def test_a_hole_in_the_counter_is_bridged_and_a_missing_end_is_said() -> None:
    attributor = Attributor(CURVE, window_s=0.5)
    attributor.add(Sample(0.0, 0.0, {"a": 0.0}))
    attributor.add(Sample(1.0, None, {"a": 1.0}))
    attributor.add(Sample(2.0, 120.0, {"a": 2.0}))
    attributor.add(Sample(3.0, None, {"a": 3.0}))
    result = attributor.result()
    assert result.tasks["a"].attributed_j == pytest.approx(80.0)
    assert result.unread_s == pytest.approx(1.0)
    assert result.tasks["a"].cpu_s == pytest.approx(3.0)


def test_a_gpu_is_charged_by_share_and_active_time() -> None:
    gpu = DeviceProfile((0.0, 0.5, 1.0), (60.0, 460.0, 660.0))
    attributor = Attributor(CURVE, {"gpu": gpu})
    idle = {"a": DeviceUse(0.5, 0.0), "b": DeviceUse(0.5, 0.0)}
    busy = {"a": DeviceUse(0.5, 2.0), "b": DeviceUse(0.5, 1.0)}
    attributor.add(Sample(0.0, 0.0, {}, device_j={"gpu": 0.0}, task_device={"gpu": idle}))
    attributor.add(Sample(2.0, 40.0, {}, device_j={"gpu": 1120.0}, task_device={"gpu": busy}))
    tasks = attributor.result().tasks
    assert tasks["a"].device_j == pytest.approx(1000.0 * 2 / 3)
    assert tasks["b"].device_j == pytest.approx(1000.0 / 3)
    assert attributor.result().idle_j == pytest.approx(40.0 + 120.0)
    assert tasks["a"].device_marginal_j < tasks["a"].device_j


def test_keplers_split_under_charges_on_a_concave_curve() -> None:
    # One thread of 16 busy: the node draws 60 W, 40 above idle; Kepler calls 1/16 of the 60 W active.
    charged = kepler_split(16, 1.0, 60.0, {"a": 1.0})
    assert charged["a"] == pytest.approx(60.0 / 16)
    assert charged["a"] < 40.0 / 10


def test_concurrency_is_the_exact_overlap_with_each_second() -> None:
    calls = [("f", 10.25, 12.5), ("g", 9.0, 11.0), ("f", 12.0, 99.0)]
    found = activity.concurrency(("f", "g"), calls, 10, 4)
    assert found[:, 0] == pytest.approx([0.75, 1.0, 1.5, 1.0])
    assert found[:, 1] == pytest.approx([1.0, 0.0, 0.0, 0.0])


def made_run(seed: int, seconds: int = 400) -> tuple[np.ndarray, np.ndarray, activity.ActivityModel]:
    true = activity.ActivityModel(("f", "g"), (1.4, 0.7), 50.0, 60.0, 1.5, 4.0, 1.2, 0.3)
    generator = np.random.default_rng(seed)
    busy = np.maximum(0.0, np.cumsum(generator.normal(0, 0.5, (seconds, 2)), axis=0))
    busy[:40] = 0.0
    return busy, true.watts(busy) + generator.normal(0, 1.0, seconds), true


def test_the_fit_finds_a_known_node_through_its_meter() -> None:
    busy, watts, true = made_run(3)
    watts[100:110] = 0.0  # the meter dropped out
    model = activity.fit(("f", "g"), busy, watts)
    other, other_watts, _ = made_run(4)
    assert np.mean(np.abs(model.watts(other) - other_watts) / other_watts) < 0.02
    assert model.delay_s == pytest.approx(1.2, abs=0.4)
    assert model.weight[0] / model.weight[1] == pytest.approx(2.0, rel=0.15)
    assert model.idle_w == pytest.approx(50.0, rel=0.03)
    parts = model.attributed_j(busy, true.watts(busy))
    assert sum(parts.values()) == pytest.approx(float(true.watts(busy).sum()), rel=1e-9)
    assert model.marginal_j(busy, "f") == pytest.approx(true.marginal_j(busy, "f"), rel=0.05)
    profile = model.profile(8)
    assert profile.at(8.0) == pytest.approx(float(true.curve_w(np.array([8.0]))[0]), rel=0.06)


def test_a_run_too_short_to_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 30 s"):
        activity.fit(("f",), np.ones((10, 1)), np.ones(10))
