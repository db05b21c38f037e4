"""The day of sleep without a cluster: our scheduler's own loop decides, in virtual time, and nothing takes time.

Between `operator_sleep`'s simulation (the policy alone) and its rig (all that is real): book, filters, engine, late
pods and late binding are those of the product; API server, kubelets and machines are this file's heap of events.
``lag_s`` gives each word of a kubelet the seconds that a busy machine takes, to see what a lag costs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from wattflow.kube import objects, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.binder import BindingEnd, Bound
from wattflow.kube.client import Client
from wattflow.kube.sleeping import MAY_SLEEP, Sleeper
from wattflow.levels.power_hooks import CommandHook
from wattflow.live.protocol import Power

_NOBODY = "http://127.0.0.1:1"
_LOOK_S = 1.0
"""The scheduler decides at least so often (`Scheduler._decide_forever`)."""


@dataclass
class Clock:
    """Events in the order of their times; ``now_s`` is that of the last one."""

    now_s: float = 0.0
    _events: list[tuple[float, int, str, Any]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, time_s: float, what: str, about: Any) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (time_s, next(self._numbers), what, about))

    def take(self, until_s: float) -> list[tuple[str, Any]]:
        """Go on to the next event, or to a time before it; returns all that happens at once."""
        self.now_s = max(self.now_s, min(until_s, self._events[0][0] if self._events else until_s))
        found = []
        while self._events and self._events[0][0] <= self.now_s:
            found.append(heapq.heappop(self._events)[2:])
        return found


@dataclass(slots=True, kw_only=True)
class Machines(Sleeper):
    """Nodes that switch when they are told to, after their time; ``spans`` is when each was off."""

    at: Clock
    wake_s: float
    enter_s: float
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def sleep(self, name: str) -> None:
        """Put a node to sleep that nobody uses."""
        if name in self.states or self.busy(name):
            self.tell(name, self.states.get(name, Power.ON))
            return
        self.states[name] = Power.FALLING
        self.at.at(self.at.now_s + self.enter_s, "off", name)

    def wake(self, name: str) -> None:
        """Wake a node; one that is falling asleep first does."""
        if self.states.get(name) is Power.ASLEEP:
            self.at.at(self.at.now_s + self.wake_s, "on", name)
        if self.states.get(name) in (Power.ASLEEP, Power.FALLING):
            self.states[name] = Power.WAKING
        elif name not in self.states:
            self.tell(name, Power.ON)

    def off(self, name: str) -> None:
        """A machine is off now."""
        self.spans.setdefault(name, []).append((self.at.now_s, float("inf")))
        if self.states[name] is Power.WAKING:
            self.at.at(self.at.now_s + self.wake_s, "on", name)
            return
        self.states[name] = Power.ASLEEP
        self.tell(name, Power.ASLEEP)

    def on(self, name: str) -> None:
        """A machine is on again, and its kubelet has said so."""
        self.spans[name][-1] = (self.spans[name][-1][0], self.at.now_s)
        del self.states[name]
        self.tell(name, Power.ON)


def play(
    config: str, nodes: Sequence[objects.Node], pods: Sequence[objects.Pod], release_s: np.ndarray,
    runtime_s: np.ndarray, times: tuple[float, float], lag_s: float = 0.0,
) -> tuple[list[tuple[str, float, float]], dict[str, list[tuple[float, float]]]]:  # fmt: skip
    """Play pods through a scheduler of this configuration; each one's node, begin and end, and when nodes were off."""
    clock, client = Clock(), Client(Access(_NOBODY))
    scheduler = scheduler_process.make(client, settings.parse(config))
    scheduler.clock = scheduler.teller.clock = lambda: clock.now_s
    machines = Machines(
        client, "wattflow", CommandHook("true", "true"), lambda name: scheduler.book.in_use(name, lambda pod: False),
        scheduler._powered, scheduler._unwoken, at=clock, wake_s=times[0] + lag_s, enter_s=times[1],
    )  # fmt: skip
    scheduler.sleeper = machines
    for node in nodes:
        scheduler._on_node("ADDED", node)
    for task, at_s in enumerate(release_s.tolist()):
        clock.at(at_s, "create", task)
    rows: list[tuple[str, float, float]] = [("", np.nan, np.nan)] * len(pods)
    numbers, ended, again_s = {one.metadata.uid: task for task, one in enumerate(pods)}, 0, 0.0
    while ended < len(pods):
        for what, about in clock.take(max(clock.now_s, min(again_s, clock.now_s + _LOOK_S))):
            if what == "create":
                scheduler._on_pod("ADDED", pods[about])
            elif what == "end":
                scheduler._on_pod("DELETED", about)
                ended += 1
            else:
                (machines.on if what == "on" else machines.off)(about)
        again_s = scheduler.decide()
        again_s = clock.now_s if scheduler.decider.look_ahead(clock.now_s) else again_s
        if again_s <= clock.now_s:
            again_s = clock.now_s + 1e-3
        while not scheduler._queue.empty():
            for uid, name, _ in scheduler._queue.get_nowait():
                pod = msgspec.structs.replace(pods[numbers[uid]])
                pod.spec = msgspec.structs.replace(pod.spec, node_name=name)
                pod.status = objects.PodStatus(phase="Running")
                scheduler._report(BindingEnd(uid, Bound.DONE, ""))
                scheduler._on_pod("MODIFIED", pod)
                rows[numbers[uid]] = (name, clock.now_s, clock.now_s + float(runtime_s[numbers[uid]]))
                clock.at(rows[numbers[uid]][2] + lag_s, "end", pod)
    return rows, machines.spans


def node(name: str, cores: int, labels: dict[str, str]) -> objects.Node:
    """A node that may sleep."""
    room = {"cpu": str(cores), "memory": "256Gi", "pods": "110"}
    ready = [objects.Condition(type="Ready", status="True")]
    about = objects.Metadata(name=name, uid=name, labels={MAY_SLEEP: "true", "kubernetes.io/hostname": name, **labels})
    status = objects.NodeStatus(allocatable=room, capacity=room, conditions=ready)
    return objects.Node(metadata=about, status=status)
