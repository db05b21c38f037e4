"""Read what a profile must know of this machine: cores, governor, turbo, temperature, and the time others took."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Topology:
    """CPUs in the order in which a profile loads them: one thread of every core, packages in turn; then siblings."""

    order: tuple[int, ...]
    cores: int
    packages: int

    @property
    def threads(self) -> int:
        return len(self.order)


def topology(sysfs: Path = Path("/sys"), usable: frozenset[int] | None = None) -> Topology:
    """Read the CPUs that this process may use (``usable`` in their stead)."""
    # Not all CPUs of the machine: a container may have some only.
    allowed = usable if usable is not None else frozenset(os.sched_getaffinity(0))
    seen: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(allowed):
        folder = sysfs / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        package, core = _number(folder / "physical_package_id"), _number(folder / "core_id")
        # Virtual machines may not tell: each CPU is then a core of its own.
        key = (package if package is not None else 0, core if core is not None else cpu)
        seen.setdefault(key, []).append(cpu)
    # Rank of a thread in its core, then of the core in its package, then the package: cores first, packages in turn.
    rank_of_core: dict[tuple[int, int], int] = {}
    for package in {key[0] for key in seen}:
        for rank, key in enumerate(sorted(key for key in seen if key[0] == package)):
            rank_of_core[key] = rank
    places = [(thread, rank_of_core[key], key[0], cpu) for key, cpus in seen.items() for thread, cpu in enumerate(cpus)]
    return Topology(tuple(place[3] for place in sorted(places)), len(seen), len({key[0] for key in seen}))


def conditions(sysfs: Path = Path("/sys")) -> Mapping[str, object]:
    """Return CPU model, governor, driver, turbo; what cannot be read is None."""
    frequency = sysfs / "devices" / "system" / "cpu" / "cpu0" / "cpufreq"
    no_turbo = _number(sysfs / "devices" / "system" / "cpu" / "intel_pstate" / "no_turbo")
    boost = _number(sysfs / "devices" / "system" / "cpu" / "cpufreq" / "boost")
    # AMD and acpi-cpufreq say `boost`, Intel's driver says the opposite; neither is unknown, not off.
    turbo = bool(boost) if boost is not None else None if no_turbo is None else not no_turbo
    return {
        "cpu": cpu_model(),
        "governor": _text(frequency / "scaling_governor"),
        "driver": _text(frequency / "scaling_driver"),
        "turbo": turbo,
        "kernel": platform.release(),
        "machine": platform.machine(),
    }


def temperature_c(sysfs: Path = Path("/sys")) -> float | None:
    """Return the hottest sensor of the CPU packages, or of any thermal zone; None where there is none."""
    sensors = [
        file
        for chip in sorted((sysfs / "class" / "hwmon").glob("hwmon*"))
        if _text(chip / "name") in ("coretemp", "k10temp", "zenpower", "cpu_thermal")
        for file in chip.glob("temp*_input")
    ]
    # Thermal zones may be of the battery or the wireless card: only where no sensor of the CPU is
    # known.
    sensors = sensors or sorted((sysfs / "class" / "thermal").glob("thermal_zone*/temp"))
    values = [value for file in sensors if (value := _number(file)) is not None]
    return max(values) / 1000 if values else None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the name of the CPU as the kernel prints it."""
    text = _text(cpuinfo) or ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return None


@dataclass(frozen=True, slots=True)
class MachineTime:
    """CPU seconds of the whole machine so far: busy, and stolen by the hypervisor."""

    busy_s: float
    steal_s: float


def machine_time(stat: Path = Path("/proc/stat")) -> MachineTime:
    """Read the first line of ``/proc/stat``."""
    with stat.open("rb") as file:
        ticks = [int(value) for value in file.readline().split()[1:]]
    # idle and iowait are left out: nobody was computing.
    user, nice, system, _, _, irq, softirq, steal = ticks[:8]
    return MachineTime((user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None
