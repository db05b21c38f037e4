"""One kept-alive HTTP/1.1 connection for small requests, without what a general client does beside.

Requests go one after another; an answer has a length or comes in chunks. Anything unclear closes the connection, and
whoever waited gets a ConnectionError.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from wattflow.kube.access import Access

_END = b"\r\n\r\n"


class Answer(NamedTuple):
    """Hold the status code, the head in lower case, and the body."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Return the value of one header."""
        # The head keeps the \r\n before each header and after the last, so a name matches only where a line
        # begins.
        at = self.head.find(b"\r\n" + name + b":")
        if at < 0:
            return None
        return self.head[at + len(name) + 3 : self.head.index(b"\r\n", at + 2)].strip()


class Wire(asyncio.Protocol):
    """A connection. Make one with `connect`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._waiting: asyncio.Future[Answer] | None = None

    @classmethod
    async def connect(cls, access: Access, timeout_s: float = 10.0) -> Wire:
        """Open a connection to the API server."""
        where = urlsplit(access.server)
        port = where.port or (443 if where.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            _, wire = await loop.create_connection(cls, where.hostname or "", port, ssl=access.tls)
        return wire

    @property
    def open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    async def send(self, request: bytes) -> Answer:
        """Send one request and wait for its answer. A cancelled wait closes the connection."""
        # No pipelining: an answer carries no number, only its order says whose it is.
        if not self.open or self._waiting is not None:
            raise ConnectionError("the connection is closed or busy")
        self._waiting = asyncio.get_running_loop().create_future()
        cast(asyncio.Transport, self.transport).write(request)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            # Its answer may still come, and would be taken for that of the next request.
            self.close()
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Close it."""
        if self.transport is not None:
            self.transport.close()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(str(error or "the server closed the connection")))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._head is None:
            end = self._buffer.find(_END)
            if end < 0:
                return
            # Lower case once, since header names are case-insensitive; values that matter here (numbers,
            # "close", "chunked") are too. One \r\n of the two stays, for `Answer.header`.
            self._head = bytes(self._buffer[: end + 2]).lower()
            del self._buffer[: end + 4]
        body = self._body(self._head)
        if body is None:
            return
        head, self._head = self._head, None
        # An answer that nobody asked for: what follows on this connection cannot be trusted.
        if self._waiting is None or self._waiting.done():
            self.close()
            return
        answer = Answer(int(head[9:12]), head, body)  # "http/1.1 200": the code is at a fixed place
        # Before the result is set, so that `Client.quick` does not keep the connection.
        if answer.header(b"connection") == b"close":
            self.close()
        self._waiting.set_result(answer)

    def _body(self, head: bytes) -> bytes | None:
        """Return the whole body, or None while more is to come."""
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            length = int(head[at + 17 : head.index(b"\r\n", at + 2)])
            if len(self._buffer) < length:
                return None
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
            return body
        if b"\r\ntransfer-encoding: chunked" in head:
            return self._chunks()
        # Neither length nor chunks: 204, or a body up to the connection's end, which API servers do not
        # send.
        self._buffer.clear()
        return b""

    def _chunks(self) -> bytes | None:
        """Return the body of a chunked answer once its last chunk is here."""
        parts, at = [], 0
        while True:
            line = self._buffer.find(b"\r\n", at)
            if line < 0:
                return None
            # A size may be followed by extensions (RFC 9112, 7.1.1).
            size = int(bytes(self._buffer[at:line]).split(b";")[0], 16)
            if len(self._buffer) < line + 2 + size + 2:
                # Parsed anew from the first chunk with each piece of data: answers here are a few kilobytes.
                return None
            parts.append(bytes(self._buffer[line + 2 : line + 2 + size]))
            at = line + 4 + size
            if size == 0:
                del self._buffer[:at]
                return b"".join(parts)
