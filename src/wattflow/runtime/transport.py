"""How an agent reaches its server: by HTTP, or by a call where both are one process."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from wattflow.model.errors import WattflowError
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.messages import Node, Orders, Sync, pack
from wattflow.store.objects import Objects


class Unreachable(WattflowError):
    """The server does not answer; trying again may help."""


class Denied(WattflowError):
    """The server answered that it will not; trying again will not help."""

    status = 0


class Transport(Protocol):
    """What an agent asks of its server."""

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
        """Say what this node is."""
        self._driver.announce(node, boot)

    async def sync(self, sync: Sync) -> Orders:
        """One turn."""
        if self._driver.knows(sync.node, sync.boot):
            await self._driver.report(sync)
        return await self._driver.orders(sync)

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        """Output of an attempt."""
        written = self._driver.sink.log(fence, offset, data)
        if written is not None:
            await asyncio.wrap_future(written)

    async def get(self, name: str) -> bytes:
        """An object."""
        return await asyncio.to_thread(self._objects.get, name)

    async def put(self, data: bytes) -> str:
        """Keep an object."""
        return await asyncio.to_thread(self._objects.put, data)

    async def close(self) -> None:
        """Nothing to let go of."""


class HttpTransport:
    """One kept connection for each kind of call. Needs aiohttp."""

    def __init__(self, server: str, token: str, ca: str | None = None) -> None:
        import aiohttp

        context: object = True
        if ca is not None:
            import ssl

            context = ssl.create_default_context(cafile=ca)
        self._server = server.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={"authorization": f"Bearer {token}", "content-type": "application/msgpack",
                     "accept": "application/msgpack"},
            connector=aiohttp.TCPConnector(ssl=context, limit=16),  # type: ignore[arg-type]
            timeout=aiohttp.ClientTimeout(total=45, connect=5),
            auto_decompress=False,
        )  # fmt: skip

    async def announce(self, node: Node, boot: str) -> None:
        """Say what this node is."""
        await self._post("/v1/nodes", pack({"node": node, "boot": boot}))

    async def sync(self, sync: Sync) -> Orders:
        """One turn."""
        return msgspec.msgpack.decode(await self._post("/v1/agents/sync", pack(sync)), type=Orders)

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        """Output of an attempt."""
        await self._post(f"/v1/attempts/{fence}/log?offset={offset}", data)

    async def get(self, name: str) -> bytes:
        """An object."""
        return await self._call("GET", f"/v1/objects/{name}")

    async def put(self, data: bytes) -> str:
        """Keep an object."""
        answer = msgspec.msgpack.decode(await self._post("/v1/objects", data))
        return str(answer["object"])

    async def close(self) -> None:
        """Let go of connections."""
        await self._session.close()

    async def _post(self, path: str, body: bytes) -> bytes:
        return await self._call("POST", path, body)

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        import aiohttp

        try:
            async with self._session.request(method, self._server + path, data=body) as answer:
                data = await answer.read()
                if answer.status < 300:
                    return data
                told = _reason(data)
                message = f"{self._server}{path.split('?')[0]} answered {answer.status}: {told}"
                raise Denied(message) if 400 <= answer.status < 500 else Unreachable(message)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{self._server}: {type(error).__name__} {error}".strip()) from None


def _reason(data: bytes) -> str:
    """What a server says is wrong, out of its answer."""
    try:
        return str(msgspec.json.decode(data)["error"])[:300]
    except (msgspec.DecodeError, KeyError, TypeError):
        return data[:300].decode(errors="replace")
