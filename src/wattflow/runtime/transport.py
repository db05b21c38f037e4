"""How an agent reaches its server: by HTTP, or by a call where both are one process.

Its news are kept in the outbox until the server has answered, sent in portions, bad ones set aside.
"""

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


import contextlib
from collections.abc import Iterator

from wattflow.runtime import messages as m
from wattflow.runtime.logs import LIMIT_BYTES

NEWS = ("started", "ended", "energy", "windows", "warmed")
MOST_NEWS, MOST_BYTES = 4096, 16 << 20
"""Items that one report brings at most, of each kind, and bytes of results: the server takes 64 MiB."""
LOG_EVERY_S = 0.1
LOG_PIECE = 4 << 20


class Outbox:
    """News that the server has not answered yet."""

    def __init__(self) -> None:
        self.started: list[tuple[int, float, float]] = []
        self.ended: list[m.Ended] = []
        self.energy: list[m.TaskEnergy] = []
        self.windows: list[m.Window] = []
        self.warmed: list[m.Warmed] = []

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to tell."""
        return not any(getattr(self, name) for name in NEWS)

    def take(self) -> Outbox:
        """The oldest news, as many as fit into one report."""
        taken = Outbox()
        for name in NEWS:
            all_of_it = getattr(self, name)
            count = _fitting(all_of_it) if name == "ended" else MOST_NEWS
            setattr(taken, name, all_of_it[:count])
            setattr(self, name, all_of_it[count:])
        return taken

    def put_back(self, taken: Outbox) -> None:
        """Put back what did not arrive: it goes first next time."""
        for name in NEWS:
            # In front, in their order: an end must not overtake the start that it belongs to.
            setattr(self, name, getattr(taken, name) + getattr(self, name))

    def fields(self) -> dict[str, object]:
        """As a `Sync` has them."""
        return {name: getattr(self, name) for name in NEWS}

    def singles(self) -> Iterator[tuple[str, object, Outbox]]:
        """Each piece of news alone, with its kind."""
        for name in NEWS:
            for one in getattr(self, name):
                box = Outbox()
                getattr(box, name).append(one)
                yield name, one, box


def _fitting(ends: list[m.Ended]) -> int:
    """How many of these ends go into one report; at least one."""
    size = 0
    for count, end in enumerate(ends[:MOST_NEWS]):
        # Inline results count: a report above the server's body limit would be refused as a whole, again and again.
        size += len(end.result.data) if end.result is not None and end.result.data is not None else 0
        if size > MOST_BYTES and count:
            return count
    return MOST_NEWS


class FenceNames:
    """Fences of attempts that went on under another one: who runs them knows the first, the server the present one."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._now: dict[int, int] = {}
        self._first: dict[int, int] = {}

    def rename(self, before: int, fence: int) -> None:
        """An attempt has another fence from now on."""
        first = self._first.pop(before, before)
        self._now[first], self._first[fence] = fence, first
        while len(self._now) > self._most:
            self._first.pop(self._now.pop(next(iter(self._now))), None)

    def now(self, first: int) -> int:
        """The fence under which an attempt goes that began with this one."""
        return self._now.get(first, first)

    def first(self, fence: int) -> int:
        """The fence with which an attempt began."""
        return self._first.get(fence, fence)


class Output:
    """An attempt's output on its way: sent a few times a second, the rest at the end. Beyond what the server keeps of
    one attempt it is dropped here."""

    def __init__(self, fence: int, transport: Transport) -> None:
        self.fence, self._transport = fence, transport
        self._buffer = bytearray()
        self._sent = 0
        self._sending: asyncio.Task[None] | None = None

    def add(self, data: bytes) -> None:
        """Take output as it comes."""
        # Dropped here, not at the server: a task that writes without end would fill the network first.
        if self._sent + len(self._buffer) > LIMIT_BYTES:
            return
        self._buffer += data
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._later())

    def goes_on(self, fence: int) -> None:
        """Take what comes from now on for another attempt's output, which begins with it."""
        # The server keeps output by attempt from offset 0; what the first fence wrote stays with that one.
        self.fence, self._sent = fence, 0

    async def _later(self) -> None:
        await asyncio.sleep(LOG_EVERY_S)
        await self._send()

    async def _send(self) -> None:
        while self._buffer:
            data = bytes(self._buffer[:LOG_PIECE])
            del self._buffer[:LOG_PIECE]
            sent, self._sent = self._sent, self._sent + len(data)
            # Output is not worth a retry that would hold up the attempt's end.
            with contextlib.suppress(Denied, Unreachable):
                await self._transport.log(self.fence, sent, data)

    async def flush(self) -> None:
        """Send what is left."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            await self._send()


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
