"""Gangs: pods that start together or not at all.

A pod names its gang by the annotation ``wattflow.io/gang`` and its size by ``wattflow.io/gang-size``. Until all are
there none is wanted; then they are one task of equal parts, each part as large as the largest of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from wattflow.kube import accounting, objects, tenant
from wattflow.kube.decider_port import Wanted

GANG, SIZE, STARTED = f"{tenant.PREFIX}gang", f"{tenant.PREFIX}gang-size", f"{tenant.PREFIX}gang-started"
"""The third is written by the binding: when the newest of those that started together was made."""
MOST = 10_000
"""Pods of one gang."""
POD_GROUP = "scheduling.k8s.io/group-name"
"""Volcano's word for a gang; its size stands in an object of Volcano's, which is not read."""


@dataclass(slots=True)
class Gang:
    """The pods of one gang that are there, and the engine's task once it is complete.

    Attributes:
        started: Members that run, or are on their way.
        newest: When the last of those that start together was made; empty where it is not known.
    """

    key: str
    size: int
    members: dict[str, Wanted] = field(default_factory=dict)
    task: int | None = None
    started: set[str] = field(default_factory=set)
    newest: str = ""

    @property
    def complete(self) -> bool:
        return len(self.members) >= self.size

    @property
    def open(self) -> bool:
        """Tell whether more may join: it has neither been asked for nor started."""
        return self.task is None and not self.started

    def uids(self) -> list[str]:
        """List members in a fixed order; part i of the task is the i-th of them."""
        # More may have come than its size says; the same ones at every call, since part i is the i-th.
        return sorted(self.members)[: self.size]

    def amounts(self) -> accounting.Amounts:
        """Tell what each part takes: the most that any member asks for."""
        most: accounting.Amounts = {}
        for wanted in self.members.values():
            for name, value in wanted.amounts.items():
                most[name] = max(value, most.get(name, 0))
        return most

    def lacks(self, pod: objects.Pod) -> bool:
        """Tell whether a pod is the rest of a gang that runs, or stands in for a member that ended.

        Owned pods have their controller in the gang's key, so they are of this gang. Others are of a new one that took
        the name over, if they were made later than those that started together.
        """
        if not self.started or len(self.members) >= self.size:
            return False
        made = pod.metadata.creation_timestamp or ""
        return bool(_owner(pod)) or not self.newest or made <= self.newest


@dataclass(slots=True)
class Gangs:
    """All gangs of a scheduler. A name that is used again while the old gang runs is another gang."""

    _by_key: dict[str, Gang] = field(default_factory=dict)
    _key_of: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def of(self, uid: str) -> Gang | None:
        """Return the gang that a pod is in."""
        return self._by_key.get(self._key_of.get(uid, ""))

    def named(self, key: str) -> Gang | None:
        """Return a gang by its key."""
        return self._by_key.get(key)

    def join(self, wanted: Wanted) -> Gang | None:
        """Put a pod into its gang and return that; None where it is placed by itself."""
        found, uid = gang_of(wanted.pod), wanted.pod.metadata.uid
        if found is None:
            return None
        # The number after "#" tells gangs of one name apart; `rpartition`, because names may hold a "#"
        # themselves.
        base = f"{found[0]}@{_owner(wanted.pod)}"
        known = [gang for key, gang in self._by_key.items() if key.rpartition("#")[0] == base]
        # Before an open gang: a controller that replaces a member that ended means the gang that runs.
        running = next((gang for gang in known if gang.lacks(wanted.pod)), None)
        gang = running or next((gang for gang in known if gang.open and gang.size == found[1]), None)
        if gang is None:
            gang = self._made(base, found[1])
        gang.members[uid] = wanted
        self._key_of[uid] = gang.key
        # It is placed by itself: waiting for a full number again would never end.
        if running is not None:
            return None
        gang.newest = newest(one.pod for one in gang.members.values())
        return gang

    def adopt(self, wanted: Wanted) -> None:
        """Take up a pod that runs already."""
        found, uid = gang_of(wanted.pod), wanted.pod.metadata.uid
        if found is None:
            return
        base, newest = f"{found[0]}@{_owner(wanted.pod)}", wanted.pod.metadata.annotations.get(STARTED, "")
        known = (gang for key, gang in self._by_key.items() if key.rpartition("#")[0] == base)
        # Those that started together carry the same time, whatever their order in the list.
        gang = next((gang for gang in known if gang.newest == newest), None) or self._made(base, found[1])
        gang.newest = newest
        gang.members[uid] = wanted
        gang.started.add(uid)
        self._key_of[uid] = gang.key

    def follow(self, uid: str) -> Wanted | None:
        """Have a member that was refused follow by itself where others of its gang run; its wish, or None."""
        gang = self.of(uid)
        if gang is None or not gang.started:
            return None
        del self._key_of[uid]
        return gang.members.pop(uid)

    def leave(self, uid: str, ended: bool) -> tuple[Gang | None, list[Wanted]]:
        """Take a pod out of its gang; where that has not started, it and those that wait beside it form anew.

        Returns the gang that is no more, or None, and whoever has to join again.
        """
        gang = self._by_key.get(self._key_of.pop(uid, ""))
        if gang is None:
            return None, []
        del gang.members[uid]
        again: list[Wanted] = []
        # Once one runs, the others go on without it. Before that, the task has too few parts and must be
        # made anew, with whoever waits beside in a gang that was not full.
        if gang.task is not None and not ended and not gang.started:
            base = gang.key.rpartition("#")[0]
            beside = [one for key, one in self._by_key.items() if one.open and key.rpartition("#")[0] == base]
            for one in (gang, *beside):
                again += one.members.values()
                one.members = {}
                self._by_key.pop(one.key, None)
            for wanted in again:
                del self._key_of[wanted.pod.metadata.uid]
        if not gang.members:
            self._by_key.pop(gang.key, None)
            return gang, again
        return None, again

    def _made(self, base: str, size: int) -> Gang:
        gang = Gang(f"{base}#{next(self._numbers)}", size)
        self._by_key[gang.key] = gang
        return gang


def newest(pods: Iterable[objects.Pod]) -> str:
    """Return when the last of some pods was made."""
    return max((pod.metadata.creation_timestamp or "" for pod in pods), default="")


def _owner(pod: objects.Pod) -> str:
    return next((one.uid for one in pod.metadata.owner_references if one.controller), "")


def gang_of(pod: objects.Pod) -> tuple[str, int] | None:
    """Return the gang that a pod names, or None; one of fewer than two is none."""
    notes = pod.metadata.annotations
    size = tenant.count(notes.get(SIZE, ""))
    if GANG not in notes or size is None or not 2 <= size <= MOST:
        return None
    return f"{pod.metadata.namespace}/{notes[GANG]}", size
