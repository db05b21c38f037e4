"""The profile of a node's CPUs as a file: every window that was measured, and P(k) with its confidence.

JSON, versioned. The windows are kept, so that a profile can be resumed, checked and merged; P(k) is computed from them.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from wattflow.energy.virtual import process_cpu_s
from wattflow.model.errors import InvalidInput, MissingExtra, Problem
from wattflow.model.profile import PowerProfile, Provenance, Scope

METHOD = "matrixprod"


class CpuLoad(Protocol):
    """Keeps given CPUs busy, and says how much CPU time it really had."""

    def start(self, cpus: Sequence[int]) -> None: ...

    def stop(self) -> None: ...

    def cpu_s(self) -> float: ...

    def bench_s(self, cpu: int, operations: int) -> float: ...


class StressNg:
    """One stress-ng worker for each CPU, pinned to it; floating-point work by default."""

    def __init__(self, method: str = METHOD) -> None:
        program = shutil.which("stress-ng")
        if program is None:
            raise MissingExtra("the profiler loads cores with stress-ng: apt install stress-ng (`make tools`)")
        self._program, self._method = program, method
        self._running: list[subprocess.Popen[bytes]] = []
        self._ended_s = 0.0
        self._last: dict[int, float] = {}
        # Re-entrant: `stop` asks `cpu_s` while it holds it. The sampler's thread asks as well.
        self._lock = threading.RLock()

    def start(self, cpus: Sequence[int]) -> None:
        """Load exactly these CPUs from now on."""
        # First: two loads at once would count as one.
        self.stop()
        with self._lock:
            for cpu in cpus:
                command = self._command(cpu)
                self._running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def stop(self) -> None:
        """End all workers; their CPU time stays counted."""
        with self._lock:
            # A last look while the processes are there; afterwards /proc has nothing of them.
            self.cpu_s()
            for process in self._running:
                process.terminate()
            for process in self._running:
                process.wait()
            self._ended_s += sum(self._last.values())
            self._running, self._last = [], {}

    def cpu_s(self) -> float:
        """Return CPU seconds of all workers since the beginning. Any thread may ask."""
        with self._lock:
            for process in self._running:
                # stress-ng forks its worker: the parent alone would show nearly no CPU time.
                for pid in (process.pid, *_children(process.pid)):
                    used = process_cpu_s(pid)
                    if used is not None:
                        # Never less than before: a process that is gone reads as nothing.
                        self._last[pid] = max(self._last.get(pid, 0.0), used)
            return self._ended_s + sum(self._last.values())

    def bench_s(self, cpu: int, operations: int) -> float:
        """Measure the seconds that a fixed number of operations takes on one CPU."""
        begun_s = time.monotonic()
        subprocess.run([*self._command(cpu), "--cpu-ops", str(operations)], check=True, capture_output=True)
        return time.monotonic() - begun_s

    def _command(self, cpu: int) -> list[str]:
        return [
            self._program,
            "--cpu",
            "1",
            "--cpu-method",
            self._method,
            "--taskset",
            str(cpu),
            "--timeout",
            "0",
            "-q",
        ]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


VERSION = 1
# Student's t for a two-sided 95 % interval, by degrees of freedom; 1.96 beyond.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True, slots=True)
class MeasuredStretch:
    """One measured stretch with k threads asked for.

    Attributes:
        load_cpu_s: CPU seconds that the load really had; its busy threads are this over ``seconds``.
        other_cpu_s: CPU seconds of everything else on the machine.
        steal_s: CPU seconds that the hypervisor took.
    """

    seconds: float
    watts: float
    load_cpu_s: float
    other_cpu_s: float
    steal_s: float
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """P(k): mean watts with the half width of its 95 % interval, and the threads that were really busy."""

    k: int
    busy: float
    watts: float
    half_w: float
    windows: int


@dataclass(slots=True)
class CpuProfile:
    """A node's measurement, finished or under way.

    Attributes:
        meter: Name of the meter; ``virtual`` where no hardware counted.
        scope: What the watts cover.
        integrated: True when no counter existed and sampled watts were integrated.
    """

    node: str
    meter: str
    threads: int
    cores: int
    scope: Scope = Scope.PACKAGE
    integrated: bool = False
    started: str = ""
    finished: str = ""
    conditions: Mapping[str, object] = field(default_factory=dict)
    windows: dict[int, list[MeasuredStretch]] = field(default_factory=dict)
    interference: list[Mapping[str, float]] = field(default_factory=list)

    def points(self) -> list[CurvePoint]:
        """Return P(k) in order of k, from all windows."""
        return [_point(k, windows) for k, windows in sorted(self.windows.items()) if windows]

    def settled(self, k: int, tolerance: float) -> bool:
        """Tell whether the interval of P(k) is within ±tolerance of it."""
        windows = self.windows.get(k, [])
        # Three windows at least: an interval of two says little, however narrow.
        return len(windows) >= 3 and _point(k, windows).half_w <= tolerance * max(1e-9, _point(k, windows).watts)

    def power_profile(self) -> PowerProfile:
        """Return P(k) for the simulator: busy threads as achieved, above what was busy anyway in the idle windows."""
        points = self.points()
        if not points or points[0].k != 0:
            raise InvalidInput(self.node, "the profile has no idle point (k = 0) yet")
        # What ran anyway while idle is part of the idle watts, so it is no busy thread of the curve.
        # `clusters.power_table` reads saved points by the same rule.
        base = points[0].busy
        busy, watts = [0.0], [points[0].watts]
        for point in points[1:]:
            # Busy threads must rise strictly; levels that a busy machine could not reach are left out.
            if point.busy - base > busy[-1] + 1e-6:
                busy.append(point.busy - base)
                watts.append(point.watts)
        virtual = self.meter == "virtual"
        how = (
            "virtual meter, computed from CPU time"
            if virtual
            else f"{self.meter}, {'sampled watts' if self.integrated else 'counter'}"
        )
        # Joules computed by a virtual meter are never called measured.
        provenance = Provenance.MODELLED if virtual else Provenance.MEASURED
        return PowerProfile(
            tuple(busy), tuple(watts), self.scope, provenance, f"{self.node}: {how}, {self.finished or self.started}"
        )

    def toml(self) -> str:
        """Return the line that gives a node of a cluster file this profile."""
        power = self.power_profile()
        busy, watts = (", ".join(f"{value:.4g}" for value in values) for values in (power.busy, power.watts))
        facts = f'scope = "{power.scope}", provenance = "{power.provenance}", source = "{power.source}"'
        return f"power = {{ busy = [{busy}], watts = [{watts}], {facts} }}"

    def save(self, path: Path) -> None:
        """Write atomically."""
        rows = {str(k): [asdict(window) for window in windows] for k, windows in sorted(self.windows.items())}
        document = {
            "version": VERSION,
            "kind": "cpu",
            **{name: getattr(self, name) for name in _FACTS},
            "scope": self.scope.value,
            "conditions": dict(self.conditions),
            "windows": rows,
            "points": [asdict(point) for point in self.points()],
            "interference": [dict(row) for row in self.interference],
        }
        # Renamed when whole: a run that is broken off keeps the file of the window before.
        partial = path.with_name(path.name + ".part")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> CpuProfile:
        """Read a profile; all problems at once."""
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InvalidInput(str(path), f"cannot be read as a profile: {error}") from error
        problems = [Problem(name, "is missing") for name in (*_FACTS, "scope", "windows") if name not in document]
        if document.get("version") != VERSION:
            problems.append(Problem("version", f"{document.get('version')} is not {VERSION}, which this program reads"))
        if problems:
            raise InvalidInput(str(path), problems)
        profile = cls(**{name: document[name] for name in _FACTS}, scope=Scope(document["scope"]))
        profile.conditions = document.get("conditions", {})
        profile.windows = {int(k): [MeasuredStretch(**row) for row in rows] for k, rows in document["windows"].items()}
        profile.interference = document.get("interference", [])
        return profile


_FACTS = ("node", "meter", "threads", "cores", "integrated", "started", "finished")


def _point(k: int, windows: list[MeasuredStretch]) -> CurvePoint:
    watts = [window.watts for window in windows]
    # The others' CPU time counts as busy too: the meter cannot tell them apart.
    busy = statistics.fmean((window.load_cpu_s + window.other_cpu_s) / window.seconds for window in windows)
    # One window has no spread: the interval is unknown, not 0.
    half_w = float("inf")
    if len(watts) >= 2:
        t = _T95[len(watts) - 2] if len(watts) - 2 < len(_T95) else 1.96
        half_w = t * statistics.stdev(watts) / math.sqrt(len(watts))
    return CurvePoint(k, busy, statistics.fmean(watts), half_w, len(watts))
