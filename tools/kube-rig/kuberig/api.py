"""A small client of the API server: JSON over connections that are kept for the next request."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

JSON = dict[str, Any]
MERGE = "application/merge-patch+json"


class ApiError(RuntimeError):
    """The API server refused; `status` is the HTTP status, the message its reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One account at one API server. Threads may share it."""

    def __init__(self, server: str, context: ssl.SSLContext, token: str | None = None) -> None:
        self.server = server
        self._address = urlsplit(server)
        self._context = context
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._kept: list[http.client.HTTPSConnection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            while self._kept:
                self._kept.pop().close()

    def __del__(self) -> None:
        self.close()

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Api:
        """The account of a kubeconfig's current context (token or client certificate)."""
        config = _read_config(path)
        named = {kind: {e["name"]: e for e in config.get(f"{kind}s", [])} for kind in ("context", "cluster", "user")}
        chosen = named["context"][config["current-context"]]["context"]
        cluster = named["cluster"][chosen["cluster"]]["cluster"]
        user = named["user"][chosen["user"]]["user"]
        context = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority", path))
        certificate = _pem(user, "client-certificate", path)
        if certificate:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(certificate + "\n" + (_pem(user, "client-key", path) or ""))
                file.flush()
                context.load_cert_chain(file.name)
        return cls(cluster["server"], context, user.get("token"))

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json") -> JSON:
        """One request; `body` is JSON, or bytes sent as they are.

        Raises:
            ApiError: the answer was not a success.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": content}
        status, answer = self._exchange(method, path, data, headers)
        if status >= 400:
            with contextlib.suppress(ValueError):
                raise ApiError(status, str(json.loads(answer).get("message")))
            raise ApiError(status, answer.decode(errors="replace")[:300])
        try:
            decoded: JSON = json.loads(answer)
        except ValueError:
            return {"text": answer.decode(errors="replace")}
        return decoded

    def _exchange(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        with self._lock:
            kept = self._kept.pop() if self._kept else None
        for connection in [kept, None] if kept else [None]:
            chosen = connection or self._connect(60.0)
            try:
                chosen.request(method, path, data, headers)
                answer = chosen.getresponse()
                status, text = answer.status, answer.read()
            except BaseException as error:
                chosen.close()
                # The server may have closed a kept connection meanwhile: once more, on a new one.
                if connection is None or not isinstance(
                    error, (ConnectionError, ssl.SSLError, http.client.HTTPException)
                ):
                    raise
            else:
                with self._lock:
                    self._kept.append(chosen)
                return status, text
        raise AssertionError("unreachable")

    def _connect(self, timeout_s: float | None) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port
        return http.client.HTTPSConnection(host, port, context=self._context, timeout=timeout_s)

    def get(self, path: str) -> JSON:
        """GET."""
        return self.request("GET", path)

    def read(self, path: str) -> bytes:
        """GET, as the bytes that came.

        Raises:
            ApiError: the answer was not a success.
        """
        status, answer = self._exchange("GET", path, None, self._headers)
        if status >= 400:
            raise ApiError(status, answer.decode(errors="replace")[:300])
        return answer

    def create(self, path: str, body: JSON, exists_ok: bool = False) -> JSON:
        """POST; with `exists_ok` an object that is there already is left as it is."""
        try:
            return self.request("POST", path, body)
        except ApiError as error:
            if exists_ok and error.status == 409:
                return body
            raise

    def patch(self, path: str, body: JSON) -> JSON:
        """PATCH by merging."""
        return self.request("PATCH", path, body, MERGE)

    def delete(self, path: str, grace_s: int | None = None, missing_ok: bool = True) -> None:
        """DELETE."""
        with contextlib.suppress(ApiError) if missing_ok else contextlib.nullcontext():
            self.request("DELETE", path if grace_s is None else f"{path}?gracePeriodSeconds={grace_s}")

    def await_none(self, path: str, timeout_s: float) -> None:
        """Waits until a list is empty.

        Raises:
            TimeoutError: something is left; the message names it.
        """
        ends = time.monotonic() + timeout_s
        while left := self.items(path):
            if time.monotonic() > ends:
                names = ", ".join(one["metadata"]["name"] for one in left[:5])
                raise TimeoutError(f"{len(left)} objects of {path} are still there after {timeout_s:.0f} s: {names}")
            time.sleep(0.05)

    def items(self, path: str) -> list[JSON]:
        """The items of a list."""
        found: list[JSON] = self.get(path)["items"]
        return found

    def ok(self, path: str = "/readyz") -> bool:
        """Whether a health path answers with success."""
        try:
            self.get(path)
        except (ApiError, OSError, http.client.HTTPException):
            return False
        return True

    def create_many(self, path: str, bodies: Sequence[JSON], threads: int = 8) -> None:
        """POSTs many objects to one path from several threads."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda body: self.create(path, body), bodies, chunksize=32):
                pass

    def watch(
        self, path: str, timeout_s: float, decode: Callable[[bytes], JSON] = json.loads, **query: str
    ) -> Iterator[JSON]:
        """Events of a list path (`{"type", "object"}`), beginning with what is there, for at most so many seconds.

        `decode` reads an event; one that reads less than all costs less.

        A server ends watches whose readers fall behind; this one then goes on where it was. Where the server no longer
        knows that place, an event of type RESTART comes, and everything that is there follows once more.
        """
        ends = time.monotonic() + timeout_s
        version = ""
        while (left := ends - time.monotonic()) > 0:
            if not version:
                listed = self.get(f"{path}?{urlencode(query)}" if query else path)
                version = listed["metadata"]["resourceVersion"]
                yield from ({"type": "ADDED", "object": found} for found in listed["items"])
            for event in map(decode, self._watch_once(path, left, {**query, "resourceVersion": version})):
                if event["type"] == "ERROR":
                    version = ""
                    yield {"type": "RESTART", "object": {}}
                    break
                version = event["object"]["metadata"]["resourceVersion"]
                yield event

    def _watch_once(self, path: str, timeout_s: float, query: dict[str, str]) -> Iterator[bytes]:
        asked = {**query, "watch": "1", "timeoutSeconds": str(max(1, int(timeout_s)))}
        connection = self._connect(timeout_s)
        try:
            connection.request("GET", f"{path}?{urlencode(asked)}", headers=self._headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, answer.read().decode(errors="replace")[:300])
            with contextlib.suppress(TimeoutError):
                yield from answer
        finally:
            connection.close()

    def await_each(self, path: str, done: Callable[[JSON], bool], count: int, timeout_s: float, **query: str) -> None:
        """Waits, by watching, until `count` objects of a list are `done`.

        Raises:
            TimeoutError: fewer were in time; the message says how many.
        """
        good: set[str] = set()
        if count <= 0:
            return
        for event in self.watch(path, timeout_s, **query):
            if event["type"] == "RESTART":
                good.clear()
                continue
            name = f"{event['object']['metadata'].get('namespace', '')}/{event['object']['metadata']['name']}"
            good.discard(name)
            if event["type"] != "DELETED" and done(event["object"]):
                good.add(name)
            if len(good) >= count:
                return
        raise TimeoutError(f"{len(good)} of {count} objects of {path} as awaited after {timeout_s:.0f} s")

    def await_one(self, path: str, name: str, done: Callable[[JSON], bool], timeout_s: float) -> JSON:
        """Waits, by watching, until the named object of a list path is `done`, and returns it."""
        last: list[JSON] = []

        def seen(found: JSON) -> bool:
            last[:] = [found]
            return done(found)

        try:
            self.await_each(path, seen, 1, timeout_s, fieldSelector=f"metadata.name={name}")
        except TimeoutError as error:
            state = json.dumps(last[0].get("status", {}))[:2000] if last else "it does not exist"
            raise TimeoutError(f"{name} of {path} not as awaited after {timeout_s:.0f} s: {state}") from error
        return last[0]


def _read_config(path: Path) -> JSON:
    text = path.read_text()
    try:
        config: JSON = json.loads(text)
    except ValueError:
        import yaml  # only for kubeconfigs of other clusters: ours are JSON

        config = yaml.safe_load(text)
    return config


def _pem(entry: JSON, key: str, config: Path) -> str | None:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"]).decode()
    if key in entry:
        return Path(config.parent, entry[key]).read_text()
    return None
