"""A home knows its store again, and agents a server that was taken over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.runtime import messages as m
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied, HttpTransport, Unreachable
from wattflow.server import known_store
from wattflow.store import epochs, schema
from wattflow.store.schema import StoreMissing, StoreTrouble, open_store


def test_a_store_that_is_gone_emptied_or_another_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    home = Home(tmp_path)
    database = open_store(home.store)
    assert known_store.identity_of(home) is None
    known_store.remember(home, database, home.objects, epochs.begin(database))
    known = known_store.identity_of(home)
    open_store(home.store, known=known).dispose()
    with database.begin() as connection:
        connection.execute(sa.delete(schema.meta))
    with pytest.raises(StoreMissing):
        open_store(home.store, known=known)
    database.dispose()
    for path in tmp_path.glob("store.db*"):
        path.unlink()
    with pytest.raises(StoreMissing):
        open_store(home.store, known=known)
    assert not home.store.exists()
    open_store(home.store).dispose()  # another one in its place
    with pytest.raises(StoreMissing):
        open_store(home.store, known=known)
    assert "store.json" in str(known_store.gone("x", home))
    with pytest.raises(StoreTrouble, match="objects is gone"):
        known_store.check_objects(home, home.objects)


def test_a_store_put_back_by_hand_begins_beyond_what_the_home_has_seen(tmp_path: Path) -> None:
    home = Home(tmp_path)
    database = open_store(home.store)
    known_store.remember(home, database, home.objects, 10**13)
    later = tmp_path / "logs" / "0" / "5.1.log"
    later.parent.mkdir(parents=True)
    later.write_text("of another's task")
    known_store.catch_up(home, database)
    with database.connect() as connection:
        assert (epochs.current(connection) or 0) > 10**13
    assert not later.exists()  # the next task has this number


class Answers:
    """An HTTP server that says what it is told to, one connection after the other."""

    def __init__(self, *answers: m.Orders | m.Announced) -> None:
        self.answers = list(answers)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            body = m.pack(self.answers.pop(0))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def test_an_agent_takes_no_orders_of_a_server_that_was_taken_over_nor_of_one_too_old() -> None:
    async def body() -> None:
        said = Answers(m.Orders(epoch=7, servers=["http://127.0.0.1:9"]), m.Orders(epoch=6), m.Announced("n", 0))
        server = await asyncio.start_server(said, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = HttpTransport(url, "token")
        turn = m.Sync(node="n", boot="b")
        assert (await transport.sync(turn)).epoch == 7
        with pytest.raises(Unreachable, match="taken over"):
            await transport.sync(turn)
        assert transport._addresses.current == "http://127.0.0.1:9"  # which it was told of
        with pytest.raises(Unreachable):
            await transport.sync(turn)
        with pytest.raises(Denied, match="speaks protocol 0"):
            await transport.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "b")
        await transport.close()
        server.close()
        await server.wait_closed()
        while len(asyncio.all_tasks()) > 1:  # its last connection ends in a task of its own
            await asyncio.sleep(0.01)

    asyncio.run(body())
