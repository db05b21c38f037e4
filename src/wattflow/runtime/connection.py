"""One kept HTTP connection to a server, for clients in plain threads."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.parse
from typing import Any

import msgspec

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.transport import Denied, Unreachable

MSGPACK = "application/msgpack"


class Connection:
    """Calls, one at a time. A connection that broke is made anew once before the call is given up."""

    def __init__(self, server: str, token: str, ca: str | None = None, timeout_s: float = 60.0) -> None:
        self._http: http.client.HTTPConnection | None = None
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("server", f"{server!r} is not a URL such as http://127.0.0.1:8765")
        self.server = server.rstrip("/")
        self._parts, self._timeout_s = parts, timeout_s
        self._headers = {"authorization": f"Bearer {token}", "content-type": MSGPACK, "accept": MSGPACK}
        self._context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None

    def call(self, method: str, path: str, body: object = None, type: Any = Any) -> Any:
        """A typed answer. Raises Unreachable or Denied."""
        data = msgspec.msgpack.encode(body) if body is not None and not isinstance(body, bytes) else body
        return msgspec.msgpack.decode(self.raw(method, path, data)[0], type=type)

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, dict[str, str]]:
        """The answer's bytes and headers."""
        for again in (True, False):
            try:
                connection = self._http or self._open()
                connection.request(method, path, body, self._headers)
                answer = connection.getresponse()
                data = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not again:
                    raise Unreachable(f"{self.server} does not answer: {error or type(error).__name__}") from None
                continue
            if answer.status < 300:
                return data, {name.lower(): value for name, value in answer.getheaders()}
            raise _error(answer.status, data)
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
            self._http = None

    def __del__(self) -> None:
        self.close()

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._context is not None:
            self._http = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context)
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        self._http.connect()
        import socket

        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._http


def _error(status: int, data: bytes) -> WattflowError:
    try:
        message = str(msgspec.json.decode(data)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = data[:300].decode(errors="replace")
    if status == 507 or status >= 500:
        return Unreachable(f"the server answered {status}: {message}")
    denied = Denied(message if status != 401 else f"the server does not know this token ({message})")
    denied.status = status
    return denied
