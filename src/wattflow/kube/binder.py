"""Write for the scheduler: bindings with a UID precondition, the PodScheduled condition, events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

import aiohttp

from wattflow.kube import objects
from wattflow.kube.client import STRATEGIC, ApiError, Client

log = logging.getLogger(__name__)
# Memory stays bounded where the API is slower than we place.
_MOST_LATER = 10_000
_VERSIONS = {
    "Workflow": "argoproj.io/v1alpha1",
    "WorkflowTemplate": "argoproj.io/v1alpha1",
    "ClusterWorkflowTemplate": "argoproj.io/v1alpha1",
    "NodePowerProfile": "wattflow.io/v1alpha1",
}
"""API versions of kinds that are not of the core."""


class Bound(Enum):
    """How a binding ended."""

    DONE = "bound"
    GONE = "the pod is gone"
    TAKEN = "another bound it, or it was made anew"
    FAILED = "refused"
    CONFLICT = "another placer was quicker"


@dataclass(slots=True)
class BindingEnd:
    """A binding that ended."""

    uid: str
    bound: Bound
    text: str


def stamp() -> str:
    """Spell the present moment as the API writes times."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Binder:
    """Writes for one scheduler. Events are best effort: they cost as much as a binding, so bindings go first.

    Attributes:
        exact: Whether a pod is bound only in the version that we have read: where placers steal, one that was stolen
            while its binding was under way is the thief's.
    """

    client: Client
    scheduler: str
    events_per_s: float = 50.0
    timeout_s: float = 4.0
    exact: bool = False
    dropped_events: int = 0
    later: deque[tuple[str, objects.Metadata, str, str, str]] = field(default_factory=lambda: deque(maxlen=_MOST_LATER))

    async def bind(self, pod: objects.Pod, node: str, notes: dict[str, str]) -> tuple[Bound, str]:
        """Bind a pod; the notes become annotations of it. An unclear answer is settled by a look at the pod."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        version = {"resourceVersion": pod.metadata.resource_version} if self.exact else {}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": pod.metadata.uid,
                "annotations": notes,
                **version,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self.client.quick("POST", f"{path}/binding", body, self.timeout_s)
            return Bound.DONE, ""
        except ApiError as error:
            if error.code == 404:
                return Bound.GONE, error.message
            # 409: bound already (perhaps by our own request whose answer was lost), or another uid or version.
            if error.code == 409:
                return await self._settle(pod, node, error.message)
            # The request itself was refused: certainly nothing was written.
            if error.code < 500:
                return Bound.FAILED, error.message
            return await self._settle(pod, node, error.message)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return await self._settle(pod, node, str(error) or type(error).__name__)

    async def _settle(self, pod: objects.Pod, node: str, message: str) -> tuple[Bound, str]:
        """Look where the pod is after an answer that leaves it open."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        try:
            found = await self.client.get(path, objects.Pod)
        except ApiError as error:
            return (Bound.GONE if error.code == 404 else Bound.FAILED), message
        except (aiohttp.ClientError, TimeoutError, OSError):
            # Still open. FAILED is safe: if the binding did get through, the watch tells of it and the book
            # follows.
            return Bound.FAILED, message
        if found.metadata.uid != pod.metadata.uid:
            return Bound.GONE, "a new pod has its name"
        if found.spec.node_name == node:
            return Bound.DONE, ""
        return (Bound.TAKEN if found.spec.node_name else Bound.FAILED), message

    async def unschedulable(self, pod: objects.Pod, text: str, reason: str = "Unschedulable") -> None:
        """Say in the pod's status why it waits."""
        # The uid in metadata is a precondition: a new pod of this name must not get the old one's
        # condition.
        body = {
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": reason,
                        "message": text[:1024],
                        "lastProbeTime": None,
                        "lastTransitionTime": stamp(),
                    }
                ]
            },
            "metadata": {"uid": pod.metadata.uid},
        }
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        try:
            await self.client.call("PATCH", path, body, content=STRATEGIC)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("%s: condition not written: %s", pod.key, error)

    def event(self, pod: objects.Pod, kind: str, reason: str, text: str) -> None:
        """Have an event of a pod written when there is time."""
        self.event_of("Pod", pod.metadata, kind, reason, text)

    def event_of(self, what: str, metadata: objects.Metadata, kind: str, reason: str, text: str) -> None:
        """Have an event of any object written when there is time; of too many the oldest are left out, and counted."""
        # A full deque drops its oldest by itself, without telling.
        self.dropped_events += len(self.later) == _MOST_LATER
        self.later.append((what, metadata, kind, reason, text))

    async def write_events(self, idle: Callable[[], bool]) -> None:
        """Write events one after another, at their rate, while nothing more urgent is under way."""
        while True:
            await asyncio.sleep(1 / self.events_per_s)
            if self.later and idle():
                await self._event(*self.later.popleft())

    async def _event(self, what: str, meta: objects.Metadata, kind: str, reason: str, text: str) -> None:
        now, space = stamp(), meta.namespace or "default"  # events of what has no namespace belong there
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            # The time makes the name unique, as kube-scheduler's own events do it.
            "metadata": {"name": f"{meta.name[:200]}.{time.time_ns():x}", "namespace": space},
            "eventTime": now,
            "reportingController": self.scheduler,
            "reportingInstance": self.scheduler,
            "action": "Binding" if kind == "Normal" else "Scheduling",
            "reason": reason,
            "type": kind,
            "note": text[:1024],
            "regarding": {
                "apiVersion": _VERSIONS.get(what, "v1"),
                "kind": what,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
        }
        try:
            path = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
            await self.client.quick("POST", path, body, self.timeout_s)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("%s %s/%s: event not written: %s", what, meta.namespace, meta.name, error)
