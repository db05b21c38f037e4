"""Limits of connections, below the application: what a stranger sends before anybody knows who asks.

A connection is a *stranger's* until a request on it has shown a valid token. There is room for so many strangers; when
one more comes the oldest goes, so a flood of half requests takes nothing from those who finish theirs. A message must
be finished at a least pace, and what is not body (request line, headers, trailers) has a largest size.
"""

from __future__ import annotations

import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PER_S = {"user": 1000.0, "viewer": 100.0, "agent": 20_000.0, "operator": 3000.0, "": 50.0}
"""Requests a second, by role; an address without a valid token is ``""``."""
BURST_S = 2.0
"""A bucket that was left alone holds so many seconds of it."""
MOST = 20_000
"""Buckets that are kept; beyond it all begin anew, which costs nobody more than a full bucket."""


class Rates:
    """All buckets.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def takes(self, who: str, role: str) -> bool:
        """Take one request of ``who`` out of its bucket; False where that is empty."""
        rate, now_s = PER_S[role], self._clock()
        level, at_s = self._buckets.get(who, (rate * BURST_S, now_s))
        level = min(rate * BURST_S, level + (now_s - at_s) * rate)
        if len(self._buckets) > MOST:
            self._buckets.clear()
        self._buckets[who] = (max(0.0, level - 1.0), now_s)
        return level >= 1.0


HEADER_BYTES = 64 << 10
PACE_S, PACE_BYTES = 10.0, 1024
"""A message that is under way brings so many bytes of its body in so many seconds, or its end."""
STRANGERS = 1000
SPARE_FILES = 256
"""Of the files that the process may open: for the store, logs and objects."""


@dataclass(slots=True)
class Connections:
    """All connections of a server.

    Attributes:
        closed: Those that were closed at a limit, by limit.
        most: All connections, strangers or not.
    """

    closed: Counter[str]
    strangers_most: int = STRANGERS
    header_bytes: int = HEADER_BYTES
    pace_s: float = PACE_S
    most: int = field(default_factory=lambda: _files() - SPARE_FILES)
    strangers: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    open: int = 0

    def opened(self, connection: Any) -> None:
        """Take a new one; the oldest stranger goes where there are too many."""
        self.open += 1
        self.strangers[connection] = None
        while self.strangers and (len(self.strangers) > self.strangers_most or self.open > self.most):
            # The oldest, not the newest: whoever finishes a request with a token leaves this list, a flood never
            # does.
            oldest, _ = self.strangers.popitem(last=False)
            self.close(oldest, "strangers")
            if oldest is connection:
                break

    def lost(self, connection: Any) -> None:
        """Forget one that is over."""
        self.open -= 1
        self.strangers.pop(connection, None)

    def close(self, connection: Any, limit: str) -> None:
        """Close one at a limit."""
        self.closed[limit] += 1
        connection.transport.abort()


def protocol(connections: Connections) -> type[HttpToolsProtocol]:
    """Make the protocol class whose connections keep these limits."""
    return type("LimitedProtocol", (_Limited,), {"all": connections})


class _Limited(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    all: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._no_body = self._progress = self._checked = 0
        self._under_way = False
        self._timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """Begin as a stranger, who has some time to ask for something."""
        super().connection_made(transport)
        self.all.opened(self)
        self._under_way = True
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave."""
        super().connection_lost(exc)
        self.all.lost(self)
        if self._timer is not None:
            self._timer.cancel()

    def known(self) -> None:
        """Be no stranger any more: a request here had a valid token."""
        self.all.strangers.pop(self, None)

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many that are no body are the end."""
        # Counted before parsing: one endless line would be held, and searched again for its end, with each piece.
        self._no_body += len(data)
        super().data_received(data)
        if self._no_body > self.all.header_bytes and not self.transport.is_closing():
            self.all.closed["header size"] += 1
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._under_way and self._timer is None:
            self._watch()

    def on_message_begin(self) -> None:
        """Hand the door a way to say that a token was valid."""
        super().on_message_begin()
        self._under_way = True
        # Set here because the door, which knows tokens, sees the request and not its connection.
        self.scope["state"]["known"] = self.known

    def on_headers_complete(self) -> None:
        """Count anew: the headers were small enough."""
        self._no_body = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count what comes of a body: that has limits of its own."""
        self._no_body = 0
        self._progress += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the next one, for as long as the connection is kept."""
        self._no_body = 0
        self._under_way = False
        super().on_message_complete()

    def _watch(self) -> None:
        due_s = time.monotonic() + self.all.pace_s
        self._checked = self._progress
        self._timer = self.loop.call_later(self.all.pace_s, self._check, due_s)

    def _check(self, due_s: float) -> None:
        """Close it when it is too slow. A server that was stopped itself reads what came meanwhile first."""
        self._timer = None
        if not self._under_way or self.transport.is_closing():
            return
        # Bytes may lie unread because this server was slow, or paused: that is not the sender's fault.
        ours = self.flow.read_paused or time.monotonic() - due_s > 1.0
        if ours or self._progress - self._checked >= PACE_BYTES:
            self._watch()
        else:
            self.all.close(self, "pace")


_SAID = b'{"error": "the request line and headers are larger than 64 KiB"}'
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: " + str(len(_SAID)).encode() + b"\r\n\r\n" + _SAID
)


def _files() -> int:
    """How many files this process may have open; as many as it may raise that to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft
