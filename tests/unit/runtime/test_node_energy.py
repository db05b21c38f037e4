"""Windows of a node's joules: short while attempts run, long while none does, and their sums close."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from wattflow.energy.meters.port import Domain, NodeCounter, Reading
from wattflow.energy.meters.probe import MeterSources
from wattflow.energy.virtual import DEMO_CURVE, VirtualMeter
from wattflow.runtime.messages import TaskEnergy, Window
from wattflow.runtime.node_energy import NodeEnergy


def test_an_idle_node_has_few_windows_and_an_attempt_short_ones(tmp_path: Path) -> None:
    seconds = {"machine": 0.0}
    energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", machine=lambda: dict(seconds))
    windows: list[Window] = []
    told = []
    for tick in range(301):
        now_s = 1000.0 + 0.2 * tick
        used = {7: 0.2 * (tick - 150)} if 150 <= tick < 175 else {}
        seconds["machine"] += 0.2 if used else 0.0
        if tick == 175:
            energy.ended(7, 5.0)
        joules, window = energy.sample(now_s, used)
        told += joules
        windows += [window] if window is not None else []
    lengths = [round(window.ended_s - window.began_s, 1) for window in windows]
    assert len(windows) < 16 and lengths[0] == 1.0 and max(lengths) == pytest.approx(10.0)
    during = [window for window in windows if window.began_s > 1030.5 and window.ended_s < 1036.0]
    assert during and all(window.ended_s - window.began_s < 1.3 for window in during)
    assert [one.fence for one in told] == [7]
    for before, after in itertools.pairwise(windows):
        assert before.ended_s == after.began_s
    for window in windows:
        assert window.counted_j == pytest.approx(window.idle_j + window.tasks_j + window.unattributed_j)
    energy.close()


class Scripted:
    """A meter that reads what a test wrote."""

    name, remote = "scripted", False

    def __init__(self, domains: tuple[Domain, ...], readings: list[Reading]) -> None:
        self.domains, self._readings = domains, iter(readings)

    def read(self) -> Reading:
        return next(self._readings)

    def close(self) -> None: ...


def test_watts_without_a_counter_are_integrated_and_holes_bridged() -> None:
    wall = Domain("wall", "wall", counter=False)
    readings = [Reading(at_s, {}, {"wall": watts}) for at_s, watts in ((0, 10.0), (1, 20.0), (2, None), (4, 40.0))]
    counter = NodeCounter(Scripted((wall,), readings))
    assert counter.sampled and [counter.read_j(0.0) for _ in readings] == [0.0, 15.0, None, 105.0]


class Remote(Scripted):
    """One that answers when it is let."""

    remote = True

    def __init__(self, domains: tuple[Domain, ...], readings: list[Reading]) -> None:
        super().__init__(domains, readings)
        self.let, self.asked = threading.Semaphore(1), threading.Semaphore(0)

    def read(self) -> Reading:
        self.asked.release()
        assert self.let.acquire(timeout=60)
        return super().read()


def test_a_remote_meter_holds_nobody_up_and_each_reading_is_told_once() -> None:
    meter = Remote((Domain("p", "package"),), [Reading(0.0, {"p": joules}) for joules in (1.0, 2.0, 3.0)])
    counter = NodeCounter(meter)
    assert counter.read_j(0.0) == 1.0  # the first is waited for
    assert counter.read_j(0.5) is None  # not yet time for another
    assert counter.read_j(1.0) is None and meter.asked.acquire(timeout=60) and meter.asked.acquire(timeout=60)
    assert counter.read_j(1.2) is None  # asked, not answered
    meter.let.release()
    assert counter._asked is not None and counter._asked.result(timeout=60).joules == {"p": 2.0}
    assert counter.read_j(1.4) == 2.0
    assert counter.read_j(1.6) is None
    counter.close()


def powercap(folder: Path, label: str, energy_uj: int) -> Path:
    """A RAPL tree with one zone; gives the file of its counter."""
    zone = folder / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True, exist_ok=True)
    for name, text in (("name", label), ("energy_uj", str(energy_uj)), ("max_energy_range_uj", str(10**15))):
        (zone / name).write_text(f"{text}\n")
    return zone / "energy_uj"


def count(file: Path, energy_uj: int) -> None:
    file.write_text(f"{energy_uj + 1}\n")


def nowhere(folder: Path) -> MeterSources:
    closed = "http://127.0.0.1:9"
    return MeterSources(folder, closed, "localhost", closed)


def told_by(energy: NodeEnergy, count: Callable[[float], None], seconds: float = 3.0) -> list[TaskEnergy]:
    """Joules told while one attempt runs for a second and the counter is moved by ``count``."""
    told = []
    for tick in range(round(seconds / 0.2) + 1):
        count(0.2 * tick)
        if tick == 5:
            energy.ended(7, 1.0)
        joules, _ = energy.sample(1000.0 + 0.2 * tick, {7: 0.2 * tick} if tick < 5 else {})
        told += joules
    return told


@pytest.mark.parametrize("label", ["psys", "package-0"])
def test_a_machine_with_only_a_platform_domain_has_counted_joules(tmp_path: Path, label: str) -> None:
    file = powercap(tmp_path, label, 1)
    energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", nowhere(tmp_path), machine=lambda: {"machine": 0.0})
    assert (energy.meter, str(energy.provenance)) == ("powercap", "attributed")
    (told,) = told_by(energy, lambda at_s: count(file, int(at_s * 200e6)))
    assert told.fence == 7 and told.energy.energy_j > 0 and told.energy.provenance == "attributed"
    energy.close()


def test_a_sensor_of_watts_is_read_where_nothing_counts(tmp_path: Path) -> None:
    chip = tmp_path / "class" / "hwmon" / "hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("power_meter\n")
    (chip / "power1_average").write_text("200000000\n")
    energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", nowhere(tmp_path), machine=lambda: {"machine": 0.0})
    assert (energy.meter, str(energy.provenance)) == ("hwmon", "attributed")
    energy.close()


def test_joules_wait_for_a_counter_that_is_renewed_seldom(tmp_path: Path) -> None:
    file = powercap(tmp_path, "package-0", 1)
    energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", nowhere(tmp_path), machine=lambda: {"machine": 0.0})
    (told,) = told_by(energy, lambda at_s: count(file, int(at_s // 5 * 1000e6)), seconds=6.0)
    assert told.energy.energy_j > 0  # not the nought of a window in which the counter stood still
    energy.close()


def test_a_virtual_tree_stays_modelled_wherever_it_is_found(tmp_path: Path) -> None:
    tree = VirtualMeter(tmp_path / "node", DEMO_CURVE, lambda: {"machine": 0.0})
    found = NodeEnergy(DEMO_CURVE, tmp_path / "meter", nowhere(tree.powercap.parents[1]))
    assert (found.meter, str(found.provenance)) == ("virtual", "modelled")
    found.close()
