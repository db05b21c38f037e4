"""hwmon: energy counters where a driver has them (amd_energy), else momentary watts (ACPI power meters, GPUs).

Only drivers whose scope is known are read; a rail of an unknown sensor chip is not taken for the node.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s

DEFAULT_ROOT = Path("/sys/class/hwmon")
_DRIVERS = {
    "amd_energy": "package",
    "power_meter": "wall",
    "amdgpu": "gpu",
    "nouveau": "gpu",
    "xe": "gpu",
    "i915": "gpu",
}


@dataclass(frozen=True, slots=True)
class _Sensor:
    domain: Domain
    file: int

    def read(self) -> float | None:
        """Read joules or watts: both files count in millionths."""
        try:
            return int(os.pread(self.file, 64, 0)) * 1e-6
        except (OSError, ValueError):
            return None


class HwmonMeter:
    """Sensors under ``root`` (``/sys/class/hwmon``)."""

    name = "hwmon"

    def __init__(self, root: Path | str = DEFAULT_ROOT) -> None:
        chips = sorted(Path(root).glob("hwmon*")) if Path(root).is_dir() else []
        self._sensors = [sensor for chip in chips for sensor in _sensors(chip)]
        if not self._sensors:
            found = ", ".join(_text(chip / "name") or chip.name for chip in chips) or "nothing"
            raise NoReading(f"{root} has no sensor of {', '.join(_DRIVERS)}; it has {found}")
        self.domains = tuple(sensor.domain for sensor in self._sensors)

    def read(self) -> Reading:
        time_s = now_s()
        values = {sensor.domain: sensor.read() for sensor in self._sensors}
        joules = {domain.name: value for domain, value in values.items() if domain.counter}
        watts = {domain.name: value for domain, value in values.items() if not domain.counter}
        return Reading(time_s, joules, watts)

    def close(self) -> None:
        for sensor in self._sensors:
            os.close(sensor.file)
        self._sensors = []


def _sensors(chip: Path) -> list[_Sensor]:
    driver = _text(chip / "name") or ""
    if driver not in _DRIVERS:
        return []
    counters = sorted(chip.glob("energy*_input"))
    # An average over the driver's own interval before a momentary value.
    files = counters or sorted(chip.glob("power*_average")) or sorted(chip.glob("power*_input"))
    sensors = []
    for file in files:
        label = _text(file.with_name(file.name.split("_")[0] + "_label")) or file.name.split("_")[0]
        # amd_energy shows cores beside sockets; cores are inside a package and must not be added to it.
        kind = "core" if driver == "amd_energy" and label.startswith("Ecore") else _DRIVERS[driver]
        domain = Domain(f"{chip.name}/{driver}/{label}", kind, counter=bool(counters))
        try:
            sensors.append(_Sensor(domain, os.open(file, os.O_RDONLY)))
        except OSError:
            continue
    return sensors


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
