"""Gangs: pods that start together or not at all.

A pod names its gang by the annotation ``wattflow.io/gang`` and its size by ``wattflow.io/gang-size``. Until all are
there none is wanted; then they are one task of equal parts, each part as large as the largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wattflow.kube import accounting, objects, tenant
from wattflow.kube.decider_port import Wanted

GANG, SIZE = f"{tenant.PREFIX}gang", f"{tenant.PREFIX}gang-size"
MOST = 10_000
"""Pods of one gang."""


@dataclass(slots=True)
class Gang:
    """The pods of one gang that are there, and the engine's task once it is complete."""

    size: int
    members: dict[str, Wanted] = field(default_factory=dict)
    task: int | None = None
    started: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return len(self.members) >= self.size

    def uids(self) -> list[str]:
        """Members in a fixed order; part i of the task is the i-th of them."""
        return sorted(self.members)[: self.size]

    def amounts(self) -> accounting.Amounts:
        """What each part takes: the most that any member asks for."""
        most: accounting.Amounts = {}
        for wanted in self.members.values():
            for name, value in wanted.amounts.items():
                most[name] = max(value, most.get(name, 0))
        return most


def gang_of(pod: objects.Pod) -> tuple[str, int] | None:
    """The gang that a pod names, or None; one of fewer than two is none."""
    notes = pod.metadata.annotations
    size = tenant.count(notes.get(SIZE, ""))
    if GANG not in notes or size is None or not 2 <= size <= MOST:
        return None
    return f"{pod.metadata.namespace}/{notes[GANG]}", size
