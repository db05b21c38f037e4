"""This machine as a node: what it offers, and how it looks by the kernel's files or by Performance Co-Pilot."""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from wattflow.energy.meters import pcp
from wattflow.energy.meters.http import MeterConnection
from wattflow.energy.meters.port import NoReading
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


log = logging.getLogger(__name__)
EVERY_S = 1.0
IDLE = ("kernel.all.cpu.idle", "kernel.all.cpu.wait.total")
BUSY = tuple(f"kernel.all.cpu.{name}" for name in ("user", "nice", "sys", "irq.soft", "irq.hard", "steal"))
MEMORY = ("mem.physmem", "mem.util.available")
NETWORK = ("network.interface.in.bytes", "network.interface.out.bytes")
NAMES = (*IDLE, *BUSY, *MEMORY, *NETWORK)
Values = Mapping[str, Mapping[int, float]]


class PcpLoad:
    """CPU, memory and network of the machine whose pmcd ``hostspec`` names. Raises NoReading where nobody answers."""

    def __init__(self, url: str = pcp.DEFAULT_URL, hostspec: str = "localhost") -> None:
        self._http, self._hostspec = MeterConnection(url), hostspec
        try:
            self._context = self._open()
            self._loopback = self._instance("network.interface.in.bytes", "lo")
            self._before = self._fetch()
        except BaseException:
            self._http.close()
            raise
        self._latest, self._over = Load(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="wattflow-pcp", daemon=True)
        self._thread.start()

    def read(self, watts: float | None = None, provenance: str = "modelled", gpu_busy: Sequence[float] = ()) -> Load:
        """Tell how the machine looked at the latest look; watts and GPUs are told by those who read them."""
        seen = self._latest
        return Load(seen.cpu_busy, seen.memory_used_bytes, watts, provenance, seen.network_bytes, list(gpu_busy))

    def look(self) -> None:
        """Ask now."""
        now, before = self._fetch(), self._before
        self._before = now
        busy, idle = (sum(_one(now, name) - _one(before, name) for name in names) for names in (BUSY, IDLE))
        used = 1024 * (_one(now, "mem.physmem") - _one(now, "mem.util.available"))
        network = sum(value for name in NETWORK for number, value in now[name].items() if number != self._loopback)
        share = busy / max(busy + idle, 1e-9)
        self._latest = Load(min(1.0, max(0.0, share)), max(0, int(used)), None, "modelled", max(0, int(network)))

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join(10)
        self._http.close()

    def _follow(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self.look()
            except NoReading as reason:  # a restart of pmproxy: the last numbers stand until it is back
                log.debug("no reading: %s", reason)

    def _open(self) -> int:
        answer = self._http.get_json(f"/pmapi/context?hostspec={quote(self._hostspec)}&polltimeout=60")
        context = answer.get("context")
        if not isinstance(context, int):
            raise NoReading(f"pmproxy gives no context: {answer.get('message', answer)}")
        return context

    def _instance(self, metric: str, name: str) -> int | None:
        rows = self._http.get_json(f"/pmapi/{self._context}/indom?name={metric}").get("instances")
        for row in rows if isinstance(rows, list) else []:
            if row.get("name") == name:
                return int(row["instance"])
        return None

    def _fetch(self) -> Values:
        for last in (False, True):
            rows = self._http.get_json(f"/pmapi/{self._context}/fetch?names={','.join(NAMES)}").get("values")
            if rows is not None or last:
                break
            self._context = self._open()  # it timed out between two looks
        found = {
            str(row["name"]): {_number(one["instance"]): float(one["value"]) for one in row["instances"]}
            for row in (rows if isinstance(rows, list) else [])
        }
        lacking = [name for name in NAMES if not found.get(name)]
        if lacking:
            raise NoReading(f"pmcd has no {', '.join(lacking)}; is its linux agent there?")
        return found


def load_reader(environment: Mapping[str, str] = os.environ) -> LoadReader | PcpLoad:
    """Performance Co-Pilot where it runs, else the kernel's own files."""
    url, host = environment.get("WATTFLOW_PMPROXY", pcp.DEFAULT_URL), environment.get("WATTFLOW_PMCD", "localhost")
    try:
        return PcpLoad(url, host)
    except (NoReading, OSError, ValueError, KeyError, TypeError) as reason:
        log.info("CPU, memory and network are read from the kernel's files: %s", reason)
        return LoadReader()


def _number(instance: object) -> int:
    """A metric of the whole machine has no instances: its one value goes by −1."""
    return instance if isinstance(instance, int) else -1


def _one(values: Values, name: str) -> float:
    return next(iter(values[name].values()))
