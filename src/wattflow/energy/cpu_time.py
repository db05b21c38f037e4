"""CPU seconds of a task: its control group (v2 or v1), or the process itself where it has no group of its own."""

from __future__ import annotations

import resource
from pathlib import Path

DEFAULT_ROOT = Path("/sys/fs/cgroup")


def cgroup_cpu_s(group: str, root: Path = DEFAULT_ROOT) -> float | None:
    """Return CPU seconds of a control group with everything below it; None where it does not exist.

    Version 2 counts microseconds in ``cpu.stat``; version 1 nanoseconds in ``cpuacct.usage``.
    """
    path = group.strip("/")
    try:
        for line in (root / path / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) * 1e-6
    except (OSError, ValueError):
        pass
    for controller in ("cpuacct", "cpu,cpuacct"):
        try:
            return int((root / controller / path / "cpuacct.usage").read_text()) * 1e-9
        except (OSError, ValueError):
            continue
    return None


def group_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return the control group that counts a process's CPU time: version 2's, or version 1's cpuacct."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    unified = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        # Version 1 where both are mounted: cpuacct counts there, and the unified hierarchy has no CPU
        # controller.
        if "cpuacct" in controllers.split(","):
            return path
        # Version 2 is always hierarchy 0.
        if number == "0":
            unified = path
    return unified


def ended_cpu_s(usage: resource.struct_rusage) -> float:
    """Return CPU seconds of an ended process with its children, from what ``os.wait4`` returned."""
    return usage.ru_utime + usage.ru_stime
