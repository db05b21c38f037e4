"""One kept HTTP connection, for meters that are services."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from urllib.parse import urlsplit

from wattflow.energy.meters.port import NoReading

_LOCAL = ("127.0.0.1", "::1", "localhost")


class MeterConnection:
    """GET over a connection that stays open and is opened again when the other side closed it.

    Args:
        url: Where the service stands, for example ``http://localhost:44322``.
        user: ``name:password`` for basic authentication.
        ca: Certificates that the service's own is checked by, where the system's do not do. It always is checked: a
            password goes only to whom it is for, and never in the clear to another machine.
    """

    def __init__(self, url: str, *, user: str | None = None, ca: str | None = None, timeout_s: float = 3.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoReading(f"{url!r} is not an http address")
        self.url = url.rstrip("/")
        # On loopback nobody else listens.
        if user is not None and parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise NoReading(f"{url}: a password must not travel in the clear; use https")
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": "*/*"}
        if user is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._link: http.client.HTTPConnection
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise NoReading(f"{ca} holds no certificates: {error}") from None
            self._link = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
        else:
            self._link = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def get(self, path: str) -> tuple[int, bytes]:
        """Get status and body; NoReading when nobody answers."""
        # Twice: a kept connection may have been closed by the other side since, which shows only when it is
        # used.
        for last in (False, True):
            try:
                self._link.request("GET", self._base + path, headers=self._headers)
                answer = self._link.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._link.close()
                if last:
                    raise NoReading(f"{self.url} does not answer: {error}") from error
        raise AssertionError("unreachable")

    def get_json(self, path: str) -> dict[str, object]:
        """Get the JSON object at a path; NoReading when there is none."""
        status, body = self.get(path)
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise NoReading(f"{self.url}{path} answered {status}, not a JSON object")
        return document

    def close(self) -> None:
        self._link.close()
