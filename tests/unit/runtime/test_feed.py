"""Committed events: who may see them, how they are numbered, and what becomes of viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from wattflow.runtime import messages as m
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.ledger import RING, decoded
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.server import event_stream as hub
from wattflow.server.event_stream import Events, StreamViewer
from wattflow.store import reads
from wattflow.store.schema import open_store
from wattflow.store.writer import Writer


def opened(folder: Path) -> tuple[Service, sa.Engine]:
    database = open_store(folder / "store.db")
    return restore(database, Writer(database), AgentsDriver(), folder, "fifo"), database


def submission(workflow: str, count: int = 3) -> m.Submission:
    made = [m.Task(key=f"k{i}", name="<b>", function_name="f", command=["true"]) for i in range(count)]
    return m.Submission(workflow=workflow, name=workflow, tasks=made, seal=True)


def read(viewer: StreamViewer) -> list[tuple[str, str, dict[str, Any]]]:
    """(event, id, data) of what waits for a viewer."""
    frames = b"".join(viewer.frames).decode().split("\n\n")[:-1]
    viewer.frames.clear()
    lines = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in frames]
    return [(line["event"], line["id"], json.loads(line["data"])) for line in lines]


async def settled(service: Service, told: Events) -> None:
    """Until what was gathered is told."""
    await service.stored()
    while told._planned is not None:
        await asyncio.sleep(0.01)
    await service.stored()  # the writer answers in order: by now it has had what was gathered published
    await asyncio.gather(*told._tasks)


def test_a_viewer_resumes_after_a_restart_and_sees_its_own(tmp_path: Path) -> None:
    async def first() -> str:
        service, database = opened(tmp_path)
        told = Events(service, database)
        mine, all_ = await told.join("ann", None), await told.join(None, None)
        assert [name for name, _, _ in read(mine)] == ["hello"]
        await service.submit(submission("of-ann"), "ann")
        await service.submit(submission("of-ben"), "ben")
        await settled(service, told)
        seen = read(mine)
        assert [one["id"] for _, _, body in seen for one in body.get("workflows", ())] == ["of-ann", "of-ann"]
        assert {one["workflow"] for _, _, body in seen for one in body["tasks"] if "key" in one} == {"of-ann"}
        assert len([one for _, _, body in read(all_)[1:] for one in body["tasks"] if "key" in one]) == 6
        await service.submit(submission("later"), "ann")  # committed, never told to this viewer
        service.writer.close()
        database.dispose()
        return seen[-1][1]

    async def second(last_id: str) -> None:
        service, database = opened(tmp_path)
        told = Events(service, database)
        again = await told.join("ann", last_id)
        (batch,) = read(again)
        assert batch[0] == "batch" and {one["workflow"] for one in batch[2]["tasks"] if "key" in one} == {"later"}
        current = await told.join("ann", batch[1])
        assert read(current) == []
        for odd in ("999999", "x", "-1", "9" * 40):
            assert [name for name, _, _ in read(await told.join("ann", odd))] == ["reset", "hello"]
        service.writer.close()
        database.dispose()

    asyncio.run(second(asyncio.run(first())))


def test_a_viewer_that_was_away_too_long_starts_from_a_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        service, database = opened(tmp_path)
        assert service.ledger.feed is not None
        await service.submit(submission("a"), "ann")
        service.ledger.feed.next += RING  # a ring later
        await service.submit(submission("b"), "ann")
        with database.begin() as connection:
            connection.execute(sa.text(f"DELETE FROM events WHERE sequence < {RING}"))
        told = Events(service, database)
        assert [name for name, _, _ in read(await told.join("ann", "1"))] == ["reset", "hello"]
        service.writer.close()
        database.dispose()

    asyncio.run(main())


def test_the_ring_keeps_the_last_entries_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattflow.runtime.ledger.RING", 8)

    async def main() -> None:
        service, database = opened(tmp_path)
        for number in range(12):
            await service.submit(submission(f"w{number}", 1), "ann")
        last = reads.last_event(database)
        kept = reads.events_after(database, 0, last)
        assert len(kept) == 8 and [number for number, _ in kept] == list(range(last - 7, last + 1))
        assert reads.first_event(database) == last - 7
        assert all(decoded(entry) for _, entry in kept)
        service.writer.close()
        database.dispose()

    asyncio.run(main())


def test_a_slow_viewer_is_dropped_with_a_reason() -> None:
    async def main() -> None:
        viewer = StreamViewer(None)
        for _ in range(hub.MOST_FRAMES + 5):
            viewer.put(b"event: batch\nid: 1\ndata: {}\n\n")
        ((name, identity, body),) = [frame for frame in read_raw(await viewer.take())]
        assert name == "dropped" and identity == "" and "too slowly" in body["reason"]
        assert await viewer.take() == b""

    asyncio.run(main())


def read_raw(data: bytes) -> list[tuple[str, str, dict[str, Any]]]:
    viewer = StreamViewer(None)
    viewer.frames.append(data)
    return read(viewer)


def test_a_stream_ends_when_its_session_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ALIVE_S", 0.1)
    sent: list[dict[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def main() -> None:
        service, database = opened(tmp_path)
        told = Events(service, database)
        await asyncio.wait_for(told.stream("ann", None, lambda: False)({}, receive, send), 20)
        assert told.has_room("ann")
        service.writer.close()
        database.dispose()

    asyncio.run(main())
    assert b"event: hello" in sent[1]["body"] and b"session is over" in sent[-2]["body"]
    assert sent[-1]["more_body"] is False
