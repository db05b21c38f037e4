"""A virtual meter: a powercap tree driven by the real CPU time of real processes through a known P(k).

It exists for tests, demonstrations and machines without a counter, and it names itself: the tree holds a file
``wattflow-virtual`` and everything made from it says *virtual*. Joules are exact by construction: at every step
k = Δ(CPU seconds) / Δt busy threads draw P(k) for Δt, and each process's true share of P(k) − P(0) is kept, so that the
whole chain (reader, PCP, profiler, attribution) can be checked against the truth.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wattflow.model.profile import PowerProfile, Provenance, Scope

MARK = "wattflow-virtual"
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
DEMO_CURVE = PowerProfile(
    (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    (40.0, 62.0, 76.0, 98.0, 130.0, 172.0, 205.0),
    Scope.PACKAGE,
    Provenance.MODELLED,
    "invented for demonstrations of the virtual meter",
)
CpuSeconds = Callable[[], Mapping[str, float]]


def process_cpu_s(pid: int, proc: Path = Path("/proc")) -> float | None:
    """Return CPU seconds of a process with all its threads; None when it is gone.

    ``schedstat`` counts nanoseconds; ``stat``'s ticks of 10 ms are the fallback.
    """
    try:
        threads = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return None
    total_ns, found = 0, False
    for thread in threads:
        try:
            total_ns += int((thread / "schedstat").read_bytes().split()[0])
            found = True
        except (OSError, ValueError, IndexError):
            continue
    return total_ns * 1e-9 if found else _stat_cpu_s(proc / str(pid) / "stat")


def _stat_cpu_s(path: Path) -> float | None:
    try:
        # The name in brackets may hold spaces and brackets itself: count from the last one.
        fields = path.read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    # utime and stime are fields 14 and 15 of `proc(5)`; the split begins at field 3.
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def of_machine(proc_stat: Path = Path("/proc/stat")) -> CpuSeconds:
    """Return CPU seconds of the whole machine: everything but idle, iowait and what the hypervisor took."""

    def read() -> Mapping[str, float]:
        with proc_stat.open("rb") as file:
            ticks = [int(value) for value in file.readline().split()[1:]]
        # Only the first eight: guest time is part of user time already.
        return {"machine": (sum(ticks[:8]) - ticks[3] - ticks[4] - ticks[7]) * _TICK_S}

    return read


@dataclass(slots=True)
class Truth:
    """Hold what the virtual meter knows and a real one never tells."""

    seconds: float = 0.0
    total_j: float = 0.0
    idle_j: float = 0.0
    by_process_j: dict[str, float] = field(default_factory=dict)
    by_process_cpu_s: dict[str, float] = field(default_factory=dict)


class VirtualMeter:
    """Writes a powercap tree under ``root`` (``root/sys/class/powercap``), as a thread or by calls of `step`.

    Args:
        curve: P(k) of the package, k in busy threads of the virtual node.
        cpu_s: CPU seconds so far by process; `of_machine` has those of all.
        threads_per_cpu: Virtual busy threads for one real busy CPU, so that a small machine can play a large node.
        dram_share: Part of the watts above idle that a ``dram`` zone shows beside the package, on top of it.
        range_uj: Where the counters wrap.
    """

    def __init__(
        self,
        root: Path,
        curve: PowerProfile,
        cpu_s: CpuSeconds,
        *,
        threads_per_cpu: float = 1.0,
        dram_share: float = 0.0,
        range_uj: int = 262_143_328_850,
    ) -> None:
        self.curve, self.cpu_s = curve, cpu_s
        self.threads_per_cpu, self.dram_share, self.range_uj = threads_per_cpu, dram_share, range_uj
        self.truth = Truth()
        self.powercap = root / "sys" / "class" / "powercap"
        self._files = _make_tree(root, self.powercap, range_uj, dram_share > 0)
        self._dram_j = 0.0
        self._last_s = time.monotonic()
        self._last = dict(cpu_s())
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._write()

    def step(self) -> float:
        """Account for the time since the last step; returns the watts drawn in it."""
        now_s, now = time.monotonic(), dict(self.cpu_s())
        step_s = now_s - self._last_s
        if step_s <= 0:
            # Two calls within one tick of the clock: nothing to account for.
            return self.curve.idle_w
        used = {name: max(0.0, value - self._last.get(name, 0.0)) for name, value in now.items()}
        busy_s = sum(used.values())
        watts = self.curve.at(busy_s / step_s * self.threads_per_cpu)
        truth = self.truth
        truth.seconds += step_s
        truth.total_j += watts * step_s
        truth.idle_j += self.curve.idle_w * step_s
        active_j = (watts - self.curve.idle_w) * step_s
        self._dram_j += active_j * self.dram_share
        for name, cpu_s in used.items():
            truth.by_process_cpu_s[name] = truth.by_process_cpu_s.get(name, 0.0) + cpu_s
            if busy_s > 0:
                truth.by_process_j[name] = truth.by_process_j.get(name, 0.0) + active_j * cpu_s / busy_s
        self._last_s, self._last = now_s, now
        self._write()
        return watts

    def start(self, period_s: float = 0.02) -> VirtualMeter:
        """Step in a thread until `stop`."""

        def loop() -> None:
            while not self._stop.wait(period_s):
                self.step()

        self._thread = threading.Thread(target=loop, name=MARK, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> Truth:
        """Make one last step; the files stay."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.step()
        # After the thread has ended, which writes to them.
        for file in self._files:
            os.close(file)
        self._files = []
        return self.truth

    def __enter__(self) -> VirtualMeter:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._files:
            self.stop()

    def _write(self) -> None:
        for file, joules in zip(self._files, (self.truth.total_j, self._dram_j), strict=False):
            # In place and of one length: readers that keep the file open never see half a number.
            # Wrapped as the hardware would, so that readers are tested on it.
            text = f"{int(joules * 1e6) % self.range_uj}\n".ljust(24, "\n")
            os.pwrite(file, text.encode(), 0)


def _make_tree(root: Path, powercap: Path, range_uj: int, with_dram: bool) -> list[int]:
    control = powercap / "intel-rapl"
    zones = [("intel-rapl:0", control / "intel-rapl:0", "package-0")]
    if with_dram:
        zones.append(("intel-rapl:0:0", control / "intel-rapl:0" / "intel-rapl:0:0", "dram"))
    files = []
    for link, folder, label in zones:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{label}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        files.append(os.open(folder / "energy_uj", os.O_RDWR | os.O_CREAT, 0o644))
        if not (powercap / link).exists():
            (powercap / link).symlink_to(folder.relative_to(powercap))
    (powercap / MARK).write_text("These joules are computed from CPU time by wattflow; no hardware counted them.\n")
    topology = root / "sys" / "devices" / "system" / "cpu" / "cpu0" / "topology"
    topology.mkdir(parents=True, exist_ok=True)
    (topology / "physical_package_id").write_text("0\n")
    return files


def is_virtual(powercap: Path) -> bool:
    """Tell whether a powercap tree was written by a virtual meter."""
    return (powercap / MARK).exists()
