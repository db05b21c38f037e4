"""The powercap meter: every zone, its wrap, its refusals; and the virtual meter that writes such a tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattflow.energy import virtual
from wattflow.energy.meters.port import Domain, NoReading, Reading, Tally, difference, node_j
from wattflow.energy.meters.powercap import PowercapMeter
from wattflow.model.profile import PowerProfile

CURVE = PowerProfile((0.0, 1.0, 2.0), (20.0, 50.0, 65.0))


def write_zone(root: Path, folder: str, name: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
    zone = root / folder
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (zone / "energy_uj").write_text(f"{energy_uj}\n")
    return zone / "energy_uj"


def test_all_zones_are_read_and_nothing_counts_twice(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000, 10**9)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 3_000_000, 10**9)
    write_zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000, 10**9)
    write_zone(tmp_path, "intel-rapl:1", "package-1", 7_000_000, 10**9)
    write_zone(tmp_path, "intel-rapl:2", "psys", 99_000_000, 10**9)
    write_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000, 10**9)
    meter = PowercapMeter(tmp_path)
    reading = meter.read()
    assert {domain.name: domain.kind for domain in meter.domains} == {
        "package-0": "package",
        "package-0/core": "core",
        "package-0/dram": "dram",
        "package-1": "package",
        "psys": "psys",
    }
    assert node_j(reading.joules, meter.domains) == pytest.approx(13.0)
    assert node_j(reading.joules, meter.domains, dram=False) == pytest.approx(12.0)
    meter.close()


def test_a_counter_that_wraps_goes_on_rising(tmp_path: Path) -> None:
    energy = write_zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    meter = PowercapMeter(tmp_path)
    before = meter.read()
    for value in (950_000, 100_000, 600_000, 50_000):
        energy.write_text(f"{value}\n")
        after = meter.read()
    assert difference(before, after).joules["package-0"] == pytest.approx(2.05 - 0.9)
    meter.close()


def test_a_zone_that_vanishes_is_none_not_zero(tmp_path: Path) -> None:
    energy = write_zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    meter = PowercapMeter(tmp_path)
    before = meter.read()
    energy.write_text("")
    after = meter.read()
    assert after.joules == {"package-0": None}
    assert difference(before, after).joules["package-0"] is None
    assert node_j(after.joules, meter.domains) is None
    meter.close()


@pytest.mark.parametrize("make", [False, True])
def test_a_machine_without_zones_says_why(tmp_path: Path, make: bool) -> None:
    root = tmp_path / "powercap"
    if make:
        (root / "intel-rapl").mkdir(parents=True)
    with pytest.raises(NoReading, match="no zone" if make else "does not exist"):
        PowercapMeter(root)


class Sampled:
    """A meter with watts only, as many power supplies are."""

    name = "sampled"
    domains = (Domain("wall", "wall", counter=False),)

    def __init__(self, samples: list[tuple[float, float | None]]) -> None:
        self.samples = iter(samples)

    def read(self) -> Reading:
        time_s, watts = next(self.samples)
        return Reading(time_s, {}, {"wall": watts})

    def close(self) -> None:
        pass


def test_sampled_watts_are_integrated_and_say_so() -> None:
    tally = Tally(Sampled([(0.0, 10.0), (1.0, 20.0), (3.0, 20.0)]))
    tally.update()
    tally.update()
    energy = tally.energy()
    assert energy.joules == {"wall": pytest.approx(55.0)}
    assert energy.integrated == {"wall"}
    assert energy.watts("wall") == pytest.approx(55.0 / 3)


def test_a_hole_in_sampled_watts_is_unknown() -> None:
    tally = Tally(Sampled([(0.0, 10.0), (1.0, None), (3.0, 20.0)]))
    tally.update()
    tally.update()
    assert tally.energy().joules == {"wall": None}


def test_a_counter_bridges_a_hole_but_not_its_own_end(tmp_path: Path) -> None:
    energy = write_zone(tmp_path, "intel-rapl:0", "package-0", 100_000)
    meter = PowercapMeter(tmp_path)
    tally = Tally(meter)
    for text, expected_j in (("", None), ("400000", 0.3), ("", None)):
        energy.write_text(text)
        tally.update()
        assert tally.energy().joules["package-0"] == (None if expected_j is None else pytest.approx(expected_j))
    meter.close()


def test_the_virtual_meter_draws_the_curve_of_the_cpu_time_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, used = [100.0], {"a": 0.0, "b": 0.0}
    monkeypatch.setattr("wattflow.energy.virtual.time.monotonic", lambda: clock[0])
    meter = virtual.VirtualMeter(tmp_path, CURVE, lambda: used, range_uj=30_000_000)
    reader = PowercapMeter(meter.powercap)
    before = reader.read()
    for a, b, expected in ((0.5, 0.0, 35.0), (1.0, 1.0, 65.0), (0.0, 0.0, 20.0)):
        clock[0] += 1.0
        used = {"a": used["a"] + a, "b": used["b"] + b}
        assert meter.step() == pytest.approx(expected)
    after = reader.read()
    assert meter.truth.total_j == pytest.approx(120.0)
    assert meter.truth.by_process_j == {"a": pytest.approx(15 + 22.5), "b": pytest.approx(22.5)}
    assert (after.joules["package-0"] or 0) - (before.joules["package-0"] or 0) == pytest.approx(120.0 % 30.0)
    assert virtual.is_virtual(meter.powercap)
    meter.stop()
    reader.close()


def test_the_virtual_meter_follows_a_real_process(tmp_path: Path) -> None:
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\ninput()"
    process = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE)
    try:
        meter = virtual.VirtualMeter(tmp_path, CURVE, lambda: {"burn": virtual.process_cpu_s(process.pid) or 0.0})
        reader = PowercapMeter(meter.powercap)
        before = reader.read()
        while (virtual.process_cpu_s(process.pid) or 0.0) < 0.4:
            meter.step()
            os.sched_yield()
        truth = meter.stop()
        measured_j = difference(before, reader.read()).joules["package-0"]
        reader.close()
    finally:
        process.communicate(b"\n")
    assert measured_j == pytest.approx(truth.total_j, abs=2e-6)
    assert truth.by_process_cpu_s["burn"] == pytest.approx(virtual_seconds(truth), rel=1e-9)
    assert truth.by_process_j["burn"] == pytest.approx(truth.total_j - truth.idle_j, rel=1e-9)
    assert 0.35 < truth.by_process_cpu_s["burn"] < 0.7


def virtual_seconds(truth: virtual.Truth) -> float:
    return sum(truth.by_process_cpu_s.values())


def test_the_whole_machine_is_a_source() -> None:
    read = virtual.of_machine()
    first = read()["machine"]
    assert first > 0
    assert read()["machine"] >= first
