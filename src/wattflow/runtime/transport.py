"""How an agent reaches its server: by HTTP, or by a call where both are one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wattflow.model.errors import WattflowError
from wattflow.runtime.addresses import Addresses, trust
from wattflow.runtime.messages import PROTOCOL, Announced, Announcement, Node, Orders, Sync, pack
from wattflow.store.objects import Objects

if TYPE_CHECKING:
    from wattflow.runtime.drivers.agents import AgentsDriver

LONGEST_S = 45.0
"""For an answer to anything but a turn."""
SILENT_AFTER_S = 4.0
"""A turn's answer that is later than asked for by this much does not come: others may serve by now."""
PIECE = 1 << 20
BUSY = 429
"""Too many requests: trying again, later, helps."""


class Unreachable(WattflowError):
    """The server does not answer; trying again may help."""


class Denied(WattflowError):
    """The server answered that it will not; trying again will not help.

    Attributes:
        status: HTTP's number for why, where that is known.
    """

    status = 0

    @property
    def of_me(self) -> bool:
        """Return whether it is the one who asks that the server does not want, not what was asked."""
        return self.status in (401, 403, 409)


class Transport(Protocol):
    """The calls that an agent makes to its server."""

    async def announce(self, node: Node, boot: str) -> None:
        """Say what this node is."""

    async def sync(self, sync: Sync) -> Orders:
        """One turn."""

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        """Output of an attempt."""

    async def get(self, name: str) -> bytes:
        """An object."""

    async def put(self, data: bytes) -> str:
        """Keep an object."""

    async def close(self) -> None:
        """Let go of connections."""


class DirectTransport:
    """Calls into the driver of the same process."""

    def __init__(self, driver: AgentsDriver, objects: Objects) -> None:
        self._driver, self._objects = driver, objects

    async def announce(self, node: Node, boot: str) -> None:
        self._driver.announce(node, boot)

    async def sync(self, sync: Sync) -> Orders:
        if self._driver.knows(sync.node, sync.boot):
            await self._driver.report(sync)
        return await self._driver.orders(sync)

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        written = self._driver.sink.log(fence, offset, data)
        if written is not None:
            await asyncio.wrap_future(written)

    async def get(self, name: str) -> bytes:
        return await asyncio.to_thread(self._objects.get, name)

    async def put(self, data: bytes) -> str:
        return await asyncio.to_thread(self._objects.put, data)

    async def close(self) -> None:
        """Nothing to let go of."""


class HttpTransport:
    """One kept connection for each kind of call. Needs aiohttp.

    Args:
        server: An address, or several with commas between: a server and those that take over from it.
    """

    def __init__(self, server: str, token: str, ca: str | None = None) -> None:
        import aiohttp

        context: Any = True if ca is None else trust(ca)
        self._addresses, self._epoch = Addresses(server), 0
        self._session = aiohttp.ClientSession(
            headers={
                "authorization": f"Bearer {token}",
                "content-type": "application/msgpack",
                "accept": "application/msgpack",
            },
            connector=aiohttp.TCPConnector(ssl=context, limit=16),
            timeout=aiohttp.ClientTimeout(total=LONGEST_S, connect=5),
            auto_decompress=False,
        )

    async def announce(self, node: Node, boot: str) -> None:
        body = pack(Announcement(node, boot, PROTOCOL))
        told = msgspec.msgpack.decode(await self._call("POST", "/v1/nodes", body), type=Announced)
        # One version back is spoken, so that agents may be upgraded one by one while work runs.
        if told.protocol < PROTOCOL - 1:
            raise Denied(
                f"the server speaks protocol {told.protocol}, this agent {PROTOCOL}: bring the server up to date"
            )

    async def sync(self, sync: Sync) -> Orders:
        asked = self._addresses.current
        data = await self._call("POST", "/v1/agents/sync", pack(sync), sync.wait_s + SILENT_AFTER_S)
        orders = msgspec.msgpack.decode(data, type=Orders)
        # A server that was paused, and another took over: what it orders was never committed, and must not be run.
        if orders.epoch < self._epoch:
            self._addresses.failed(asked)
            raise Unreachable(f"{asked} was taken over by another server")
        self._epoch = orders.epoch
        self._addresses.learn(orders.servers)
        return orders

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        await self._call("POST", f"/v1/attempts/{fence}/log?offset={offset}", data)

    async def get(self, name: str) -> bytes:
        return await self._call("GET", f"/v1/objects/{name}")

    async def put(self, data: bytes) -> str:
        body = data if len(data) <= PIECE else _pieces(data)
        answer = msgspec.msgpack.decode(await self._call("POST", "/v1/objects", body))
        return str(answer["object"])

    async def close(self) -> None:
        await self._session.close()

    async def _call(
        self, method: str, path: str, body: bytes | AsyncIterator[bytes] | None = None, within_s: float = LONGEST_S
    ) -> bytes:
        import aiohttp

        server, limit = self._addresses.current, aiohttp.ClientTimeout(total=within_s, connect=5)
        try:
            async with self._session.request(method, server + path, data=body, timeout=limit) as answer:
                data = await answer.read()
                if answer.status < 300:
                    return data
                message = f"{server}{path.split('?')[0]} answered {answer.status}: {_reason(data)}"
                # A server's own trouble, or one too busy, is no verdict on this agent: it waits and asks the next
                # address.
                if not 400 <= answer.status < 500 or answer.status in (408, BUSY):
                    self._addresses.failed(server)
                    raise Unreachable(message)
                denied = Denied(message)
                denied.status = answer.status
                raise denied
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._addresses.failed(server, silent=isinstance(error, TimeoutError))
            raise Unreachable(f"{server}: {type(error).__name__} {error}".strip()) from None


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    """A large body bit by bit: sent as one it would hold the agent's loop, and a silent agent is a lost one."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
        await asyncio.sleep(0)


def _reason(data: bytes) -> str:
    """Find what a server says is wrong, out of its answer."""
    try:
        return str(msgspec.json.decode(data)["error"])[:300]
    except (msgspec.DecodeError, KeyError, TypeError):
        return data[:300].decode(errors="replace")
