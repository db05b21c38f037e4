"""Which sleeping nodes to wake beside those that the policy chooses: for tasks to come, for pods that wait too long.

A policy may have a pod wait for a busy node's room rather than wake another, and the room may go to somebody else again
and again. So whoever has waited for `PATIENCE_S` without a place gets a node: nobody waits much longer than that and a
wake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from wattflow.kube import accounting, gangs, objects, power
from wattflow.kube.book import Book
from wattflow.kube.filters import feasible, snapshot
from wattflow.live.protocol import Power

PATIENCE_S = 5.0
_MOST_PODS = 200
"""Considered at a time: each is tried on every node that is on, and bindings wait meanwhile."""
Free = Callable[[snapshot.NodeView], bool]
"""Tells whether a sleeping node is ours to wake."""
Views = Mapping[str, snapshot.NodeView]
States = Mapping[str, Power]


@dataclass(slots=True)
class Late:
    """Pods that wait for longer than they should, by a book's waiting list.

    Who got a node and still waits (others took it, or pods nearby bar it) is late again after twice the time, so that
    no pod keeps waking nodes that it cannot use.
    """

    book: Book
    _helped: dict[str, int] = field(default_factory=dict)

    def pods(self, now_s: float) -> list[objects.Pod]:
        """Return who is late now; gangs are placed as one, by the policy alone."""
        waiting, since_s = self.book.waiting, self.book.since_s
        self._helped = {uid: times for uid, times in self._helped.items() if uid in waiting}
        return [
            pod for uid, pod in waiting.items()
            if now_s - since_s.get(uid, now_s) >= PATIENCE_S * 2 ** self._helped.get(uid, 0)
            and uid not in self.book.refused and gangs.gang_of(pod) is None
        ]  # fmt: skip

    def helped(self, pods: Iterable[objects.Pod]) -> None:
        """Note that nodes were woken for these."""
        for pod in pods:
            uid = pod.metadata.uid
            self._helped[uid] = min(20, self._helped.get(uid, 0) + 1)


def for_cores(missing_m: int, views: Views, states: States, asleep: Iterable[str]) -> list[str]:
    """Return which of the sleeping nodes to wake until those on or waking have so many more milli-cores free."""
    for name, view in views.items():
        if states.get(name) in (None, Power.WAKING):
            missing_m -= _room(view).get(accounting.CPU, 0)
    woken = []
    for name in asleep:
        if missing_m <= 0:
            break
        missing_m -= views[name].allocatable.get(accounting.CPU, 0)
        woken.append(name)
    return woken


def for_pods(
    pods: Iterable[objects.Pod], views: Views, states: States, asleep: Iterable[str]
) -> dict[str, list[objects.Pod]]:
    """Return nodes to wake, each with the pods it is for: those of these that no node which is on or waking takes.

    The largest first, as they need whole nodes. Only what nodes say by themselves is looked at; what depends on other
    pods is the scheduler's to decide when the node is there.
    """
    wants = [(pod, accounting.pod_requests(pod)) for pod in pods]
    wants.sort(key=lambda one: -one[1].get(accounting.CPU, 0))
    rooms = {name: _room(view) for name, view in views.items() if states.get(name) in (None, Power.WAKING)}
    left = [name for name in asleep if states.get(name) is Power.ASLEEP]
    woken: dict[str, list[objects.Pod]] = {}
    for pod, wanted in wants[:_MOST_PODS]:
        name = next((one for one, room in rooms.items() if _takes(pod, wanted, room, views[one])), None)
        if name is None:
            name = next((one for one in left if _takes(pod, wanted, _room(views[one]), views[one])), None)
            if name is None:
                continue
            left.remove(name)
            woken[name] = []
            rooms[name] = _room(views[name])
        if name in woken:
            woken[name].append(pod)
        for key, value in wanted.items():
            rooms[name][key] = rooms[name].get(key, 0) - value
    return woken


def asleep(states: States, free: Free, book: Book) -> list[str]:
    """Return the sleeping nodes that are ours to wake, those that take the fewest watts a thread when full first."""
    views = book.cluster.nodes
    names = [name for name, state in states.items() if state is Power.ASLEEP and name in views and free(views[name])]
    return sorted(names, key=lambda name: (_full_w(views[name].node, book), name))


def _full_w(node: objects.Node, book: Book) -> float:
    """Watts of each thread of a node that is full; a node whose curve nobody knows comes last."""
    curve, threads = book.power_of(node), power.threads_of(node)
    return math.inf if curve is None else curve.at(float(threads)) / threads


def _room(view: snapshot.NodeView) -> dict[str, int]:
    return {key: value - view.requested.get(key, 0) for key, value in view.allocatable.items()}


def _takes(pod: objects.Pod, wanted: accounting.Amounts, room: Mapping[str, int], view: snapshot.NodeView) -> bool:
    # amounts first: they rule most nodes out, and cost less than labels
    return all(value <= room.get(key, 0) for key, value in wanted.items()) and (
        feasible.standing(pod, view.node) is None
    )
