"""Volume claims and volumes, followed from the first pod of ours that names a claim: most clusters never need it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.filters import volumes
from wattflow.kube.reflect import DELETED, Mirror


@dataclass(slots=True)
class Shelves:
    """Keeps a book's storage; ``wake`` is called when pods may be placed that could not be before."""

    client: Client
    book: Book
    wake: Callable[[], None]
    storage: volumes.Storage = field(default_factory=volumes.Storage)

    async def run(self) -> None:
        """Follow both collections until cancelled; the book sees neither before both are listed."""
        await self.book.claimed.wait()
        claims = Mirror(
            self.client, "/api/v1/persistentvolumeclaims", objects.PersistentVolumeClaim, self.on_claim,
            after_batch=self.wake,
        )  # fmt: skip
        kept = Mirror(
            self.client, "/api/v1/persistentvolumes", objects.PersistentVolume, self.on_volume, after_batch=self.wake
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(claims.run())
            tasks.create_task(kept.run())
            await claims.synced.wait()
            await kept.synced.wait()
            self.listed()
            self.wake()

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
