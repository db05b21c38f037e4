"""A load of k pinned threads by stress-ng, and a benchmark of fixed work."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wattflow.energy.virtual import process_cpu_s
from wattflow.model.errors import MissingExtra

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
