"""Follows resource claims, slices and device classes, and writes allocations as kube-scheduler does.

Before a pod with claims is bound each claim gets its allocation and the pod among its users, with our finalizer's
guard that a claim in use is not deleted. The kubelet refuses a pod that is not among the users. Devices that have to be
attached or set up first (binding conditions) are waited for before the pod is bound. What a pod that waits in vain
holds alone is given back, so that it may go elsewhere; what ended pods held is given back by kube-controller-manager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.dra.device_ledger import Devices, claims_of
from wattflow.kube.dra.device_objects import Allocation, Consumer, DeviceClass, ResourceClaim, ResourceSlice
from wattflow.kube.filters import feasible
from wattflow.kube.reflect import DELETED, Mirror, Receiver

log = logging.getLogger(__name__)
GROUP = "/apis/resource.k8s.io/v1"
GUARD = "resource.kubernetes.io/delete-protection"
RIGHTS = (
    *(("resource.k8s.io", kind, "list") for kind in ("resourceclaims", "resourceslices", "deviceclasses")),
    *(("resource.k8s.io", f"resourceclaims{part}", "patch") for part in ("", "/status", "/binding")),
)
"""Group, resource and verb of what is read and written; `resourceclaims/binding` is asked for from 1.36 on."""
_TRIES = 5
_LOOK_S = 10.0
_ATTACHED_LOOK_S, _ATTACH_S = 5.0, 600.0
"""How often a device's conditions are looked at, and how long they may take: as long as kube-scheduler lets them."""
# A claim of another form than we know costs its pod the placement, never the scheduler its life.
_LOST = (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError)


class NotWritten(RuntimeError):
    """A claim is not as it was when its devices were chosen."""


@dataclass(slots=True)
class ClaimWriter:
    """Keeps a book's devices; ``wake`` is called when pods may be placed that could not be before."""

    client: Client
    book: Book
    wake: Callable[[], None]
    devices: Devices = field(default_factory=Devices)
    _jobs: asyncio.Queue[tuple[objects.Pod, Callable[[str | None], None]]] = field(default_factory=asyncio.Queue)
    _locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Follow all collections from the first pod with a claim on; the book sees none before all are listed."""
        # Most clusters have none: nothing is followed before the first pod asks.
        await self.book.asked_devices.wait()
        await self._served()
        kinds: tuple[tuple[str, type[Any], Receiver[Any]], ...] = (
            (f"{GROUP}/resourceclaims", ResourceClaim, self.on_claim),
            (f"{GROUP}/resourceslices", ResourceSlice, self.on_slice),
            (f"{GROUP}/deviceclasses", DeviceClass, self.on_class),
        )
        mirrors: list[Mirror[Any]] = [Mirror(self.client, *one, after_batch=self.wake) for one in kinds]
        async with asyncio.TaskGroup() as tasks:
            for mirror in mirrors:
                tasks.create_task(mirror.run())
            for mirror in mirrors:
                await mirror.synced.wait()
            # Only now: a part of the devices would let pods wait for what is there, or refuse them.
            self.book.cluster.devices = self.devices
            self._changed()
            tasks.create_task(self._release_forever(may_write))
            while True:
                tasks.create_task(self.write(*await self._jobs.get()))

    async def _served(self) -> None:
        """Wait until the API server has devices; told once where it has none."""
        told = False
        while True:
            try:
                await self.client.call("GET", GROUP)
            except _LOST as error:
                if not told and isinstance(error, ApiError) and error.code == 404:
                    told = True
                    log.warning("resource.k8s.io/v1 is not served (Kubernetes 1.34 or later): pods with claims wait")
            else:
                return
            await asyncio.sleep(_LOOK_S)

    def makes(self, pod: objects.Pod, node: str, done: Callable[[str | None], None]) -> bool:
        """Have the claims of an assumed pod written; ``done`` hears None, or why not. False where it has none."""
        if not pod.spec.resource_claims:
            return False
        self._jobs.put_nowait((pod, done))
        return True

    # what watches say

    def on_claim(self, kind: str, claim: ResourceClaim) -> None:
        """A claim came, changed or went."""
        if kind == DELETED:
            self.devices.drop_claim(claim.key)
        else:
            self.devices.put_claim(claim)
        self._changed()

    def on_slice(self, kind: str, found: ResourceSlice) -> None:
        """Devices came, changed or went."""
        if kind == DELETED:
            self.devices.drop_slice(found)
        else:
            self.devices.put_slice(found)
        self._changed()

    def on_class(self, kind: str, found: DeviceClass) -> None:
        """A class came, changed or went."""
        if kind == DELETED:
            self.devices.drop_class(found)
        else:
            self.devices.put_class(found)
        self._changed()

    def _changed(self) -> None:
        if self.book.cluster.devices is not None:
            self.book.storage_changed(lambda pod: bool(pod.spec.resource_claims))
            self.wake()

    # writing

    async def write(self, pod: objects.Pod, done: Callable[[str | None], None]) -> None:
        """Write the claims of an assumed pod; ``done`` hears None, or why not."""
        try:
            for _, key in claims_of(pod):
                if key is not None:
                    async with self._locks[key]:  # pods that share a claim one after the other
                        await self._reserve(key, pod)
            for _, key in claims_of(pod):
                if key is not None:
                    await self._attached(key, pod)
        except (*_LOST, NotWritten) as error:
            done(f"a resource claim could not be written: {error}")
        else:
            done(None)

    async def _reserve(self, key: str, pod: objects.Pod) -> None:
        """Write the allocation, if it is ours to write, and the pod among the users of a claim."""
        for _ in range(_TRIES):
            claim = await self.client.get(_path(key), ResourceClaim)
            if claim.metadata.deletion_timestamp is not None:
                raise NotWritten(f"{key} is being deleted")
            # Written before, perhaps by a request whose answer was lost.
            if any(one.uid == pod.metadata.uid for one in claim.status.reserved_for):
                return
            mine = self.devices.assumed.get(key)
            given = mine.allocation if mine is not None and mine.pod == pod.metadata.uid else None
            if claim.status.allocation is None and given is None:
                raise NotWritten(f"the devices of {key} were given back meanwhile")
            if claim.status.allocation is not None and given is not None:
                raise NotWritten(f"{key} was allocated by somebody else meanwhile")
            try:
                # The finalizer first: a claim that holds devices must not vanish in between.
                version = await self._guard(claim) if given is not None else claim.metadata.resource_version
                users = [*claim.status.reserved_for, _consumer(pod)]
                await self._status(claim, version, given, users)
                return
            except ApiError as error:
                # 409: it has changed since it was read; the reasons above are looked at again.
                if error.code != 409:
                    raise
        raise NotWritten(f"{key} changes too often")

    async def _attached(self, key: str, pod: objects.Pod) -> None:
        """Wait until a claim's devices are as their drivers want them for a pod to be bound; else give them back."""
        while pod.metadata.uid in self.book.records:
            claim = await self.client.get(_path(key), ResourceClaim)
            why = not_attached(claim, datetime.now(UTC))
            if why is None:
                return
            if why.final:
                others = [one for one in claim.status.reserved_for if one.uid != pod.metadata.uid]
                await self._status(claim, claim.metadata.resource_version, None, others or None)
                raise NotWritten(f"{key}: {why.text}")
            await asyncio.sleep(_ATTACHED_LOOK_S)
        raise NotWritten("the pod is gone")

    async def _guard(self, claim: ResourceClaim) -> str:
        """Protect the claim from deletion while it holds devices; its version then."""
        about = claim.metadata
        if GUARD in about.finalizers:
            return about.resource_version
        body = {"metadata": {"resourceVersion": about.resource_version, "finalizers": [*about.finalizers, GUARD]}}
        raw = await self.client.call("PATCH", _path(claim.key), body, content=MERGE)
        return msgspec.json.decode(raw, type=ResourceClaim).metadata.resource_version

    async def _status(
        self, claim: ResourceClaim, version: str, given: Allocation | None, users: list[Consumer] | None
    ) -> None:
        """Write who uses a claim, with the allocation where there is a new one; None for users gives all back."""
        # A merge patch replaces the whole list: the version makes it a precondition.
        status: dict[str, object] = {"reservedFor": users}
        if given is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status["allocation"] = msgspec.structs.replace(given, allocation_timestamp=now)
        elif users is None:
            status["allocation"] = None
        body = {"metadata": {"uid": claim.metadata.uid, "resourceVersion": version}, "status": status}
        if given is not None:
            self.devices.sent.add(claim.key)  # also where the answer is lost it may have been written
        try:
            await self.client.call("PATCH", f"{_path(claim.key)}/status", body, content=MERGE)
        except ApiError:
            # The server has said no, so nothing was written; a lost connection leaves it open.
            self.devices.sent.discard(claim.key)
            raise

    async def _release_forever(self, may_write: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if may_write():
                await self.release_idle()

    async def release_idle(self) -> None:
        """Give back the devices of pods that wait and fit nowhere with them, as kube-scheduler does."""
        for pod in [one for one in self.book.waiting.values() if one.spec.resource_claims]:
            held = self.devices.idle(pod)
            # It fits somewhere with what it holds: then it is only waiting its turn.
            if not held or any(why is None for why in feasible.feasible(pod, self.book.cluster).values()):
                continue
            for claim in held:
                try:
                    await self._status(claim, claim.metadata.resource_version, None, None)
                except _LOST as error:
                    log.warning("%s: devices that nobody uses are not given back yet: %s", claim.key, error)
        await self._settle_lost()

    async def _settle_lost(self) -> None:
        """Look at claims whose allocation was sent for pods that are placed no more: it may not have arrived."""
        for key in [key for key in self.devices.sent if self.devices.assumed[key].pod not in self.book.records]:
            try:
                claim = await self.client.get(_path(key), ResourceClaim)
            except _LOST as error:
                log.warning("%s: cannot be looked at: %s", key, error)
                continue
            # It never arrived: the devices are free again.
            if claim.status.allocation is None:
                self.devices.unassume(key)


@dataclass(frozen=True, slots=True)
class NotAttached:
    """Why a claim's devices cannot be used yet; ``final`` where waiting does not help."""

    text: str
    final: bool


def not_attached(claim: ResourceClaim, now: datetime) -> NotAttached | None:
    """Tell what a claim's devices lack for a pod to be bound, by the conditions that they name and drivers write."""
    given = claim.status.allocation
    if given is None:
        return NotAttached("it has lost its devices", final=True)
    for one in given.devices.results:
        id = one.driver, one.pool, one.device, one.share_id
        told = [each for each in claim.status.devices if (each.driver, each.pool, each.device, each.share_id) == id]
        true = {each.type for status in told for each in status.conditions if each.status == "True"}
        failed = [name for name in one.binding_failure_conditions if name in true]
        if failed and one.binding_conditions:
            return NotAttached(f"the device {one.device} says {', '.join(failed)}", final=True)
        missing = [name for name in one.binding_conditions if name not in true]
        if missing:
            since = given.allocation_timestamp
            late = since is not None and (now - datetime.fromisoformat(since)).total_seconds() > _ATTACH_S
            return NotAttached(f"the device {one.device} does not say {', '.join(missing)}", final=late)
    return None


def _consumer(pod: objects.Pod) -> Consumer:
    return Consumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def _path(key: str) -> str:
    space, _, name = key.partition("/")
    return f"{GROUP}/namespaces/{space}/resourceclaims/{name}"
