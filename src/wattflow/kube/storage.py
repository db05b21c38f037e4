"""Volume claims, volumes and what limits their attachments, followed from the first pod of ours that names a claim.

Most clusters never need it. Where we may (`[volumes] provision`), volumes of classes that wait for their first pod are
asked for as kube-scheduler does: a volume that lies ready gets the claim's name, else the claim gets the node's name as
an annotation and whoever provisions makes the volume; the pod is bound when its claims are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.filters import volumes
from wattflow.kube.reflect import DELETED, Mirror, Receiver


class VolumeRequests(NamedTuple):
    """Volumes that are to be made for a pod on a node."""

    pod: objects.Pod
    node: str
    done: Callable[[str | None], None]


@dataclass(slots=True)
class Shelves:
    """Keeps a book's storage; ``wake`` is called when pods may be placed that could not be before."""

    client: Client
    book: Book
    wake: Callable[[], None]
    storage: volumes.Storage = field(default_factory=volumes.Storage)
    wait_s: float = 600.0
    _asked: asyncio.Queue[VolumeRequests] = field(default_factory=asyncio.Queue)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow all collections until cancelled; the book sees none before all are listed."""
        await self.book.claimed.wait()
        core, group = "/api/v1", "/apis/storage.k8s.io/v1"
        kinds: tuple[tuple[str, type[Any], Receiver[Any]], ...] = (
            (f"{core}/persistentvolumeclaims", objects.PersistentVolumeClaim, self.on_claim),
            (f"{core}/persistentvolumes", objects.PersistentVolume, self.on_volume),
            (f"{group}/csinodes", objects.CsiNode, self._on(self.storage.drivers)),
            (f"{group}/volumeattachments", objects.VolumeAttachment, self._on(self.storage.attachments)),
        )
        # who may not read classes asks for no volumes, and without the others their room is not known
        lesser: tuple[tuple[str, type[Any], Receiver[Any]], ...] = (
            (f"{group}/storageclasses", objects.StorageClass, self._on(self.storage.classes)),
            (f"{group}/csidrivers", objects.StorageDriver, self._on(self.storage.makers)),
            (f"{group}/csistoragecapacities", objects.StorageCapacity, self._on(self.storage.capacities)),
        )
        async with asyncio.TaskGroup() as tasks:
            mirrors = [Mirror(self.client, *one, after_batch=self.wake) for one in kinds]
            some = lesser if self.storage.provisions else lesser[:1]
            mirrors += [Mirror(self.client, *one, after_batch=self.wake, optional=True) for one in some]
            for mirror in mirrors:
                tasks.create_task(mirror.run())
            for mirror in mirrors:
                await mirror.synced.wait()
            self.listed()
            self.wake()
            while True:
                asked = await self._asked.get()
                tasks.create_task(self._make(asked))

    def makes(self, pod: objects.Pod, node: str, done: Callable[[str | None], None]) -> bool:
        """Have the volumes of a pod made on a node; ``done`` hears None, or why not. False where there are none."""
        if not self.storage.provisions or not self.storage.to_make(pod):
            return False
        self._asked.put_nowait(VolumeRequests(pod, node, done))
        return True

    async def _make(self, asked: VolumeRequests) -> None:
        """Ask for the volumes and wait until all are there; what a provisioner gives up is no longer asked for."""
        keys = self.storage.to_make(asked.pod)
        uid = asked.pod.metadata.uid
        ready = {key: name for name, (owner, key) in self.storage.promised.items() if owner == uid}
        try:
            async with asyncio.timeout(self.wait_s):
                for key in keys:
                    if key in ready:
                        await self._tie(ready[key], key)
                    else:
                        await self._select(key, asked.node)
                while any(not self._is_bound(key) for key in keys):
                    for key in (key for key in keys if key not in ready):
                        claim = self.storage.claims.get(key)
                        if claim is None or claim.metadata.annotations.get(volumes.SELECTED_NODE) is None:
                            asked.done(f"the volume of claim {key} could not be made on {asked.node}")
                            return
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            asked.done(f"no volume was made on {asked.node} within {self.wait_s:.0f} s")
        except (ApiError, aiohttp.ClientError, OSError) as error:
            asked.done(f"a volume could not be asked for: {error}")
        else:
            asked.done(None)

    async def _tie(self, name: str, key: str) -> None:
        """Write a claim into a volume that lies ready; the controller that binds the two does the rest."""
        about, volume = self.storage.claims[key].metadata, self.storage.volumes[name]
        ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": about.namespace, "name": about.name,
               "uid": about.uid, "resourceVersion": about.resource_version}  # fmt: skip
        # as it was read: whoever ties it to another claim meanwhile was quicker
        metadata = {"resourceVersion": volume.metadata.resource_version, "annotations": {volumes.TIED: "yes"}}
        path = f"/api/v1/persistentvolumes/{name}"
        await self.client.call("PATCH", path, {"metadata": metadata, "spec": {"claimRef": ref}}, content=MERGE)

    async def _select(self, key: str, node: str) -> None:
        space, _, name = key.partition("/")
        body = {"metadata": {"uid": self.storage.claims[key].metadata.uid,
                             "annotations": {volumes.SELECTED_NODE: node}}}  # fmt: skip
        path = f"/api/v1/namespaces/{space}/persistentvolumeclaims/{name}"
        raw = await self.client.call("PATCH", path, body, content=MERGE)
        if key in self.storage.claims:  # what the watch tells later is newer
            self.storage.claims[key] = msgspec.json.decode(raw, type=objects.PersistentVolumeClaim)

    def _is_bound(self, key: str) -> bool:
        claim = self.storage.claims.get(key)
        return (
            claim is not None
            and claim.spec.volume_name in self.storage.volumes
            and volumes.BOUND in claim.metadata.annotations
        )

    def _on(self, known: dict[str, Any]) -> Receiver[Any]:
        """A receiver of what limits and counts attachments: whoever has a claim is looked at again."""

        def receive(kind: str, item: Any) -> None:
            if kind == DELETED:
                known.pop(item.key, None)
            else:
                known[item.key] = item
            self.book.storage_changed(lambda pod: True)

        return receive

    def listed(self) -> None:
        """All claims and volumes are known."""
        self.book.cluster.storage = self.storage
        self.book.storage_changed(lambda pod: True)

    def on_claim(self, kind: str, claim: objects.PersistentVolumeClaim) -> None:
        """A claim came, changed or went: pods that name it are looked at again."""
        if kind == DELETED:
            self.storage.claims.pop(claim.key, None)
        else:
            self.storage.claims[claim.key] = claim
        self._changed.set()
        self.book.storage_changed(lambda pod: claim.key in volumes.claims(pod))

    def on_volume(self, kind: str, volume: objects.PersistentVolume) -> None:
        """A volume came, changed or went."""
        if kind == DELETED:
            self.storage.volumes.pop(volume.key, None)
        else:
            self.storage.volumes[volume.key] = volume
        self._changed.set()
        known = self.storage.claims
        self.book.storage_changed(
            lambda pod: any(
                known[key].spec.volume_name == volume.key or self.storage.waits_for_pod(key)
                for key in volumes.claims(pod)
                if key in known
            )
        )
