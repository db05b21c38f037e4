"""How much of this machine others had while something was measured. Linux only, as the rig is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def process_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that processes, and the children that they have waited for, have used; ended ones count as none."""
    used = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        used += sum(int(field) for field in fields[11:15])
    return used / _TICKS


class Machine:
    """The machine's CPU time since this was made."""

    def __init__(self) -> None:
        self._busy, self._idle = _busy_and_idle()

    def others_share(self, own_s: float) -> float:
        """The share of all CPU time since then that neither lay idle nor was `own_s` (0 to 1)."""
        busy, idle = _busy_and_idle()
        busy, idle = busy - self._busy, idle - self._idle
        return max(0.0, busy - own_s) / max(busy + idle, 1e-9)


def _busy_and_idle() -> tuple[float, float]:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS, idle / _TICKS
