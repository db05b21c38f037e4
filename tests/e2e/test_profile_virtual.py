"""The whole profiling chain for real: stress-ng on real cores, the virtual meter's tree, the powercap reader, P(k)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wattflow.energy import machine_facts, virtual
from wattflow.energy.cpu_profile import StressNg
from wattflow.energy.meters.powercap import PowercapMeter
from wattflow.energy.profiler import Profiler, ProfilerSettings
from wattflow.model.profile import PowerProfile, Provenance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("stress-ng") is None, reason="needs stress-ng (`make tools`)"),
]


def test_the_profiler_finds_the_curve_behind_the_virtual_meter(tmp_path: Path) -> None:
    curve = PowerProfile((0.0, 1.0, 2.0), (20.0, 60.0, 80.0))
    topology = machine_facts.topology()
    load = StressNg()
    source = virtual.VirtualMeter(tmp_path, curve, lambda: {"load": load.cpu_s()})
    with source:
        meter = PowercapMeter(source.powercap)
        settings = ProfilerSettings(warm_s=0.3, window_s=1.0, sample_s=0.2, most_windows=3, levels=(0, 1))
        profile = Profiler(meter, load, topology, tmp_path / "profile.json", settings).run()
        meter.close()
    idle, one = profile.points()
    assert profile.meter == "virtual"
    assert idle.watts == pytest.approx(20.0, rel=0.02)
    # However much of the core others left to it: the watts must be the curve's at the CPU time it really had.
    for window in profile.windows[1]:
        assert window.watts == pytest.approx(curve.at(window.load_cpu_s / window.seconds), rel=0.1)
    assert one.watts > idle.watts
    assert profile.power_profile().provenance is Provenance.MODELLED


def test_a_benchmark_of_fixed_work_takes_longer_with_more_of_it() -> None:
    load = StressNg()
    cpu = machine_facts.topology().order[0]
    assert load.bench_s(cpu, 2000) > load.bench_s(cpu, 10)
