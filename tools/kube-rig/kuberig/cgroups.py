"""Control groups of a real node's pods: the CPU time that energy attribution starts from. Versions 1 and 2."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "hugetlb", "unified")


def unified() -> bool:
    """Whether this machine has version 2 alone."""
    return (ROOT / "cgroup.controllers").exists()


def make(group: str) -> None:
    """Makes a group in every hierarchy that exists."""
    if unified():
        (ROOT / group).mkdir(parents=True, exist_ok=True)
        return
    for name in _V1:
        if (ROOT / name).is_dir():
            (ROOT / name / group).mkdir(parents=True, exist_ok=True)
    # A cpuset without CPUs and memory nodes takes no process.
    for file in ("cpuset.cpus", "cpuset.mems"):
        parent = ROOT / "cpuset"
        for step in Path(group).parts:
            child = parent / step
            if (child / file).exists() and not (child / file).read_text().strip():
                (child / file).write_text((parent / file).read_text())
            parent = child


def remove(group: str, patience_s: float = 10.0) -> None:
    """Ends what still runs in a group and removes it and all below it, from every hierarchy."""
    tops = [ROOT / group] if unified() else [ROOT / name / group for name in _V1]
    ends = time.monotonic() + patience_s
    while True:
        for top in tops:
            for members in top.rglob("cgroup.procs"):
                _end_members(members)
            for folder in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True) if top.is_dir() else []:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
        if not any(top.exists() for top in tops) or time.monotonic() > ends:
            return
        time.sleep(0.05)


def _end_members(members: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in members.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def pod_folders(group: str) -> dict[str, Path]:
    """The folder of each pod, by uid, in the CPU accounting hierarchy."""
    top = ROOT / group / "kubepods" if unified() else ROOT / "cpuacct" / group / "kubepods"
    places = (top, top / "burstable", top / "besteffort")
    return {folder.name[3:]: folder for place in places for folder in place.glob("pod*")}


def cpu_seconds(group: str, uid: str) -> float | None:
    """CPU seconds that a pod has used so far; `None` once (or while) it has no group."""
    folder = pod_folders(group).get(uid)
    return None if folder is None else _usage(folder)


def _usage(folder: Path) -> float | None:
    try:
        if unified():
            usage = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())["usage_usec"]
            return int(usage) / 1e6
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    except OSError:
        return None


class CpuTimes:
    """Follows the CPU time of every pod of a node, and remembers it when the pod has gone.

    The kubelet removes a pod's group a while after its last process has ended (its housekeeping comes every two
    seconds), so the last reading of an ended pod is its final one.
    """

    def __init__(self, group: str, every_s: float = 0.05) -> None:
        self.seconds: dict[str, float] = {}
        self._group = group
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> CpuTimes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._end.wait(self._every_s):
            for uid, folder in pod_folders(self._group).items():
                used = _usage(folder)
                if used is not None:
                    self.seconds[uid] = used
