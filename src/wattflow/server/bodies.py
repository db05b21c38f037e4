"""Bodies in and out: MessagePack or JSON into typed messages, with limits; nothing is ever unpickled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wattflow.runtime.messages import Submission, Task

T = TypeVar("T")
MSGPACK = "application/msgpack"
MESSAGE_BYTES = 64 << 20
OBJECT_BYTES = 1 << 30
RECEIVING_BYTES = 3 << 30
"""Of all bodies at once."""
PIECE = 64
"""Tasks of a submission that are decoded before others have a turn of the loop."""


class _Receiving:
    """Bytes of all bodies that are being received: many large ones at once must not fill the memory."""

    size = 0


async def raw(request: Request, most: int = MESSAGE_BYTES) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise HTTPException(400, "content-length is not a number")
    if int(declared) > most:
        raise HTTPException(413, f"the body has {declared} bytes; at most {most} are taken here")
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            # Of all bodies at once: each alone is within its limit, a hundred of them are not.
            _Receiving.size += len(chunk)
            if size > most:
                raise HTTPException(413, f"the body has more than {most} bytes")
            if _Receiving.size > RECEIVING_BYTES:
                raise HTTPException(429, "too much is being sent at once; try again", {"retry-after": "1"})
            chunks.append(chunk)
    finally:
        _Receiving.size -= size
    return b"".join(chunks)


@functools.cache
def decoders(kind: Hashable) -> tuple[Any, Any]:
    """MessagePack's and JSON's decoder of a message. Making them takes milliseconds, so that is done before they are
    needed."""
    made: Any = kind
    return msgspec.msgpack.Decoder(made), msgspec.json.Decoder(made)


async def typed(request: Request, kind: type[T], most: int = MESSAGE_BYTES) -> T:
    """The body as a message of this kind; what is wrong with it is told by its place."""
    data = await raw(request, most)
    try:
        packed = request.headers.get("content-type", "").startswith(MSGPACK)
        wanted: Any = kind
        decoded: T = decoders(wanted)[0 if packed else 1].decode(data)
        return decoded
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise HTTPException(422, f"the body is not a {kind.__name__}: {error}") from None


class _Shell(msgspec.Struct, frozen=True):
    """A submission whose tasks are not looked at yet."""

    tasks: list[msgspec.Raw] = []


async def typed_submission(request: Request) -> Submission:
    """The body as a submission; thousands of tasks are decoded a piece at a time, and the loop goes on between."""
    data = await raw(request)
    form = 0 if request.headers.get("content-type", "").startswith(MSGPACK) else 1
    place = "$"
    try:
        tasks = decoders(_Shell)[form].decode(data).tasks
        # Small ones in one call; it is the thousands of tasks of one body that would hold the loop.
        if len(tasks) <= PIECE:
            whole: Submission = decoders(Submission)[form].decode(data)
            return whole
        made = []
        for number, task in enumerate(tasks):
            place = f"$.tasks[{number}]"
            made.append(decoders(Task)[form].decode(task))
            if number % PIECE == PIECE - 1:
                await asyncio.sleep(0)
        place = "$"
        # Without its tasks the shell is decoded as any submission, so every other field keeps its checks.
        rest = {**decoders(dict[str, msgspec.Raw])[form].decode(data), "tasks": msgspec.Raw((b"\x90", b"[]")[form])}
        encode = (msgspec.msgpack.encode, msgspec.json.encode)[form]
        without: Submission = decoders(Submission)[form].decode(encode(rest))
        return msgspec.structs.replace(without, tasks=made)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise HTTPException(422, f"the body is not a Submission: {str(error).replace('`$', f'`{place}')}") from None


async def answer_rows(
    request: Request, rows: Sequence[Any], shown: Callable[[Any], dict[str, Any]], status: int = 200
) -> Response:
    """Many rows, shown and written one by one in a thread: all at once would hold the loop up."""
    packed = request.headers.get("accept", "").startswith(MSGPACK)
    encode = msgspec.msgpack.encode if packed else msgspec.json.encode

    def body() -> bytes:
        return encode([msgspec.Raw(encode(shown(row))) for row in rows])

    media = MSGPACK if packed else "application/json"
    return Response(await asyncio.to_thread(body), status, media_type=media)


def answer(request: Request, value: Any, status: int = 200) -> Response:
    """A value in the form the caller asked for; JSON unless told otherwise."""
    if request.headers.get("accept", "").startswith(MSGPACK):
        return Response(msgspec.msgpack.encode(value), status, media_type=MSGPACK)
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def schema(kind: Any) -> dict[str, Any]:
    """A body of this kind, for OpenAPI."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    SCHEMAS.update(components)
    decoders(kind)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}


SCHEMAS: dict[str, Any] = {}
"""Components that `schema` met; the application publishes them."""

for _kind in (_Shell, Task, dict[str, msgspec.Raw]):
    decoders(_kind)
