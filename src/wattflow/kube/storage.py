"""Volume claims, volumes and what limits their attachments, followed from the first pod of ours that names a claim.

Most clusters never need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.filters import volumes
from wattflow.kube.reflect import DELETED, Mirror, Receiver


@dataclass(slots=True)
class Shelves:
    """Keeps a book's storage; ``wake`` is called when pods may be placed that could not be before."""

    client: Client
    book: Book
    wake: Callable[[], None]
    storage: volumes.Storage = field(default_factory=volumes.Storage)

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
        async with asyncio.TaskGroup() as tasks:
            mirrors = [Mirror(self.client, *one, after_batch=self.wake) for one in kinds]
            for mirror in mirrors:
                tasks.create_task(mirror.run())
            for mirror in mirrors:
                await mirror.synced.wait()
            self.listed()
            self.wake()

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
        self.book.storage_changed(lambda pod: claim.key in volumes.claims(pod))

    def on_volume(self, kind: str, volume: objects.PersistentVolume) -> None:
        """A volume came, changed or went."""
        if kind == DELETED:
            self.storage.volumes.pop(volume.key, None)
        else:
            self.storage.volumes[volume.key] = volume
        known = self.storage.claims
        self.book.storage_changed(
            lambda pod: any(known[key].spec.volume_name == volume.key for key in volumes.claims(pod) if key in known)
        )
