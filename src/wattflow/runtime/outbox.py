"""An agent's news on their way to the server: kept until it has answered, sent in portions, bad ones set aside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from wattflow.runtime import messages as m
from wattflow.runtime.logs import LIMIT_BYTES
from wattflow.runtime.transport import Denied, Transport, Unreachable

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
