"""The bare connection: answers in pieces, in chunks, cut off; refusals and waits of the quick path."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from wattflow.kube.access import Access
from wattflow.kube.client import ApiError, Client
from wattflow.kube.wire import Wire

WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"


async def with_server(answers: list[list[bytes]], use: Callable[[Access], object]) -> list[bytes]:
    """Serve one list of pieces per request; an empty one closes the connection. Returns the requests."""
    seen: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            seen.append(head + await reader.readexactly(length))
            for piece in answers.pop(0) or [b""]:
                if not piece:
                    writer.close()
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        await use(Access(f"http://127.0.0.1:{port}"))  # type: ignore[misc]
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
    return seen


@pytest.mark.parametrize("raw", [WHOLE, CHUNKED])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_answers_may_come_in_any_pieces_and_the_connection_goes_on(raw: bytes, size: int) -> None:
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]

    async def use(access: Access) -> None:
        wire = await Wire.connect(access)
        for _ in range(2):
            answer = await wire.send(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert answer.body == b"hello" and answer.status in (200, 201) and wire.open
        wire.close()

    asyncio.run(with_server([list(pieces), list(pieces)], use))


def test_a_connection_that_is_cut_tells_whoever_waits() -> None:
    async def use(access: Access) -> None:
        wire = await Wire.connect(access)
        with pytest.raises(ConnectionError):
            await wire.send(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        assert not wire.open

    asyncio.run(with_server([[WHOLE[:20], b""]], use))


def test_the_quick_path_waits_when_told_and_raises_refusals() -> None:
    busy = b"HTTP/1.1 429 Too Many\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
    told = b'{"code":409,"reason":"Conflict"}'
    refused = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told)

    async def use(access: Access) -> None:
        async with Client(access) as client:
            assert await client.quick("POST", "/x", {"a": 1}, 5.0) == b"hello"
            assert client.throttled == 1
            with pytest.raises(ApiError, match="409 Conflict"):
                await client.quick("POST", "/x", {}, 5.0)

    seen = asyncio.run(with_server([[busy], [WHOLE], [refused]], use))
    assert seen[0].startswith(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:") and seen[0].endswith(b'{"a":1}')
