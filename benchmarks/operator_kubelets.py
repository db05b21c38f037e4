"""Kubelets of simulated nodes that really go away: heartbeats end when a node is switched off, and begin anew.

Our scheduler's power hook writes its orders and their times into a file; threads here carry them out as a machine and
its kubelet would. While a node is off nobody renews its lease, so that the real node-lifecycle controller declares it
unknown and taints it; it comes back with another boot id and a new heartbeat.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kuberig.api import Api, ApiError

OFF = "rig.wattflow.io/off"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_TURN_S = 0.1
_HANDS = 8
"""Renewals of leases that are carried out at once."""
_MACHINES = 64
"""Orders that are carried out at once: machines do not wait for one another."""


def hook(folder: Path) -> tuple[str, Path]:
    """Write the command for ``[sleep] hook``; returns it and the file that its orders go to, each with its time."""
    script, orders = folder / "power-hook", folder / "orders"
    orders.touch()
    script.write_text(f'#!/bin/bash\necho "$1 $2 $EPOCHREALTIME" >> {orders}\n')
    script.chmod(0o755)
    return str(script), orders


@dataclass
class Kubelets:
    """The kubelets of some nodes.

    Attributes:
        wake_s, enter_s: How long a machine takes to come back, and to be off.
        beat_s: Seconds between two renewals of a lease; 0: none are renewed, as with KWOK alone.
        spans: When each node was off, seconds since 1970: from, until (infinite while it is).
        ordered_s: When each node was told to sleep or to wake, seconds since 1970.
    """

    api: Api
    orders: Path
    nodes: list[str]
    wake_s: float = 1.0
    enter_s: float = 0.2
    beat_s: float = 0.0
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ordered_s: dict[str, list[float]] = field(default_factory=dict)
    unheard: list[str] = field(default_factory=list)
    _off: set[str] = field(default_factory=set)
    _due: dict[str, deque[tuple[float, str]]] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _read: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Kubelets:
        jobs: list[Callable[[], None]] = [self._follow]
        if self.beat_s:
            parts = [self.nodes[i::_HANDS] for i in range(min(_HANDS, len(self.nodes)))]
            jobs += [functools.partial(self._beat, part) for part in parts]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _follow(self) -> None:
        with ThreadPoolExecutor(_MACHINES) as machines:
            while not self._stop.wait(_TURN_S):
                *lines, _ = self.orders.read_text().split("\n")  # the last one may be half written
                for what, node, at in map(str.split, lines[self._read :]):
                    self.ordered_s.setdefault(node, []).append(float(at))
                    takes_s = self.enter_s if what == "sleep" else self.wake_s
                    # by the order's own time: nobody wakes later because this thread reads late
                    self._due.setdefault(node, deque()).append((float(at) + takes_s, what))
                self._read = len(lines)
                now_s = time.time()
                for node, orders in self._due.items():
                    if node not in self._busy and orders and orders[0][0] <= now_s:
                        self._busy.add(node)
                        machines.submit(self._obey, node, orders)

    def _obey(self, node: str, orders: deque[tuple[float, str]]) -> None:
        """Carry out a machine's next order; it stays the next where the API server does not answer."""
        what = orders[0][1]
        try:
            self._fall(node) if what == "sleep" else self._rise(node)
            orders.popleft()
        except (ApiError, OSError) as error:  # deleted meanwhile, or the API server is being restarted
            self.unheard.append(f"{what} {node}: {error}")
            if isinstance(error, ApiError) and error.status == 404:
                orders.popleft()
            else:
                orders[0] = (time.time() + 0.5, what)
        finally:
            self._busy.discard(node)

    def _fall(self, node: str) -> None:
        fall(self.api, node)
        self._off.add(node)
        self.spans.setdefault(node, []).append((time.time(), float("inf")))

    def _rise(self, node: str) -> None:
        rise(self.api, node)
        self._off.discard(node)
        spans = self.spans.setdefault(node, [])
        if spans and spans[-1][1] == float("inf"):
            spans[-1] = (spans[-1][0], time.time())

    def _beat(self, nodes: list[str]) -> None:
        """Renew the leases of those of these nodes that are on, one after another, once in each period."""
        known: set[str] = set()
        while True:
            began_s = time.monotonic()
            for i, node in enumerate([*nodes, ""]):
                # By the clock: what a renewal takes must not lengthen the period, or a busy server loses its nodes.
                if self._stop.wait(max(0.0, began_s + i * self.beat_s / len(nodes) - time.monotonic())):
                    return
                if node and node not in self._off:
                    with contextlib.suppress(ApiError, OSError):
                        self._renew(node, known)

    def _renew(self, node: str, known: set[str]) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40}
        spec["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if node in known:
            self.api.patch(f"{_LEASES}/{node}", {"spec": spec})
        else:
            self.api.create(_LEASES, {"metadata": {"name": node}, "spec": spec}, exists_ok=True)
            known.add(node)


def fall(api: Api, node: str) -> None:
    """A machine is off: KWOK says nothing more of it."""
    api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {OFF: "true"}}})


def rise(api: Api, node: str) -> None:
    """A machine is back, its kubelet tells so: another boot id, a new heartbeat."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    ready = {"type": "Ready", "status": "True", "reason": "Rig"} | times
    body = json.dumps({"status": {"conditions": [ready], "nodeInfo": {"bootID": uuid.uuid4().hex}}}).encode()
    api.request("PATCH", f"/api/v1/nodes/{node}/status", body, "application/strategic-merge-patch+json")
    api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {OFF: None}}})


def off_s(spans: Iterable[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Seconds off within a time."""
    return sum(max(0.0, min(until_s, end_s) - max(from_s, begin_s)) for from_s, until_s in spans)
