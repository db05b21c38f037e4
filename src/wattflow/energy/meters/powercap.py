"""RAPL through the kernel's powercap tree: every zone, with its own wrap.

A zone's ``energy_uj`` wraps to 0 after ``max_energy_range_uj`` (262 kJ on many Xeons, an hour at load), so each zone is
unwrapped on its own. More than one wrap between two reads cannot be seen; read at least once a minute.
Files stay open, one `pread` each: about 2 µs a zone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s
from wattflow.energy.virtual import is_virtual

DEFAULT_ROOT = Path("/sys/class/powercap")
_KINDS = {"core": "core", "uncore": "uncore", "dram": "dram", "psys": "psys"}


@dataclass(slots=True)
class _Zone:
    domain: Domain
    file: int
    range_uj: int
    last_uj: int | None = None
    wrapped_uj: int = 0

    def read_j(self) -> float | None:
        try:
            # `pread` at 0: sysfs makes the number anew for each read from the start.
            value_uj = int(os.pread(self.file, 64, 0))
        except (OSError, ValueError):
            return None
        # It fell, so it wrapped; more than once between two reads cannot be told (module docstring).
        if self.last_uj is not None and value_uj < self.last_uj:
            self.wrapped_uj += self.range_uj
        self.last_uj = value_uj
        # Whole microjoules until the end, so that a long run loses no digits.
        return (self.wrapped_uj + value_uj) * 1e-6


class PowercapMeter:
    """All zones under ``root`` (``/sys/class/powercap``, or a tree that looks like it).

    Its name is ``virtual`` where a virtual meter wrote the tree: nothing made from that passes for measured.
    """

    def __init__(self, root: Path | str = DEFAULT_ROOT) -> None:
        self.root = Path(root)
        self.name = "virtual" if is_virtual(self.root) else "powercap"
        self._zones = _open_zones(self.root)
        self.domains = tuple(zone.domain for zone in self._zones)

    def read(self) -> Reading:
        time_s = now_s()
        return Reading(time_s, {zone.domain.name: zone.read_j() for zone in self._zones})

    def close(self) -> None:
        for zone in self._zones:
            os.close(zone.file)
        self._zones = []


def _open_zones(root: Path) -> list[_Zone]:
    if not root.is_dir():
        raise NoReading(
            f"{root} does not exist: no RAPL driver here (a virtual machine hides it; else modprobe intel_rapl_msr)"
        )
    # Only zones: the control types beside them ("intel-rapl") have no counter and no colon.
    folders = sorted(path for path in root.glob("*:*") if (path / "energy_uj").exists())
    zones: list[_Zone] = []
    refused: list[str] = []
    seen: dict[str, str] = {}
    for folder in folders:
        domain = _domain(folder, root)
        # intel-rapl-mmio shows the same package a second time: the first driver in the alphabet stands.
        if domain is None or seen.setdefault(domain.name, folder.name) != folder.name:
            continue
        try:
            range_uj = _range_uj(folder)
            zones.append(_Zone(domain, os.open(folder / "energy_uj", os.O_RDONLY), range_uj))
        except OSError as error:
            refused.append(f"{folder.name}/energy_uj: {error.strerror}")
    if not zones and refused:
        raise NoReading(f"{'; '.join(refused)} (since 2020 root only: run as root, or chmod a+r the files)")
    if not zones:
        raise NoReading(f"{root} holds no zone with an energy_uj file")
    return zones


def _range_uj(folder: Path) -> int:
    try:
        return int((folder / "max_energy_range_uj").read_text())
    except ValueError as error:
        raise OSError(0, "max_energy_range_uj is not a number") from error


def _domain(folder: Path, root: Path) -> Domain | None:
    try:
        label = (folder / "name").read_text().strip()
    except OSError:
        return None
    parts = folder.name.split(":")
    if len(parts) == 2:
        return Domain(label, "psys" if label.startswith("psys") else "package")
    parent = root / ":".join(parts[:2]) / "name"
    # A zone below a package carries its package's name, since "core" stands in each of them.
    package = parent.read_text().strip() if parent.exists() else parts[1]
    return Domain(f"{package}/{label}", _KINDS.get(label, "uncore"))
