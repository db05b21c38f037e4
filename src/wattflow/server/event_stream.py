"""`GET /v1/events`: what was committed, as server-sent events. A batch is encoded once for all who may see the same.

Nothing is told before it is on disk, and every batch ends with the number of the last entry in it; so a viewer that
comes back with that number goes on with the next entry, also after the server was killed: the store keeps the entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa
from starlette.responses import Response

from wattflow.runtime.aside import Background
from wattflow.runtime.ledger import Event, decoded
from wattflow.runtime.service import Service
from wattflow.runtime.turns import call_in, on_disk
from wattflow.store import reads

EVERY_S = 0.25
ALIVE_S = 15.0
MOST_VIEWERS, MOST_OF_ONE = 256, 128
MOST_BYTES, MOST_FRAMES = 4 << 20, 120
"""So much may wait for one viewer; one that leaves more lying is dropped."""
PIECE, PIECE_BYTES = 500, 64 << 10
"""Entries that are read at once, and bytes of them that are told before others have a turn of the loop."""
LISTS = ("workflows", "tasks", "attempts", "nodes", "windows")
Entry = tuple[int, bytes]
SLOW = "this viewer reads too slowly: more than {} were waiting for it; load the view anew"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass(eq=False, slots=True)
class StreamViewer:
    """One stream.

    Attributes:
        owner: Whose events it may see; None sees all.
        frames: What it has not read yet.
    """

    owner: str | None
    frames: deque[bytes] = field(default_factory=deque)
    size: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    def put(self, frame: bytes) -> None:
        """A frame for it; what is too much ends the stream with a reason."""
        if self.over:
            return
        # A viewer that stopped reading holds its frames in this process: it is dropped, and told why.
        if self.size + len(frame) > MOST_BYTES or len(self.frames) >= MOST_FRAMES:
            self.frames.clear()
            frame, self.over = _frame("dropped", {"reason": SLOW.format(f"{self.size >> 10} KiB")}, None), True
        self.frames.append(frame)
        self.size += len(frame)
        self.ready.set()

    def end(self) -> None:
        """Nothing more comes."""
        self.over = True
        self.ready.set()

    async def take(self) -> bytes:
        """All that waits, at once; a comment where nothing came for long; empty at the end."""
        if not self.frames and not self.over:
            self.ready.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ready.wait(), ALIVE_S)
        taken = b"".join(self.frames)
        self.frames.clear()
        self.size = 0
        return taken or (b"" if self.over else b": alive\n\n")


class Events:
    """Everybody who watches, and what is gathered for them."""

    def __init__(self, service: Service, database: sa.Engine) -> None:
        assert service.ledger.feed is not None
        self._service, self._database, self._feed = service, database, service.ledger.feed
        self._viewers: set[StreamViewer] = set()
        self._gathered: list[Entry] = []
        self._planned: asyncio.TimerHandle | None = None
        self._publishing = asyncio.Lock()
        self._tasks = Background()
        self._feed.listener = self._gather

    def close(self) -> None:
        """End all streams: the server stops."""
        for viewer in tuple(self._viewers):
            viewer.end()

    def has_room(self, owner: str | None) -> bool:
        """Say whether one more may watch: neither all together nor one user's may be too many."""
        own = sum(viewer.owner == owner for viewer in self._viewers)
        return len(self._viewers) < MOST_VIEWERS and own < MOST_OF_ONE

    def stream(self, owner: str | None, last_id: str | None, still: Callable[[], bool] = lambda: True) -> Response:
        """The answer to one viewer, who is let go when it is ``still`` known no more."""
        return EventStream(self, owner, last_id, still)

    async def join(self, owner: str | None, last_id: str | None) -> StreamViewer:
        """A viewer that has, or will get, all from its number on, or from now."""
        self._flush()  # what was gathered so far is for those who were there
        viewer = StreamViewer(owner)
        self._viewers.add(viewer)
        now = self._feed.next - 1
        try:
            await on_disk(self._service.writer)
            await self._begin(viewer, last_id, now)
        except BaseException:
            self.leave(viewer)
            raise
        return viewer

    def leave(self, viewer: StreamViewer) -> None:
        """A viewer is gone."""
        viewer.over = True
        self._viewers.discard(viewer)

    async def _begin(self, viewer: StreamViewer, last_id: str | None, now: int) -> None:
        """Put what comes before the first live batch in front of whatever came meanwhile."""
        before: list[bytes] = []
        after = int(last_id) if last_id is not None and last_id.isdecimal() and len(last_id) < 18 else None
        if last_id and (after is None or after > now or await self._is_forgotten(after, now)):
            reason = "the events after the last one that you saw are not kept any more: load the view anew"
            before.append(_frame("reset", {"reason": reason}, None))
            after = None
        if after is None:
            before.append(_frame("hello", {"sequence": now, "now_s": self._service.now()}, now))
        else:
            before += [frame async for frame in self._replayed(viewer.owner, after, now)]
        viewer.frames.extendleft(reversed(before))
        viewer.ready.set()

    async def _is_forgotten(self, after: int, now: int) -> bool:
        return after < now and await asyncio.to_thread(reads.first_event, self._database) > after + 1

    async def _replayed(self, owner: str | None, after: int, up_to: int) -> Any:
        while after < up_to:
            found = await asyncio.to_thread(reads.events_after, self._database, after, up_to, PIECE)
            if not found:
                return
            after = found[-1][0]
            for piece in _pieces(found):
                frame = self._batch(_events(piece), owner, piece[-1][0])
                if frame is not None:
                    yield frame
                await asyncio.sleep(0)

    def _gather(self, number: int, entry: bytes) -> None:
        """Keep an entry until it is told: as bytes, for thousands of small objects would keep the collector busy."""
        if not self._viewers:
            return
        self._gathered.append((number, entry))
        # A few times a second for all: a frame for every commit would be hundreds a second for each viewer.
        if self._planned is None:
            self._planned = asyncio.get_running_loop().call_later(EVERY_S, self._flush)

    def _flush(self) -> None:
        """Have what was gathered told to those who watch now, once the store has it."""
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        loop, viewers = asyncio.get_running_loop(), tuple(self._viewers)
        # A viewer must not see what a crash could still undo.
        self._service.writer.settled(lambda: call_in(loop, self._publish_soon, gathered, viewers))

    def _publish_soon(self, gathered: list[Entry], viewers: Sequence[StreamViewer]) -> None:
        self._tasks.begin(self._publish(gathered, viewers))

    async def _publish(self, gathered: list[Entry], viewers: Sequence[StreamViewer]) -> None:
        async with self._publishing:  # in order, though one of many events is told in pieces
            for piece in _pieces(gathered):
                made: dict[str | None, bytes | None] = {}
                told = _events(piece)
                for viewer in viewers:
                    if viewer.owner not in made:
                        made[viewer.owner] = self._batch(told, viewer.owner, piece[-1][0])
                    frame = made[viewer.owner]
                    if frame is not None:
                        viewer.put(frame)
                await asyncio.sleep(0)

    def _batch(self, told: Sequence[Event], owner: str | None, last: int) -> bytes | None:
        """The events as an owner sees them; None where there is nothing for it."""
        lists: dict[str, list[Any]] = {}
        for name, whose, fields in told:
            if owner is None or whose in ("", owner):
                lists.setdefault(name, []).append(fields)
        if not lists:
            return None
        body = {"sequence": last, "now_s": self._service.now()} | {n: lists[n] for n in LISTS if n in lists}
        return _frame("batch", body, last)


class EventStream(Response):
    """A stream of events, past the framework's own: some hundred frames a second go to some dozens of viewers."""

    def __init__(self, hub: Events, owner: str | None, last_id: str | None, still: Callable[[], bool]) -> None:
        super().__init__(None, 200, HEADERS, "text/event-stream")
        self._hub, self._owner, self._last_id, self._still = hub, owner, last_id, still
        del self.headers["content-length"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Tell events until either side ends it."""
        viewer = await self._hub.join(self._owner, self._last_id)
        gone = asyncio.create_task(_wait_until_gone(receive, viewer))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            asked_s = time.monotonic()
            while data := await viewer.take():
                if time.monotonic() - asked_s > ALIVE_S / 2:
                    asked_s = time.monotonic()
                    if not self._still():
                        data = _frame("dropped", {"reason": "the session is over: log in again"}, None)
                        viewer.frames.clear()
                        viewer.end()
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._hub.leave(viewer)


async def _wait_until_gone(receive: Any, viewer: StreamViewer) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.end()


def _events(entries: Sequence[Entry]) -> list[Event]:
    return [event for _, entry in entries for event in decoded(entry)]


def _pieces(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """The entries in pieces of some hundred events; an entry is never cut."""
    piece: list[Entry] = []
    size = 0
    for entry in entries:
        piece.append(entry)
        size += len(entry[1])
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _frame(name: str, data: object, number: int | None) -> bytes:
    """An event on the wire; without a number the browser forgets the last one it saw."""
    shown = b"" if number is None else b"%d" % number
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), shown, msgspec.json.encode(data))
