"""One kept HTTP connection to a server, for clients in plain threads."""

from __future__ import annotations

import http.client
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec

from wattflow.model.errors import WattflowError
from wattflow.runtime.addresses import Addresses, trust
from wattflow.runtime.transport import BUSY, Denied, Unreachable

MSGPACK = "application/msgpack"
BUSY_S, BUSY_TRIES = 0.5, 20


SEVERAL_S = 7.0
"""Longest silence of a server where others may serve as well: above what clients ask one to wait for an end."""


class Connection:
    """Calls, one at a time. A connection that broke is made anew, and each other address is tried, before a call is
    given up.

    Args:
        server: An address, or several with commas between: a server and those that take over from it.
        look: Where to look for it again when it does not answer.
    """

    def __init__(
        self,
        server: str,
        token: str,
        ca: str | None = None,
        timeout_s: float = 60.0,
        look: Callable[[], str] | None = None,
    ) -> None:
        self._http: http.client.HTTPConnection | None = None
        self._asked = False
        self.addresses, self._timeout_s = Addresses(server, look=look), timeout_s
        self._headers = {"authorization": f"Bearer {token}", "content-type": MSGPACK, "accept": MSGPACK}
        self._context = trust(ca) if "https://" in server else None

    @property
    def server(self) -> str:
        """The address that is asked now."""
        return self.addresses.current

    def call(self, method: str, path: str, body: object = None, type: Any = Any) -> Any:
        """A typed answer. Raises Unreachable or Denied."""
        data = msgspec.msgpack.encode(body) if body is not None and not isinstance(body, bytes) else body
        return msgspec.msgpack.decode(self.raw(method, path, data)[0], type=type)

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, dict[str, str]]:
        """The answer's bytes and headers. A server that is asked too often is asked again a little later."""
        for _ in range(BUSY_TRIES):
            try:
                return self._once(method, path, body)
            except _Busy:
                time.sleep(BUSY_S)
        return self._once(method, path, body)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[bytes, dict[str, str]]:
        for left in reversed(range(1 + len(self.addresses))):
            try:
                connection = self._http or self._open()
                connection.request(method, path, body, self._headers)
                answer = connection.getresponse()
                data = answer.read()
            except http.client.InvalidURL:
                raise  # a name that was not quoted: the server is not away
            except (OSError, http.client.HTTPException) as error:
                asked, kept, silent = self.server, self._asked, isinstance(error, TimeoutError)
                self.close()
                # A kept connection may have been closed while idle; the first failure of one says nothing about the
                # server.
                if silent or not kept:  # a kept one that broke may have been idle for too long: the same once more
                    self.addresses.failed(asked, silent)
                if left == 0:
                    raise Unreachable(f"{asked} does not answer: {error or type(error).__name__}") from None
                continue
            self._asked = True
            if answer.status < 300:
                return data, {name.lower(): value for name, value in answer.getheaders()}
            # A standby answers 503 until it takes over: with several addresses the next one is asked.
            problem = _error(answer.status, data)
            if isinstance(problem, Unreachable) and len(self.addresses) > 1:
                self.addresses.failed(self.server)
                self.close()
            raise problem
        raise AssertionError

    def patiently(self, method: str, path: str, body: object = None, type: Any = Any, for_s: float = 60.0) -> Any:
        """Like `call`, but a server that is away has some time to come back. For calls that may be made twice."""
        end_s = time.monotonic() + for_s
        while True:
            try:
                return self.call(method, path, body, type)
            except Unreachable:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """Let go of the connection."""
        if self._http is not None:
            self._http.close()
            self._http, self._asked = None, False

    def __del__(self) -> None:
        self.close()

    def _open(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.server)
        host, port = parts.hostname or "", parts.port
        # Where others may serve, a paused server is left sooner.
        timeout_s = self._timeout_s if len(self.addresses) == 1 else min(self._timeout_s, SEVERAL_S)
        if parts.scheme == "https":
            self._http = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self._http.connect()
        import socket

        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._http


class _Busy(Unreachable):
    """The server answered that it is asked too often."""


def _error(status: int, data: bytes) -> WattflowError:
    try:
        message = str(msgspec.json.decode(data)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = data[:300].decode(errors="replace")
    if status == BUSY or status >= 500:
        return (_Busy if status == BUSY else Unreachable)(f"the server answered {status}: {message}")
    denied = Denied(message if status != 401 else f"the server does not know this token ({message})")
    denied.status = status
    return denied
