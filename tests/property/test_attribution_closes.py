"""Whatever the curve, the load and the counter do: every joule is in exactly one account."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.energy.attribution import Attributor, DeviceUse, MeterSample
from wattflow.model.profile import DeviceProfile, PowerProfile

watts = st.floats(0.0, 1000.0)


@st.composite
def curves(draw: st.DrawFn) -> PowerProfile:
    threads = draw(st.integers(1, 8))
    return PowerProfile(tuple(float(k) for k in range(threads + 1)), tuple(draw(watts) for _ in range(threads + 1)))


@st.composite
def concave_curves(draw: st.DrawFn) -> PowerProfile:
    rises = sorted(draw(st.lists(st.floats(0.1, 100.0), min_size=2, max_size=8)), reverse=True)
    points = [draw(st.floats(1.0, 200.0))]
    for rise in rises:
        points.append(points[-1] + rise)
    return PowerProfile(tuple(float(k) for k in range(len(points))), tuple(points))


@st.composite
def histories(draw: st.DrawFn) -> list[MeterSample]:
    """A run of samples: counters that rise or cannot be read, tasks that come, work, stop, and use a GPU."""
    tasks = [f"t{i}" for i in range(draw(st.integers(0, 4)))]
    time_s, node_j, gpu_j, other_s = 0.0, draw(st.floats(0, 1e6)), 0.0, 0.0
    cpu, active = dict.fromkeys(tasks, 0.0), dict.fromkeys(tasks, 0.0)
    samples = []
    for _ in range(draw(st.integers(2, 12))):
        shown = draw(st.booleans()) or draw(st.booleans())
        known = {name: cpu[name] for name in tasks if cpu[name] > 0 or draw(st.booleans())}
        uses = {name: DeviceUse(0.3, active[name]) for name in known}
        samples.append(MeterSample(time_s, node_j if shown else None, known, other_s, {"gpu": gpu_j}, {"gpu": uses}))
        step_s = draw(st.floats(0.01, 2.0))
        time_s += step_s
        node_j += draw(st.floats(0.0, 2000.0))
        gpu_j += draw(st.floats(0.0, 700.0))
        other_s += draw(st.floats(0.0, 1.0)) * step_s
        for name in tasks:
            cpu[name] += draw(st.floats(0.0, 3.0)) * step_s
            active[name] += draw(st.floats(0.0, 1.0)) * step_s
    # The ends can be read, so everything between them must be in an account.
    first, last = samples[0], samples[-1]
    samples[0] = MeterSample(0.0, first.node_j or 0.0, first.task_cpu_s, 0.0, first.device_j, first.task_device)
    end_j = max(node_j, first.node_j or 0.0)
    samples[-1] = MeterSample(last.time_s, end_j, last.task_cpu_s, last.other_cpu_s, last.device_j, last.task_device)
    return samples


def run(curve: PowerProfile, samples: list[MeterSample], window_s: float) -> Attributor:
    gpu = DeviceProfile((0.0, 0.5, 1.0), (60.0, 400.0, 600.0))
    attributor = Attributor(curve, {"gpu": gpu}, window_s)
    for sample in samples:
        attributor.add(sample)
    return attributor


@given(curves(), histories(), st.floats(0.01, 5.0))
@settings(max_examples=150, deadline=None)
def test_idle_tasks_and_unattributed_sum_to_the_counters(
    curve: PowerProfile, samples: list[MeterSample], window_s: float
) -> None:
    result = run(curve, samples, window_s).result()
    counted_j = samples[-1].node_j - samples[0].node_j  # type: ignore[operator]
    counted_j += samples[-1].device_j["gpu"] - samples[0].device_j["gpu"]  # type: ignore[operator]
    assert result.unread_s == 0
    assert result.counted_j == pytest.approx(counted_j, rel=1e-9, abs=1e-6)
    assert result.accounted_j == pytest.approx(counted_j, rel=1e-3, abs=1e-6)
    assert result.idle_j >= 0
    assert result.unattributed_j >= -1e-9
    assert all(task.attributed_j >= -1e-9 and task.device_j >= -1e-9 for task in result.tasks.values())


@given(concave_curves(), histories())
@settings(max_examples=100, deadline=None)
def test_on_a_concave_curve_a_tasks_marginal_is_at_most_its_share(
    curve: PowerProfile, samples: list[MeterSample]
) -> None:
    result = run(curve, samples, 1.0).result()
    for task in result.tasks.values():
        assert task.marginal_j <= task.attributed_j * (1 + 1e-9) + 1e-6
        assert task.device_marginal_j <= task.device_j * (1 + 1e-9) + 1e-6
