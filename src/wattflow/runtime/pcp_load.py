"""How this machine looks, as Performance Co-Pilot tells it through pmproxy.

Where a site runs it, its operators and the engine see the same numbers. A thread asks once a second; reading never
waits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from wattflow.energy.meters import pcp
from wattflow.energy.meters.http import Connection
from wattflow.energy.meters.port import NoReading
from wattflow.runtime.machine import LoadReader
from wattflow.runtime.messages import Load

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
        self._http, self._hostspec = Connection(url), hostspec
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
