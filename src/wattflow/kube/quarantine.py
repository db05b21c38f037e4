"""Objects that are set aside: one that cannot be read, or that a receiver fails on, loses its wish and no more."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from wattflow.kube import carbon_hold, estimates, gangs, gpus, objects, tenant
from wattflow.kube.argo import watching
from wattflow.kube.binder import Binder
from wattflow.kube.prometheus_text import Metrics

log = logging.getLogger(__name__)
_KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "workflows": "Workflow",
    "workflowtemplates": "WorkflowTemplate",
    "clusterworkflowtemplates": "ClusterWorkflowTemplate",
    "nodepowerprofiles": "NodePowerProfile",
}
_REASON, _MOST_TOLD = "InvalidWish", 10_000
T = TypeVar("T", objects.Pod, objects.Node)


@dataclass(slots=True)
class Aside:
    """Counts, logs and tells by events what was left out; each thing about an object once.

    Attributes:
        tells: Whether events are written; the binder keeps them until this scheduler leads.
    """

    binder: Binder
    metrics: Metrics
    tells: bool
    _told: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def told(self, path: str, metadata: objects.Metadata, why: str) -> None:
        """Tell of an object by the path of its collection."""
        self.of(_KINDS.get(path.rsplit("/", 1)[-1], "Object"), metadata, why)

    def of(self, kind: str, metadata: objects.Metadata, why: str) -> None:
        """Tell of an object what of it was left out, and why."""
        key = (metadata.uid or f"{metadata.namespace}/{metadata.name}", why)
        # Each change of a bad object comes here again; once is enough.
        if key in self._told:
            return
        self._told[key] = None
        if len(self._told) > _MOST_TOLD:
            # The oldest. It may be told again, which is better than memory that grows.
            self._told.popitem(last=False)
        self.metrics.set_aside.add(kind=kind)
        log.warning("%s %s/%s: %s", kind, metadata.namespace, metadata.name, why)
        if self.tells:
            self.binder.event_of(kind, metadata, "Warning", _REASON, why)

    def unread(self, kind: str, metadata: objects.Metadata) -> None:
        """Tell of annotations of ours that cannot be read, and of a gang in another's words."""
        notes: Mapping[str, str] = metadata.annotations
        if any(key.startswith(tenant.PREFIX) or key == gangs.POD_GROUP for key in notes):
            for what in unread(notes):
                self.of(kind, metadata, what)

    def guarded(self, kind: str, receive: Callable[[str, T], None]) -> Callable[[str, T], None]:
        """Return a receiver that takes an object without its notes of ours where it fails on the whole of it."""

        def careful(change: str, item: T) -> None:
            try:
                receive(change, item)
            except Exception as error:  # whatever it is: the plain object must still be counted
                log.exception("%s %s: tried again without its notes", kind, item.key)
                what = f"its {tenant.PREFIX} labels and annotations are left out: {type(error).__name__}: {error}"
                self.of(kind, item.metadata, what)
                # What fails again goes to the mirror, which sets the object aside as a whole.
                receive(change, tenant.without_notes(item))

        return careful


def unread(notes: Mapping[str, str]) -> Iterator[str]:
    """Name the annotations of a pod or workflow that cannot be read, each with what it may be."""
    seconds, size = "a number of seconds from 0 up", "a number of bytes from 0 up"
    readers: dict[str, tuple[Callable[[str], object], str]] = {
        gangs.SIZE: (lambda text: 1 <= (tenant.count(text) or 0) <= gangs.MOST, f"a number of pods, 1 to {gangs.MOST}"),
        gpus.INDEX: (lambda text: tenant.count(text) is not None, "the number of a GPU"),
        estimates.RUNTIME: (lambda text: tenant.number(text) is not None, seconds),
        watching.DEADLINE: (lambda text: tenant.number(text) is not None, seconds),
        carbon_hold.WAIT: (lambda text: tenant.number(text) is not None, seconds),
        estimates.INPUT: (lambda text: tenant.number(text) is not None, size),
        estimates.OUTPUT: (lambda text: tenant.number(text) is not None, size),
    }
    for key, (reads, what) in readers.items():
        if key in notes and not reads(notes[key]):
            yield f"{key} is {notes[key][:60]!r}, not {what}: it is left out"
    if gangs.POD_GROUP in notes and gangs.GANG not in notes:
        yield f"{gangs.POD_GROUP} is not read: only {gangs.GANG} and {gangs.SIZE} let its pods start together"
