"""Knobs that are files of the kernel: `powercap` constraints, `cpufreq` ceilings, `amdgpu` power caps.

Tested on played trees only: no machine here lets them be set. All three have one shape, a file with a number in some
unit beside files with its range, so one class sets them all.

- powercap: ``class/powercap/intel-rapl:N/constraint_K_power_limit_uw``; the long-term constraint of each package.
- cpufreq: ``devices/system/cpu/cpufreq/policyN/scaling_max_freq`` (kHz).
- amdgpu: ``class/hwmon/hwmonN/power1_cap`` (µW) of a hwmon folder with the name amdgpu.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattflow.levels.port import Kind, Knob

_SCALE: dict[str, float] = {"clock_mhz": 1e-3, "cap_w": 1e-6}
"""From the file's unit (kHz, µW) to the knob's."""


@dataclass(frozen=True, slots=True)
class _File:
    """A knob and its file; ``default`` is written where nothing better is known."""

    knob: Knob
    path: Path
    default: float


class FileActuator:
    """Sets numbers in files under one root (``/sys``, or a tree that looks like it)."""

    def __init__(self, name: str, files: Sequence[_File]) -> None:
        self.name = name
        self._files = {file.knob.id: file for file in files}

    def knobs(self) -> Sequence[Knob]:
        return [file.knob for file in self._files.values()]

    def read(self, knob: Knob) -> float | None:
        return _number(self._files[knob.id].path, _SCALE[knob.kind])

    def write(self, knob: Knob, value: float | None) -> None:
        file = self._files[knob.id]
        wanted = file.default if value is None else value
        # The kernel's files take whole numbers.
        file.path.write_text(str(round(wanted / _SCALE[knob.kind])))

    def users(self, knob: Knob) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def powercap(sysfs: Path) -> FileActuator:
    """Find the long-term limit of each package. A constraint without a maximum has its present limit as one."""
    return FileActuator("powercap", list(_powercap(sysfs / "class" / "powercap")))


def _powercap(root: Path) -> Iterator[_File]:
    seen: set[str] = set()
    # Zones of packages have one colon and a number; their parts have two.
    for zone in sorted(root.glob("*:[0-9]*")):
        name = _text(zone / "name")
        # intel-rapl-mmio shows the same package a second time: the first driver in the alphabet stands.
        if name is None or not name.startswith("package-") or name in seen:
            continue
        for label in sorted(zone.glob("constraint_*_name")):
            if _text(label) != "long_term":
                continue
            stem = label.name.removesuffix("_name")
            path = zone / f"{stem}_power_limit_uw"
            now = _number(path, 1e-6)
            # A maximum of 0 is none either.
            most = _number(zone / f"{stem}_max_power_uw", 1e-6) or now
            if now is None or not most:
                continue
            seen.add(name)
            # Half of its maximum: a lower limit may be below what an idle package draws, and would never be held.
            yield _file("powercap", name, "cap_w", path, (0.5 * most, max(most, now), 1.0, now))


def cpufreq(sysfs: Path) -> FileActuator:
    """Find the ceiling of each frequency domain of the processors."""
    return FileActuator("cpufreq", list(_cpufreq(sysfs / "devices" / "system" / "cpu" / "cpufreq")))


def _cpufreq(root: Path) -> Iterator[_File]:
    for policy in sorted(root.glob("policy[0-9]*"), key=lambda path: int(path.name.removeprefix("policy"))):
        low = _number(policy / "cpuinfo_min_freq", 1e-3)
        high = _number(policy / "cpuinfo_max_freq", 1e-3)
        if low is not None and high is not None:
            path = policy / "scaling_max_freq"
            yield _file("cpufreq", f"cpu-{policy.name}", "clock_mhz", path, (low, high, _step_mhz(policy), high))


def _step_mhz(policy: Path) -> float:
    """Return the distance of the listed frequencies; drivers without a list take any, in steps of 100 MHz."""
    listed = sorted(float(khz) * 1e-3 for khz in (_text(policy / "scaling_available_frequencies") or "").split())
    gaps = [above - below for below, above in itertools.pairwise(listed)]
    # The widest gap: what is read back may be off by as much.
    return max(gaps, default=100.0)


def amdgpu(sysfs: Path) -> FileActuator:
    """Find the power cap of each AMD GPU."""
    return FileActuator("amdgpu", list(_amdgpu(sysfs / "class" / "hwmon")))


def _amdgpu(root: Path) -> Iterator[_File]:
    folders = [path for path in sorted(root.glob("hwmon[0-9]*")) if _text(path / "name") == "amdgpu"]
    for number, folder in enumerate(folders):
        low, high = _number(folder / "power1_cap_min", 1e-6), _number(folder / "power1_cap_max", 1e-6)
        now = _number(folder / "power1_cap", 1e-6)
        if high is not None and now is not None:
            default = _number(folder / "power1_cap_default", 1e-6) or now
            path = folder / "power1_cap"
            # A minimum of 0 is none: nothing runs at 0 W.
            yield _file("amdgpu", f"amdgpu-{number}", "cap_w", path, (low or 0.5 * high, high, 1.0, default))


def _file(actuator: str, device: str, kind: Kind, path: Path, numbers: tuple[float, float, float, float]) -> _File:
    low, high, step, default = numbers
    who, mine = _writers(path)
    return _File(Knob(device, kind, actuator, low, high, step, True, who, mine), path, default)


def _writers(path: Path) -> tuple[str, bool]:
    """Find out who may write a file, and whether this process may."""
    try:
        about = path.stat()
    except OSError:
        return "nobody", False
    who = "root" if about.st_uid == 0 else f"user {about.st_uid}"
    if about.st_mode & stat.S_IWGRP:
        who += f", group {about.st_gid}"
    return who, os.access(path, os.W_OK)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path, scale: float) -> float | None:
    try:
        return float(path.read_text()) * scale
    except (OSError, ValueError):
        return None
