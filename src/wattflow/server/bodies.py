"""Bodies in and out: MessagePack or JSON into typed messages, with limits; nothing is ever unpickled."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

T = TypeVar("T")
MSGPACK = "application/msgpack"
MESSAGE_BYTES = 64 << 20
OBJECT_BYTES = 1 << 30


async def raw(request: Request, most: int = MESSAGE_BYTES) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit():
        raise HTTPException(400, "content-length is not a number")
    if int(declared) > most:
        raise HTTPException(413, f"the body has {declared} bytes; at most {most} are taken here")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HTTPException(413, f"the body has more than {most} bytes")
        chunks.append(chunk)
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
