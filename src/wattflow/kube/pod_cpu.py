"""CPU seconds of the pods of one node, from their control groups; read while they run, kept when they are gone.

A kubelet names the group of a pod by its uid (``pod<uid>``, dashes as underscores under systemd) below ``kubepods``.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_ROOT = Path("/sys/fs/cgroup")
# systemd: "kubepods-burstable-pod<uid with _>.slice"; cgroupfs: "pod<uid>".
_POD = re.compile(r"(?:.*-)?pod([0-9a-f]{8}[-_][0-9a-f_-]{27})(?:\.slice)?")


def usage_s(folder: Path) -> float | None:
    """Read the CPU seconds of one group, of version 2 or 1; None where it is gone."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) * 1e-6
    # Version 1, in nanoseconds; where the file of version 2 is not there.
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "cpuacct.usage").read_text()) * 1e-9
    return None


@dataclass(slots=True)
class PodCpu:
    """Reads all pods below ``group`` at each `scan`. ``seconds`` is by uid."""

    group: str = ""
    root: Path = DEFAULT_ROOT
    seconds: dict[str, float] = field(default_factory=dict)

    def folders(self) -> dict[str, Path]:
        """Return the folder of each pod that has one now."""
        # Version 1 has a folder per controller, named either way; version 2 is the root itself.
        tops = [self.root / controller / self.group.strip("/") for controller in ("cpuacct", "cpu,cpuacct", ".")]
        found: dict[str, Path] = {}
        for top in tops:
            for kubepods in (top / "kubepods", top / "kubepods.slice"):
                # Guaranteed pods lie directly below, the others below their class of service.
                for depth in ("*", "*/*"):
                    for folder in kubepods.glob(depth):
                        name = _POD.fullmatch(folder.name)
                        if name is not None and folder.is_dir():
                            found.setdefault(name[1].replace("_", "-"), folder)
        return found

    def scan(self) -> None:
        """Read every pod once."""
        for uid, folder in self.folders().items():
            # The last value stands when a pod is gone: its group is deleted with it.
            used = usage_s(folder)
            if used is not None:
                self.seconds[uid] = used
