"""Kubelets of simulated nodes that really go away: heartbeats end when a node is switched off, and begin anew.

Our scheduler's power hook writes its orders into a file; a thread here carries them out as a machine and its kubelet
would. While a node is off nobody renews its lease, so that the real node-lifecycle controller declares it unknown and
taints it; it comes back with another boot id and a new heartbeat.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import uuid
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
"""Orders, and renewals of leases, that are carried out at once: machines do not wait for one another."""


def hook(folder: Path) -> tuple[str, Path]:
    """Write the command for ``[sleep] hook``; returns it and the file that its orders go to."""
    script, orders = folder / "power-hook", folder / "orders"
    orders.touch()
    script.write_text(f'#!/bin/sh\necho "$1 $2" >> {orders}\n')
    script.chmod(0o755)
    return str(script), orders


@dataclass
class Kubelets:
    """The kubelets of some nodes.

    Attributes:
        wake_s, enter_s: How long a machine takes to come back, and to be off.
        beat_s: Seconds between two renewals of a lease; 0: none are renewed, as with KWOK alone.
        spans: When each node was off, seconds since 1970: from, until (infinite while it is).
    """

    api: Api
    orders: Path
    nodes: list[str]
    wake_s: float = 1.0
    enter_s: float = 0.2
    beat_s: float = 0.0
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    unheard: list[str] = field(default_factory=list)
    _off: set[str] = field(default_factory=set)
    _due: list[tuple[float, str, str]] = field(default_factory=list)
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
        with ThreadPoolExecutor(_HANDS) as hands:
            while not self._stop.wait(_TURN_S):
                now_s = time.time()
                lines = self.orders.read_text().splitlines()
                for line in lines[self._read :]:
                    what, _, node = line.partition(" ")
                    self._due.append((now_s + (self.enter_s if what == "sleep" else self.wake_s), what, node))
                self._read = len(lines)
                due: dict[str, list[str]] = {}  # of each machine in order
                for at_s, what, node in self._due:
                    if at_s <= now_s:
                        due.setdefault(node, []).append(what)
                self._due = [one for one in self._due if one[0] > now_s]
                list(hands.map(self._obey, due, due.values()))

    def _obey(self, node: str, orders: list[str]) -> None:
        for what in orders:
            try:
                self._fall(node) if what == "sleep" else self._rise(node)
            except (ApiError, OSError) as error:  # deleted meanwhile, or the API server is being restarted
                if not isinstance(error, ApiError) or error.status != 404:
                    self._due.append((time.time() + 0.5, what, node))
                self.unheard.append(f"{what} {node}: {error}")

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
