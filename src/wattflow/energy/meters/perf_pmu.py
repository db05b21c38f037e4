"""RAPL through the kernel's perf events: the PMU ``power`` and its ``energy-*`` events.

The folder of the PMU alone proves nothing: a virtual machine may show it without any event. ``events/energy-pkg`` must
exist. The kernel extends these counters to 64 bits, so nothing wraps here.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s

DEFAULT_ROOT = Path("/sys/bus/event_source/devices")
_EVENTS = {
    "energy-pkg": "package",
    "energy-cores": "core",
    "energy-gpu": "uncore",
    "energy-ram": "dram",
    "energy-psys": "psys",
}
_SYSCALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331}
# PERF_ATTR_SIZE_VER5: later kernels take shorter structures.
_ATTR_BYTES = 112


@dataclass(frozen=True, slots=True)
class _Counter:
    domain: Domain
    file: int
    scale_j: float

    def read_j(self) -> float | None:
        try:
            # Eight bytes, as `read_format` is 0: the value alone.
            return int.from_bytes(os.read(self.file, 8), "little") * self.scale_j
        except OSError:
            return None


class PerfMeter:
    """All energy events of the PMU ``power``, once per package."""

    name = "perf"

    def __init__(self, root: Path | str = DEFAULT_ROOT) -> None:
        pmu = Path(root) / "power"
        if not (pmu / "events" / "energy-pkg").exists():
            reason = "has no events/energy-pkg" if pmu.is_dir() else "does not exist"
            raise NoReading(f"{pmu} {reason}: the kernel shows no RAPL events")
        self._counters: list[_Counter] = []
        try:
            self._counters.extend(_open_counters(pmu))
        except NoReading:
            self.close()
            raise
        self.domains = tuple(counter.domain for counter in self._counters)

    def read(self) -> Reading:
        time_s = now_s()
        return Reading(time_s, {counter.domain.name: counter.read_j() for counter in self._counters})

    def close(self) -> None:
        for counter in self._counters:
            os.close(counter.file)
        self._counters = []


def _open_counters(pmu: Path) -> Iterator[_Counter]:
    kind = int((pmu / "type").read_text())
    # The kernel names one CPU of each package; another would count the same package again.
    cpus = _cpus((pmu / "cpumask").read_text())
    for event, domain_kind in _EVENTS.items():
        file = pmu / "events" / event
        if not file.exists():
            continue
        config = int(file.read_text().strip().removeprefix("event="), 0)
        scale_j = float((pmu / "events" / f"{event}.scale").read_text())
        for package, cpu in enumerate(cpus):
            yield _Counter(Domain(f"{domain_kind}-{package}", domain_kind), _open_event(kind, config, cpu), scale_j)


def _cpus(text: str) -> list[int]:
    """Return one CPU for each package: ``0,18`` or ``0-1``."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def _open_event(kind: int, config: int, cpu: int) -> int:
    """Call perf_event_open for one CPU, all processes."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise NoReading(f"perf events are not known on {platform.machine()}")
    attr = bytearray(_ATTR_BYTES)
    attr[0:4] = kind.to_bytes(4, "little")
    attr[4:8] = _ATTR_BYTES.to_bytes(4, "little")
    attr[8:16] = config.to_bytes(8, "little")
    libc = ctypes.CDLL(None, use_errno=True)
    raw = (ctypes.c_char * _ATTR_BYTES).from_buffer(attr)
    # pid -1 and a CPU: everything on that CPU, which for this PMU is its package.
    file = libc.syscall(ctypes.c_long(number), ctypes.byref(raw), -1, cpu, -1, 0)
    if file < 0:
        reason = os.strerror(ctypes.get_errno())
        raise NoReading(f"perf refuses the event on CPU {cpu}: {reason} (needs root or kernel.perf_event_paranoid ≤ 0)")
    return int(file)
