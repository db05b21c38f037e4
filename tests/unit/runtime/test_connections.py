"""Connections that are too slow are closed; those of a server that was stopped itself are not."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from wattflow.server.connections import PER_S, Connections, Rates, protocol  # noqa: E402  # noqa: E402


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.slow
def test_a_message_has_a_least_pace() -> None:
    async def body() -> None:
        closed: Counter[str] = Counter()
        all_ = Connections(closed, pace_s=0.2)
        config = uvicorn.Config(_app, http=protocol(all_), ws="none", lifespan="off", log_level="critical", port=0)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        for opening in (b"", b"GET / HTTP/1.1\r\nx: ", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\nab"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(opening)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
        assert closed["pace"] == 3 and all_.open == 0 and not all_.strangers
        all_.pace_s = 600.0  # looked at when the test says so: this machine may stand still for longer than a pace
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n")
        while not all_.strangers:
            await asyncio.sleep(0.01)
        (slow,) = all_.strangers
        for sent in range(2000, 22_000, 2000):  # slow, but quick enough each time that it is looked at
            writer.write(b"x" * 2000)
            while slow._progress < sent:
                await asyncio.sleep(0.01)
            slow._check(time.monotonic())
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        writer.close()
        server.should_exit = True
        await running

    asyncio.run(body())


def test_a_rate_is_kept_and_recovers() -> None:
    now_s = [0.0]
    rates = Rates(lambda: now_s[0])
    taken = sum(rates.takes("somebody", "") for _ in range(1000))
    assert taken == int(PER_S[""] * 2)
    assert rates.takes("another", "")
    now_s[0] += 0.1
    assert sum(rates.takes("somebody", "") for _ in range(1000)) == int(PER_S[""] * 0.1)
