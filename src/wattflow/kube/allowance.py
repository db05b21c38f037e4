"""Limit sleep as an operator allows: how many nodes stay on, how often and when they are switched, who comes first.

A cordon, a drain, an eviction or a maintenance note that somebody else put on a node wins, before and after: such a
node is neither put to sleep nor woken, and nothing of theirs is ever taken off.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattflow.kube import accounting, objects
from wattflow.kube.filters import snapshot
from wattflow.kube.tenant import PREFIX
from wattflow.live.protocol import Power
from wattflow.model.errors import InvalidInput

ZONE = "topology.kubernetes.io/zone"
MAINTENANCE = f"{PREFIX}maintenance"
OF_SLEEP = frozenset({
    "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.cloudprovider.kubernetes.io/shutdown",
})  # fmt: skip
"""Taints that a node gets because it sleeps: kubelets fall silent, clouds mark what is shut down."""
_KEEPERS = {
    MAINTENANCE: None,
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "karpenter.sh/do-not-disrupt": "true",
}
_GOING = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted")
_CONDITIONS = frozenset(
    f"node.kubernetes.io/{one}" for one in ("memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
)
"""Taints that the control plane puts there for what the kubelet says of itself: nobody's wish."""
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"(?:([A-Za-z]{3})(?:-([A-Za-z]{3}))? )?([0-2]\d):([0-5]\d)-([0-2]\d):([0-5]\d)")


def held(node: objects.Node, dedicated: frozenset[str] = frozenset()) -> str | None:
    """Return why a node is somebody else's business now; None where it is ours to switch.

    A taint that keeps pods away is somebody's word about the node, whatever its key, unless the operator has named it
    among those that only say what a node is for (``dedicated``).
    """
    if node.spec.unschedulable:
        return "it is cordoned"
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    for key, value in _KEEPERS.items():
        found = node.metadata.annotations.get(key)
        if found is not None and value in (None, found):
            return f"its annotation {key} says so"
    for taint in node.spec.taints:
        ours = taint.key.startswith(PREFIX) or taint.key in OF_SLEEP or taint.key in _CONDITIONS
        hard = taint.effect in ("NoSchedule", "NoExecute") and not ours and taint.key not in dedicated
        if taint.key in _GOING or hard:
            return f"it has the taint {taint.key}"
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the week, local time, in which no node is put to sleep."""

    days: frozenset[int]
    begin: datetime.time
    end: datetime.time

    @classmethod
    def of(cls, text: str) -> Window:
        """Read ``Mon-Fri 08:00-18:00``, ``Sat 00:00-12:00`` or ``22:00-06:00`` (every day, over midnight)."""
        found = _WINDOW.fullmatch(text.strip())
        days = [day and day.lower() for day in (found[1], found[2])] if found else []
        if found is None or any(day is not None and day not in _DAYS for day in days):
            raise InvalidInput("sleep.never", f"{text!r} is not like 'Mon-Fri 08:00-18:00' or '22:00-06:00'")
        first = _DAYS.index(days[0]) if days[0] else 0
        last = _DAYS.index(days[1]) if days[1] else first if days[0] else 6
        try:
            times = [datetime.time(int(found[i]), int(found[i + 1])) for i in (3, 5)]
        except ValueError as error:
            raise InvalidInput("sleep.never", f"{text!r}: {error}") from None
        count = (last - first) % 7 + 1
        return cls(frozenset((first + i) % 7 for i in range(count)), *times)

    def holds(self, now: datetime.datetime) -> bool:
        """Return whether a moment lies inside."""
        time = now.time()
        if self.begin <= self.end:
            return now.weekday() in self.days and self.begin <= time < self.end
        yesterday = (now.weekday() - 1) % 7
        return (now.weekday() in self.days and time >= self.begin) or (yesterday in self.days and time < self.end)


def windows(text: str) -> tuple[Window, ...]:
    """Read ``sleep.never``: parts of the week, separated by semicolons."""
    return tuple(Window.of(one) for one in text.split(";") if one.strip())


SWITCH = f"{PREFIX}sleep"
"""Annotation of the lease's namespace: ``off`` wakes all nodes and keeps them on (`wattflow kube sleep off`)."""


@dataclass(slots=True)
class Allowance:
    """Decides whether a node may be put to sleep now.

    Attributes:
        min_on: Nodes of each zone that stay on.
        headroom_m: Free milli-cores that nodes which stay on must have together.
        cooldown_s: Seconds between two switches of one node.
        per_hour: Switches of all nodes in an hour; 0 sets no limit.
        never: Parts of the week in which no node sleeps: none falls asleep, and those that sleep are woken.
        dedicated: Taints that only say what a node is for.
        off: Whether the operator has switched sleep off altogether.
    """

    views: Mapping[str, snapshot.NodeView]
    states: Mapping[str, Power]
    clock: Callable[[], float]
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now().astimezone()
    min_on: int = 0
    headroom_m: int = 0
    cooldown_s: float = 0.0
    per_hour: int = 0
    never: tuple[Window, ...] = ()
    dedicated: frozenset[str] = frozenset()
    off: bool = False
    _switched_s: dict[str, float] = field(default_factory=dict)
    _switches: deque[float] = field(default_factory=deque)

    def against(self, name: str) -> str | None:
        """Return why a node may not be put to sleep now, or None."""
        view = self.views.get(name)
        if view is None:
            return "it is gone"
        if self.off:
            return "sleep is switched off"
        reason = self.held(view.node) or self._too_soon(name)
        if reason is not None:
            return reason
        if self._kept_on():
            return "the schedule keeps nodes on now"
        return self._too_few(name, view)

    def held(self, node: objects.Node) -> str | None:
        """Return why a node is somebody else's business; see the function of this name."""
        return held(node, self.dedicated)

    def wanted(self, asleep: Sequence[str]) -> list[str]:
        """Return which of these sleeping nodes must be on now, in their order.

        All of them while sleep is switched off or the schedule says so; else as many as a zone lacks to its minimum,
        and the cluster to its headroom. Nodes on their way count as on, or each look would wake more.
        """
        if self.off or self._kept_on():
            return list(asleep)
        if not self.min_on and not self.headroom_m:
            return []
        on = [one for key, one in self.views.items() if self._stays(key, one)]
        zones = Counter(_zone(one) for one in on)
        free_m = sum(map(_free_m, on))
        found = []
        for name in asleep:
            view = self.views.get(name)
            if view is not None and (zones[_zone(view)] < self.min_on or free_m < self.headroom_m):
                zones[_zone(view)] += 1
                free_m += _free_m(view)
                found.append(name)
        return found

    def _kept_on(self) -> bool:
        return any(window.holds(self.now()) for window in self.never)

    def _stays(self, name: str, view: snapshot.NodeView) -> bool:
        return self.states.get(name, Power.WAKING) is Power.WAKING and self.held(view.node) is None

    def switched(self, name: str) -> None:
        """Note that a node was switched."""
        now_s = self.clock()
        self._switched_s[name] = now_s
        self._switches.append(now_s)

    def _too_soon(self, name: str) -> str | None:
        now_s = self.clock()
        while self._switches and now_s - self._switches[0] > 3600:
            self._switches.popleft()
        if now_s - self._switched_s.get(name, -1e18) < self.cooldown_s:
            return "it was switched a short while ago"
        return "enough nodes were switched this hour" if 0 < self.per_hour <= len(self._switches) else None

    def _too_few(self, name: str, view: snapshot.NodeView) -> str | None:
        if not self.min_on and not self.headroom_m:
            return None  # a walk over all nodes for each that falls asleep
        stay = [one for key, one in self.views.items() if key != name and self._stays(key, one)]
        if sum(_zone(one) == _zone(view) for one in stay) < self.min_on:
            return f"{self.min_on} nodes of its zone stay on"
        return "its cores are the headroom" if sum(map(_free_m, stay)) < self.headroom_m else None


def _zone(view: snapshot.NodeView) -> str:
    return view.node.metadata.labels.get(ZONE, "")


def _free_m(view: snapshot.NodeView) -> int:
    """Return the milli-cores of a node that nobody has asked for."""
    return view.allocatable.get(accounting.CPU, 0) - view.requested.get(accounting.CPU, 0)
