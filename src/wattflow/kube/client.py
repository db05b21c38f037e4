"""A thin async client of the Kubernetes API: JSON through msgspec, tokens, back-off on 429, nothing generated."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.wire import Wire
from wattflow.model.errors import WattflowError


@dataclass(slots=True)
class Bucket:
    """At most ``burst`` at once and ``per_s`` a second on average; infinite means no limit.

    Waiters are served in order: each takes its token at once, on credit, and waits until it is due.
    """

    per_s: float
    burst: float
    clock: Callable[[], float]
    tokens: float = field(init=False)
    updated_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst
        self.updated_s = self.clock()

    def delay_s(self) -> float:
        """Take one token; seconds until it may be used."""
        if self.per_s == float("inf"):
            return 0.0
        now = self.clock()
        # Never more than a burst is saved up, however long nobody asked.
        self.tokens = min(self.burst, self.tokens + (now - self.updated_s) * self.per_s)
        self.updated_s = now
        # Below zero is a debt: whoever comes next waits longer, which keeps their order.
        self.tokens -= 1
        return max(0.0, -self.tokens / self.per_s)

    async def take(self) -> None:
        """Wait for a token."""
        delay = self.delay_s()
        if delay > 0:
            await asyncio.sleep(delay)


log = logging.getLogger(__name__)
T = TypeVar("T")


class Versioned(Protocol):
    """Require of whatever a watch follows that it has metadata."""

    metadata: objects.Metadata


V = TypeVar("V", bound=Versioned)
JSON, MERGE, STRATEGIC = "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json"
_TRIES = 6
_MOST_WAIT_S = 30.0
_TOKEN_AGE_S = 60.0
_LIST_S = 120.0
# A page is bounded in bytes and in decoding time (one page is decoded without a turn of the event
# loop).
_PAGED = {"limit": "2000"}
# Version "0" means "any version that the server's cache holds": no quorum read of etcd. It may be
# older than what we have seen, so only a first list uses it (`Mirror.relist`).
_FROM_CACHE = {**_PAGED, "resourceVersion": "0"}


class ApiError(WattflowError):
    """The API server refused: the code, its one-word reason and its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason, self.message = code, reason, message
        super().__init__(f"{code} {reason}: {message}")


class Expired(WattflowError):
    """A watch or list asked for a resource version that is gone; list anew."""


class Unreadable(NamedTuple):
    """An object of another form than its kind has, and the field that is wrong."""

    metadata: objects.Metadata
    why: str


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Items of a list, the version from which a watch goes on, and objects that could not be read."""

    items: list[T]
    version: str
    bad: list[Unreadable]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One event of a watch. ``item`` is None for a bookmark, which only moves the version, and for what is ``bad``."""

    kind: str
    item: T | None
    version: str
    bad: Unreadable | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Page(NamedTuple):
    """A page whose objects were read one by one."""

    metadata: objects.ListMeta
    items: Sequence[object]


class _RawPage(msgspec.Struct):
    metadata: objects.ListMeta = msgspec.field(default_factory=objects.ListMeta)
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


_DEEPEST = 200
"""Levels of a document that are read where not all can be: decoding ends at about a thousand, the API server takes ten
thousand of an object whose form it does not know."""
_SIGNS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_CUT = b'"wattflow.io/cut"'
_EVENTS = msgspec.json.Decoder(_Event)
_RAW_PAGES = msgspec.json.Decoder(_RawPage)


class Client:
    """One connection pool to one API server. Use as an async context manager."""

    def __init__(self, access: Access, *, per_s: float = float("inf"), burst: float = 100.0, most: int = 64) -> None:
        self.access = access
        self._bucket = Bucket(per_s, burst, time.monotonic)
        self._most = most
        self._session: aiohttp.ClientSession | None = None
        self._bearer, self._bearer_at = "", -_TOKEN_AGE_S  # expired, so the first request reads the token
        self.throttled = 0
        self._wires: list[Wire] = []
        self._limited = per_s != float("inf")
        self._made = ""
        self._ahead: dict[str, asyncio.Task[bytes]] = {}
        self._host = urlsplit(access.server).netloc

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(limit=self._most, ssl=self.access.tls if self.access.tls else True)
        # no total limit: watches are long; what may hang is bounded per call
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._ahead.values():
            task.cancel()
        await asyncio.gather(*self._ahead.values(), return_exceptions=True)
        for wire in self._wires:
            wire.close()
        if self._session is not None:
            await self._session.close()

    def _headers(self, content: str = JSON) -> dict[str, str]:
        now = time.monotonic()
        if now - self._bearer_at >= _TOKEN_AGE_S:
            self._bearer, self._bearer_at = self.access.bearer(), now
        # packing costs both sides more than it saves between machines of one cluster
        headers = {"Accept": JSON, "Content-Type": content, "Accept-Encoding": "identity"}
        if self._bearer:
            headers["Authorization"] = f"Bearer {self._bearer}"
        return headers

    def _head(self) -> str:
        """Return the headers of quick requests, made anew with each new token only."""
        if not self._made or time.monotonic() - self._bearer_at >= _TOKEN_AGE_S:
            lines = {"Host": self._host, **self._headers()}
            self._made = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        return self._made

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the open session."""
        if self._session is None:
            raise RuntimeError("the client is not open; use `async with`")
        return self._session

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        timeout_s: float = 30.0,
    ) -> bytes:
        """Send one request; after 429 and 503 with Retry-After, wait and try again a few times."""
        data = msgspec.json.encode(body) if body is not None else None
        for attempt in range(_TRIES):
            await self._bucket.take()
            async with self.session.request(
                method,
                self.access.server + path,
                data=data,
                params=query,
                headers=self._headers(content),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                raw = await answer.read()
                if answer.status < 300:
                    return raw
                # 504 is the server's own time limit. Without Retry-After it is no invitation: who called decides.
                wait_s = _retry_after(answer) if answer.status in (429, 503, 504) else None
                if wait_s is None or attempt == _TRIES - 1:
                    raise _refusal(answer.status, raw)
            self.throttled += 1
            await asyncio.sleep(min(_MOST_WAIT_S, wait_s))
        raise AssertionError("unreachable")

    async def quick(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
        """Send one small request over a bare connection, where a general client's work would be most of the cost.

        Raises ConnectionError or TimeoutError where it is not known whether the server has acted.
        """
        data = msgspec.json.encode(body)
        request = f"{method} {path} HTTP/1.1\r\n{self._head()}Content-Length: {len(data)}\r\n\r\n".encode()
        for attempt in range(_TRIES):
            if self._limited:
                await self._bucket.take()
            wire = await self._wire()
            async with asyncio.timeout(timeout_s):
                answer = await wire.send(request + data)
            # A connection goes back only after a whole answer. One that timed out has left by the exception,
            # and must not be used again: its late answer would be taken for the next request's.
            if wire.open:
                self._wires.append(wire)
            if answer.status < 300:
                return answer.body
            # 504 is not tried again: the server may have acted before its limit struck, and `Binder` looks at
            # the pod instead.
            wait = answer.header(b"retry-after") if answer.status in (429, 503) else None
            if wait is None or attempt == _TRIES - 1:
                raise _refusal(answer.status, answer.body)
            self.throttled += 1
            await asyncio.sleep(min(_MOST_WAIT_S, float(wait) if wait.isdigit() else 1.0))
        raise AssertionError("unreachable")

    async def _wire(self) -> Wire:
        """Take an idle connection, or a new one."""
        while self._wires:
            wire = self._wires.pop()
            if wire.open:
                return wire
        return await Wire.connect(self.access)

    async def get(self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None) -> T:
        """Read one object."""
        return msgspec.json.decode(await self.call("GET", path, query=query), type=kind)

    def list_ahead(self, path: str) -> None:
        """Ask for a collection now; the next `list_all` of it from the cache takes the answer that came meanwhile."""
        if path not in self._ahead:
            self._ahead[path] = asyncio.create_task(self.call("GET", path, query=_FROM_CACHE, timeout_s=_LIST_S))

    async def list_all(
        self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None, fresh: bool = False
    ) -> Listed[T]:
        """List a collection, page by page; not ``fresh`` means from the server's cache, which is cheaper."""
        pages = _pages_of(kind)
        wanted = (_PAGED if fresh else _FROM_CACHE) | dict(query or {})
        # A list asked for ahead was asked without a query and from the cache: only the same list may take
        # it.
        ahead = None if fresh or query else self._ahead.pop(path, None)
        items: list[T] = []
        bad: list[Unreadable] = []
        began_s, waited_s = time.monotonic(), 0.0
        while True:
            asked_s = time.monotonic()
            try:
                raw = await (ahead or self.call("GET", path, query=wanted, timeout_s=_LIST_S))
            except ApiError as error:
                if error.code == 410:
                    raise Expired(str(error)) from None
                raise
            waited_s += time.monotonic() - asked_s
            with uncollected():
                page = _page(pages, raw, kind, bad)
                items.extend(page.items)
            if not page.metadata.continue_:
                took_s = time.monotonic() - began_s
                log.info("%s: %d listed in %.2f s, %.2f s of them waiting", path, len(items), took_s, waited_s)
                return Listed(items, page.metadata.resource_version, bad)
            ahead = None
            # A token of a continued list names its own version; the API refuses both together.
            wanted.pop("resourceVersion", None)
            wanted["continue"] = page.metadata.continue_

    async def watch(
        self, path: str, kind: type[V], version: str, *, query: Mapping[str, str] | None = None, for_s: float = 300.0
    ) -> AsyncIterator[list[Change[V]]]:
        """Yield changes after a version, in batches as they arrive. Ends when the server ends it; Expired on 410."""
        wanted = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": f"{for_s:.0f}",
        } | dict(query or {})
        decoder = events_of(kind)
        # The server ends the watch after `for_s`; who is silent for a minute longer is a dead connection.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=for_s + 60)
        async with self.session.get(
            self.access.server + path, params=wanted, headers=self._headers(), timeout=timeout
        ) as answer:
            if answer.status == 410:
                raise Expired("the resource version is gone")
            if answer.status >= 300:
                # A watch is not tried again here: the mirror does, from the version that it has, so nothing is lost
                # by ending.
                wait_s = _retry_after(answer)
                if answer.status in (429, 503) and wait_s is not None:
                    self.throttled += 1
                    await asyncio.sleep(min(_MOST_WAIT_S, wait_s))
                    return
                raise _refusal(answer.status, await answer.read())
            rest = b""
            async for chunk in answer.content.iter_any():
                # An event is a line, a chunk is not: the last piece waits for its end.
                lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                rest = lines.pop()
                if lines:
                    yield changes(lines, decoder)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects that stay, without a garbage collector that walks them all again and again meanwhile."""
    # Nested uses must not enable it early: an outer block may still be filling.
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _pages_of(kind: type[T]) -> msgspec.json.Decoder[Any]:
    """Make a decoder of lists: the page and its objects in one pass."""
    fields = [
        ("metadata", objects.ListMeta, msgspec.field(default_factory=objects.ListMeta)),
        # `kind` is a value here, which the type system cannot use as a type.
        ("items", list[kind], msgspec.field(default_factory=list)),  # type: ignore[valid-type]
    ]
    return msgspec.json.Decoder(msgspec.defstruct(f"{kind.__name__}List", fields))


def events_of(kind: type[V]) -> msgspec.json.Decoder[Any]:
    """Make a decoder of a watch's lines: the event and its object in one pass."""
    return msgspec.json.Decoder(msgspec.defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)]))


def changes(lines: list[bytes], decoder: msgspec.json.Decoder[Any]) -> list[Change[Any]]:
    """Return the events of a watch's lines. Raises Expired or ApiError where the server ends the watch by one."""
    found = []
    for line in lines:
        if not line:
            continue
        try:
            event = decoder.decode(line)
        except (msgspec.ValidationError, RecursionError) as error:
            found.append(_odd(_shallow(line), _why(error)))
            continue
        if event.type == "ERROR":
            raise _ended_by(line)
        # A bookmark has an object of the kind with nothing but a version in it; it must not be told as a
        # change.
        kind, item = event.type, event.object
        found.append(Change(kind, None if kind == "BOOKMARK" else item, item.metadata.resource_version))
    return found


class _Marked(objects.Object):
    metadata: objects.Metadata


def _odd(line: bytes, why: str) -> Change[Any]:
    """Read a line whose object is of another form: a bookmark (null where the API promises lists), or a bad object.

    Raises what the line says where the server ends the watch by it.
    """
    event = _EVENTS.decode(line)
    if event.type == "ERROR":
        raise _ended_by(line)
    try:
        metadata = msgspec.json.decode(event.object, type=_Marked).metadata
    except msgspec.ValidationError:
        raise _ended_by(line) from None
    bad = None if event.type == "BOOKMARK" else Unreadable(metadata, why)
    return Change(event.type, None, metadata.resource_version, bad)


def _page(pages: msgspec.json.Decoder[Any], raw: bytes, kind: type[T], bad: list[Unreadable]) -> Any:
    """Decode a page; where an object of it is of another form, the others all the same."""
    try:
        return pages.decode(raw)
    # One odd object makes the decoder refuse the whole page. The second pass is slow and rare, and
    # loses only the odd one.
    except (msgspec.ValidationError, RecursionError):
        page = _RAW_PAGES.decode(_shallow(raw))
    found = []
    for item in page.items:
        try:
            if _CUT in bytes(item):
                raise RecursionError
            found.append(msgspec.json.decode(item, type=kind))
        except (msgspec.ValidationError, RecursionError) as error:
            bad.append(Unreadable(msgspec.json.decode(item, type=_Marked).metadata, _why(error)))
    return _Page(page.metadata, found)


def _why(error: Exception) -> str:
    return f"it is nested {_DEEPEST} levels deep or more" if isinstance(error, RecursionError) else str(error)


def _shallow(raw: bytes) -> bytes:
    """Return a document with `_CUT` in the place of what is nested too deeply to be decoded."""
    kept, begin, depth = [], 0, 0
    for one in _SIGNS.finditer(raw):
        if one[0] in (b"[", b"{"):
            depth += 1
            if depth == _DEEPEST:
                kept += [raw[begin : one.start()], _CUT]
        elif one[0] in (b"]", b"}"):
            if depth == _DEEPEST:
                begin = one.end()
            depth -= 1
    return b"".join([*kept, raw[begin:]])


def _ended_by(line: bytes) -> WattflowError:
    """Tell what an event says that is no object: an error, or something that we cannot read."""
    event = _EVENTS.decode(line)
    if event.type != "ERROR":
        return ApiError(0, "Unreadable", f"a watch sent an object of another form: {line[:200]!r}")
    status = msgspec.json.decode(event.object, type=objects.Status)
    if status.code == 410 or status.reason in ("Expired", "Gone"):
        return Expired(status.message)
    return ApiError(status.code, status.reason, status.message)


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    """Return the seconds to wait that the server asks for; one second where a 429 does not say."""
    text = answer.headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    return 1.0 if answer.status == 429 else None


def _refusal(code: int, raw: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(raw, type=objects.Status)
        # Proxies on the way answer in HTML: the code is all that can be relied on.
        return ApiError(code, status.reason, status.message)
    except msgspec.MsgspecError:
        return ApiError(code, "", raw[:200].decode(errors="replace"))
