"""The CPU profiler on a pretend machine: order, confidence, resuming, refusal; its file; what it knows of a machine."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from wattflow.energy import machine_facts
from wattflow.energy.cpu_profile import CpuProfile, MeasuredStretch
from wattflow.energy.meters.port import Domain, NoReading, Reading
from wattflow.energy.profiler import Profiler, ProfilerSettings
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, Scope

CURVE = PowerProfile((0.0, 1.0, 2.0, 3.0, 4.0), (20.0, 45.0, 60.0, 70.0, 75.0))


class Node:
    """A machine of four threads whose watts are known, with a little noise; clock, meter and load in one."""

    name = "pretend"

    def __init__(self, noise: float = 0.0, kind: str = "package", counter: bool = True) -> None:
        self.now_s, self.joules, self.used_s, self.busy = 0.0, 0.0, 0.0, list[int]()
        self.noise, self.visits, self.reads = noise, list[int](), 0
        self.domains = (Domain("x", kind, counter),)
        self.broken_after: int | None = None

    def watts(self) -> float:
        wobble = self.noise * ((len(self.visits) * 7) % 5 - 2) / 2
        return CURVE.at(len(self.busy)) * (1 + wobble)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.joules += self.watts() * seconds
        self.used_s += len(self.busy) * seconds

    def read(self) -> Reading:
        self.reads += 1
        if self.broken_after is not None and self.reads > self.broken_after:
            return Reading(self.now_s, {"x": None}, {"x": None})
        return (
            Reading(self.now_s, {"x": self.joules}, {})
            if self.domains[0].counter
            else Reading(self.now_s, {}, {"x": self.watts()})
        )

    def close(self) -> None: ...

    def start(self, cpus: Sequence[int]) -> None:
        self.busy = list(cpus)
        self.visits.append(len(cpus))

    def stop(self) -> None:
        self.busy = []

    def cpu_s(self) -> float:
        return self.used_s

    def bench_s(self, cpu: int, operations: int) -> float:
        return operations / 1000 * (1 + 0.1 * len(self.busy))

    def time(self) -> machine_facts.MachineTime:
        return machine_facts.MachineTime(self.used_s + 0.05 * self.now_s, 0.01 * self.now_s)


def profiler(node: Node, path: Path, **settings: object) -> Profiler:
    topology = machine_facts.Topology((0, 2, 1, 3), cores=2, packages=1)
    chosen = ProfilerSettings(**settings)  # type: ignore[arg-type]
    return Profiler(node, node, topology, path, chosen, sleep=node.sleep, clock=lambda: node.now_s,
                    machine_time=node.time)  # fmt: skip


def test_every_level_is_measured_in_random_order_until_settled(tmp_path: Path) -> None:
    node = Node()
    profile = profiler(node, tmp_path / "p.json").run()
    assert [point.k for point in profile.points()] == [0, 1, 2, 3, 4]
    assert [point.watts for point in profile.points()] == pytest.approx(list(CURVE.watts))
    assert all(point.windows == 3 for point in profile.points())
    assert node.visits[:5] != sorted(node.visits[:5])
    assert sorted(node.visits[:5]) == [0, 1, 2, 3, 4]
    power = profile.power_profile()
    assert power.busy == pytest.approx((0.0, 1.0, 2.0, 3.0, 4.0))
    assert (power.scope, power.provenance) == (Scope.PACKAGE, Provenance.MEASURED)
    table = tomllib.loads(profile.toml())["power"]
    assert table["watts"] == pytest.approx(list(CURVE.watts))
    assert table["provenance"] == "measured"


def test_noise_takes_more_windows_and_gives_up_in_the_end(tmp_path: Path) -> None:
    quiet = profiler(Node(noise=0.02), tmp_path / "a.json").run()
    loud = profiler(Node(noise=0.5), tmp_path / "b.json", most_windows=6).run()
    assert any(point.windows > 3 for point in quiet.points())
    assert all(point.half_w <= 0.02 * point.watts for point in quiet.points())
    assert all(point.windows == 6 for point in loud.points())


def test_what_is_stolen_and_used_by_others_is_recorded(tmp_path: Path) -> None:
    profile = profiler(Node(), tmp_path / "p.json", levels=(0, 2)).run()
    window = profile.windows[2][0]
    assert window.load_cpu_s == pytest.approx(2 * window.seconds)
    assert window.other_cpu_s == pytest.approx(0.05 * window.seconds)
    assert window.steal_s == pytest.approx(0.01 * window.seconds)


def test_a_profile_broken_off_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    node = Node()
    node.broken_after = 70
    with pytest.raises(NoReading, match="run again to resume"):
        profiler(node, path).run()
    kept = sum(len(windows) for windows in CpuProfile.load(path).windows.values())
    assert kept == 3
    again = Node()
    profile = profiler(again, path).run()
    assert sum(point.windows for point in profile.points()) == 15
    assert len(again.visits) == 15 - kept


def test_another_machines_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    CpuProfile("elsewhere", "powercap", 4, 2, windows={0: [MeasuredStretch(1, 5, 0, 0, 0)]}).save(path)
    profile = profiler(Node(), path, levels=(0,)).run()
    assert [window.watts for window in profile.windows[0]] == pytest.approx([20.0] * 3)


def test_sampled_watts_at_the_wall_are_called_that(tmp_path: Path) -> None:
    profile = profiler(Node(kind="wall", counter=False), tmp_path / "p.json", levels=(0, 1)).run()
    assert profile.integrated
    assert profile.scope is Scope.WALL
    assert "sampled watts" in profile.power_profile().source


def test_a_virtual_profile_is_not_measured(tmp_path: Path) -> None:
    node = Node()
    node.name = "virtual"
    power = profiler(node, tmp_path / "p.json", levels=(0, 1)).run().power_profile()
    assert power.provenance is Provenance.MODELLED
    assert "virtual" in power.source


def test_interference_is_runtime_beside_a_rising_load(tmp_path: Path) -> None:
    node, path = Node(), tmp_path / "p.json"
    work = profiler(node, path, levels=(0,))
    profile = work.interference(work.run(), bench_s=2.0, repeats=2)
    times = {int(row["beside"]): row["runtime_s"] for row in profile.interference}
    assert times == {beside: pytest.approx(2.0 * (1 + 0.1 * beside)) for beside in range(4)}
    assert CpuProfile.load(path).interference == profile.interference


def test_a_profile_without_idle_is_not_a_profile(tmp_path: Path) -> None:
    profile = profiler(Node(), tmp_path / "p.json", levels=(1, 2)).run()
    with pytest.raises(InvalidInput, match="no idle point"):
        profile.power_profile()


def test_all_problems_of_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"version": 7, "node": "n"}')
    with pytest.raises(InvalidInput) as caught:
        CpuProfile.load(path)
    assert len(caught.value.problems) > 5
    path.write_text("not json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        CpuProfile.load(path)


def fake_cpus(folder: Path, cpus: dict[int, tuple[int, int]]) -> None:
    for cpu, (package, core) in cpus.items():
        place = folder / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{package}\n")
        (place / "core_id").write_text(f"{core}\n")


def test_cores_come_before_siblings_and_packages_in_turn(tmp_path: Path) -> None:
    cpus = {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1), 4: (0, 0), 5: (0, 1), 6: (1, 0), 7: (1, 1)}
    fake_cpus(tmp_path, cpus)
    found = machine_facts.topology(tmp_path, frozenset(cpus))
    assert found.order == (0, 2, 1, 3, 4, 6, 5, 7)
    assert (found.cores, found.packages, found.threads) == (4, 2, 8)


def test_conditions_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    about = machine_facts.conditions(tmp_path)
    assert about["governor"] is None
    assert about["turbo"] is None
    assert machine_facts.temperature_c(tmp_path) is None
    folder = tmp_path / "devices" / "system" / "cpu" / "intel_pstate"
    folder.mkdir(parents=True)
    (folder / "no_turbo").write_text("1\n")
    zone = tmp_path / "class" / "thermal" / "thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "temp").write_text("45500\n")
    assert machine_facts.conditions(tmp_path)["turbo"] is False
    assert machine_facts.temperature_c(tmp_path) == 45.5


def test_this_machine_has_cpus_and_time() -> None:
    assert machine_facts.topology().threads >= 1
    assert machine_facts.machine_time().busy_s > 0
