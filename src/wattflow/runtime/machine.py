"""This machine as a node: what it offers, from the kernel's own files, and what it looks like at the moment."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.model.profile import PowerProfile
from wattflow.runtime.messages import Device, Load, Node


def this_node(
    name: str | None = None,
    cpus: float | None = None,
    memory_bytes: int | None = None,
    devices: tuple[Device, ...] = (),
    curve: PowerProfile = DEMO_CURVE,
    keep_alive_s: float = 600.0,
) -> Node:
    """This machine as a node: usable CPUs and nine tenths of its memory unless told otherwise."""
    threads = cpus or float(len(os.sched_getaffinity(0)))
    return Node(
        name=name or socket.gethostname(), cpus=threads, memory_bytes=memory_bytes or int(0.9 * total_memory_bytes()),
        python=f"{sys.version_info[0]}.{sys.version_info[1]}", architecture=platform.machine(), devices=list(devices),
        busy=list(curve.busy), watts=list(curve.watts), provenance=curve.provenance.value,
        keep_alive_s=keep_alive_s,
    )  # fmt: skip


def total_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """All memory of the machine."""
    return _meminfo(meminfo)["MemTotal"]


class LoadReader:
    """CPU, memory and network since the last reading."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._busy = self._ticks()

    def read(self, watts: float | None = None, provenance: str = "modelled", gpu_busy: Sequence[float] = ()) -> Load:
        """Read how the machine looks now; watts and GPUs are told by those who read them."""
        busy, total = self._ticks()
        past_busy, past_total = self._busy
        self._busy = (busy, total)
        memory = _meminfo(self._proc / "meminfo")
        return Load(
            cpu_busy=(busy - past_busy) / max(1, total - past_total),
            memory_used_bytes=memory["MemTotal"] - memory["MemAvailable"],
            watts=watts,
            provenance=provenance,
            network_bytes=self._network(),
            gpu_busy=list(gpu_busy),
        )

    def close(self) -> None:
        """Nothing to let go of."""

    def _ticks(self) -> tuple[int, int]:
        with (self._proc / "stat").open() as file:
            values = [int(value) for value in file.readline().split()[1:9]]
        return sum(values) - values[3] - values[4], sum(values)

    def _network(self) -> int:
        total = 0
        for line in (self._proc / "net" / "dev").read_text().splitlines()[2:]:
            name, values = line.split(":", 1)
            if name.strip() != "lo":
                fields = values.split()
                total += int(fields[0]) + int(fields[8])
        return total


def _meminfo(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines if len(fields) >= 2}
