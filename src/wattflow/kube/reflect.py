"""A local copy of one collection, kept by list and watch; changes go to a receiver in order.

A dropped watch goes on where it was; a version that is gone is answered by a new list, whose differences from what we
hold are told as changes. So the receiver never needs to know that a connection broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import ApiError, Client, Expired, uncollected

log = logging.getLogger(__name__)
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_MOST_BACKOFF_S = 30.0


class Keyed(Protocol):
    """Require a key and metadata of a mirrored object."""

    @property
    def key(self) -> str: ...

    metadata: objects.Metadata


K = TypeVar("K", bound=Keyed)
Receiver = Callable[[str, K], None]
"""Called with ADDED, MODIFIED or DELETED and the object."""


@dataclass(slots=True)
class Mirror(Generic[K]):
    """One collection. ``items`` is the copy, ``synced`` is set after the first list, ``told`` by the first news.

    Attributes:
        aside: Told of an object that cannot be read or whose receiver failed, and why: it alone is left out.
        optional: A collection that the server does not serve to us counts as empty, and is asked for again and again.
    """

    client: Client
    path: str
    kind: type[K]
    receive: Receiver[K]
    query: Mapping[str, str] = field(default_factory=dict)
    after_batch: Callable[[], None] = lambda: None
    items: dict[str, K] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    heard_s: float = field(default_factory=time.monotonic)
    relists: int = 0
    version: str = ""
    watch_s: float = 300.0
    aside: Callable[[str, objects.Metadata, str], None] = lambda path, metadata, why: log.error(
        "%s: %s/%s is set aside: %s", path, metadata.namespace, metadata.name, why
    )
    optional: bool = False

    @property
    def age_s(self) -> float:
        """Return the seconds since the API server last said anything; bookmarks come about once a minute."""
        return time.monotonic() - self.heard_s

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        backoff = 0.5
        while True:
            try:
                if not self.version:
                    await self.relist()
                began_s = time.monotonic()
                await self._follow()
                # A watch that ends at once is no success: without this a server that closes every connection would
                # be asked in a loop.
                if time.monotonic() - began_s > 1:
                    backoff = 0.5
                    continue
            except Expired:
                # Without a version the next round lists.
                self.version = ""
                log.info("%s: version expired, listing anew", self.path)
            except (aiohttp.ClientError, TimeoutError, ApiError, OSError, msgspec.MsgspecError) as error:
                # What cannot be read does not end the scheduler: it is told, and asked for again.
                if isinstance(error, ApiError) and error.code in (403, 404) and self.optional:
                    if not self.synced.is_set():
                        log.warning("%s is not served to us; it is looked for again", self.path)
                    self.synced.set()
                elif isinstance(error, ApiError) and error.code in (401, 403, 404):
                    log.error("%s: %s", self.path, error)
                else:
                    log.warning("%s: %s; again in %.1f s", self.path, error, backoff)
            # Spread, so that replicas and mirrors that lost one server do not all come back at the same moment.
            await asyncio.sleep(backoff * random.uniform(0.8, 1.2))
            backoff = min(_MOST_BACKOFF_S, backoff * 2)

    async def news(self, within_s: float = 0.3) -> None:
        """Wait for what happened since the list, which comes first; where nothing has, for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.told.wait()

    async def relist(self) -> None:
        """List everything and tell what differs from the copy."""
        # The first list may come from the server's cache. A later one may not: the cache of another server
        # can be older than what we have told already, and time must not run backwards for the receiver.
        found = await self.client.list_all(self.path, self.kind, query=self.query, fresh=self.relists > 0)
        self.relists += 1
        self.heard_s = time.monotonic()
        with uncollected():
            self._take_over(found.items, {(one.metadata.namespace, one.metadata.name) for one in found.bad})
        for one in found.bad:
            self.aside(self.path, one.metadata, one.why)
        self.version = found.version
        self.synced.set()
        self.after_batch()

    def _take_over(self, found: list[K], unread: Set[tuple[str, str]] = frozenset()) -> None:
        seen = set()
        for item in found:
            key = item.key
            seen.add(key)
            known = self.items.get(key)
            # Same name, other uid: deleted and made again while we did not look. The receiver must see both,
            # since the new object shares nothing with the old one.
            if known is not None and known.metadata.uid != item.metadata.uid:
                self._apply(DELETED, known)
                known = None
            # Equal versions are equal objects, so an unchanged collection tells nothing at all.
            if known is None or known.metadata.resource_version != item.metadata.resource_version:
                self._apply(ADDED if known is None else MODIFIED, item)
        # A list of its own: `_apply` takes out of `items`.
        for key in [key for key in self.items if key not in seen]:
            about = self.items[key].metadata
            if (about.namespace, about.name) not in unread:  # what was last read of it holds
                self._apply(DELETED, self.items[key])

    async def _follow(self) -> None:
        # Spread, as in client-go's reflector: else all mirrors would open their watches anew at once.
        for_s = self.watch_s * random.uniform(1, 2)
        async for batch in self.client.watch(self.path, self.kind, self.version, query=self.query, for_s=for_s):
            self.heard_s = time.monotonic()
            for change in batch:
                # For unreadable objects too: else every reconnection would send them again.
                self.version = change.version
                if change.item is not None:
                    self._apply(change.kind, change.item)
                elif change.bad is not None:
                    self.aside(self.path, *change.bad)
            self.after_batch()
            self.told.set()

    def _apply(self, kind: str, item: K) -> None:
        key = item.key
        if kind == DELETED:
            self.items.pop(key, None)
        else:
            # After a list, a watch may tell ADDED of what we hold already (and MODIFIED of what we set aside):
            # the copy decides.
            kind = MODIFIED if key in self.items else ADDED
            self.items[key] = item
        try:
            self.receive(kind, item)
        except Exception as error:  # of one object: it must not end the watch, and with it the scheduler
            log.exception("%s: %s", self.path, key)
            self.aside(self.path, item.metadata, f"{type(error).__name__}: {error}")
