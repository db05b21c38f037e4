"""Leader election by a Lease: one binds, the others stand by.

The holder stops binding before anybody else may start: it counts from the moment *before* it sent a renewal, and gives
itself ``renew_s`` of the lease's ``lease_s``; a request that was let through must time out within the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import ApiError, Client

log = logging.getLogger(__name__)


class LeaseSpec(objects.Object):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(objects.Object):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


@dataclass(slots=True)
class Leader:
    """Holds or waits for one Lease. ``asked`` says that it is known whether another holds it."""

    client: Client
    namespace: str
    name: str
    identity: str
    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    elected: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    _until_s: float = float("-inf")
    _seen: tuple[str, str] = ("", "")
    _seen_at_s: float = 0.0

    @property
    def leads(self) -> bool:
        """Tell whether binding is safe at this moment."""
        return self.clock() < self._until_s

    @property
    def path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def run(self, on_lost: Callable[[], None]) -> None:
        """Acquire and renew until cancelled; ``on_lost`` is called when leadership ends."""
        while True:
            await self._attempt_safely()
            if self.elected.is_set() and not self.leads:
                # Late ourselves, perhaps: a long decision makes a renewal that went through look like silence.
                # Nothing binds meanwhile, and who still stands in the lease has had no successor.
                await self._attempt_safely()
            if self.leads:
                self.elected.set()
            elif self.elected.is_set():
                self.elected.clear()
                log.error("lost the lease %s", self.name)
                on_lost()
            await asyncio.sleep(self.retry_s)

    async def _attempt_safely(self) -> None:
        try:
            await self.attempt()
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("lease %s: %s", self.name, error or type(error).__name__)

    async def attempt(self) -> None:
        """Try once to take or renew the lease."""
        # Before the request, see the module: the lease runs from when the server wrote it, which is later.
        began_s = self.clock()
        lease = await self._read()
        if lease is None:
            await self._write("POST", self.path, self._ours(None))
        elif lease.spec.holder_identity == self.identity or (not self.elected.is_set() and self._expired(lease)):
            await self._write("PUT", f"{self.path}/{self.name}", self._ours(lease))
        else:
            self.asked = True
            return
        self._until_s, self.asked = began_s + self.renew_s, True

    async def release(self) -> None:
        """Give the lease up, so that another need not wait for its end."""
        if not self.leads:
            return
        # First of all, so that no binding leaves while the release is on its way.
        self._until_s = float("-inf")
        lease = await self._read()
        if lease is not None and lease.spec.holder_identity == self.identity:
            freed = self._ours(lease)
            freed.spec.holder_identity = ""
            freed.spec.lease_duration_seconds = 1
            await self._write("PUT", f"{self.path}/{self.name}", freed)

    async def _read(self) -> Lease | None:
        try:
            # Bounded as a whole: a server that is busy and says so may be asked again for minutes by the client.
            async with asyncio.timeout(self._patience_s):
                return await self.client.get(f"{self.path}/{self.name}", Lease)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _write(self, method: str, path: str, lease: Lease) -> None:
        async with asyncio.timeout(self._patience_s):
            await self.client.call(method, path, lease, timeout_s=self._patience_s)

    @property
    def _patience_s(self) -> float:
        """Seconds for one request, as for bindings (`Scheduler.binder`): it must fail before another begins to lead."""
        return max(1.0, self.lease_s - self.renew_s - 1)

    def _expired(self, lease: Lease) -> bool:
        """Tell whether the holder was silent for a whole lease by our own clock; those of others are not trusted."""
        spec = lease.spec
        if not spec.holder_identity:
            return True
        # The pair tells a renewal from silence without comparing clocks: only a change is noted, by our own
        # clock.
        seen = (spec.holder_identity, spec.renew_time or "")
        if seen != self._seen:
            self._seen, self._seen_at_s = seen, self.clock()
        return self.clock() - self._seen_at_s > (spec.lease_duration_seconds or self.lease_s)

    def _ours(self, old: Lease | None) -> Lease:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        metadata = objects.Metadata(name=self.name, namespace=self.namespace)
        acquired, transitions = now, 0
        if old is not None:
            # The write succeeds only on the version that was read: of two that find it expired, one gets 409.
            metadata.resource_version = old.metadata.resource_version
            same = old.spec.holder_identity == self.identity
            acquired = (old.spec.acquire_time or now) if same else now
            transitions = old.spec.lease_transitions + (not same)
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=round(self.lease_s),
            acquire_time=acquired,
            renew_time=now,
            lease_transitions=transitions,
        )
        return Lease(metadata=metadata, spec=spec)
