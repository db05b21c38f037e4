"""What agents call. Each answer comes after the store has what the call brought."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wattflow import __version__
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.messages import OLDEST_PROTOCOL, PROTOCOL, Announced, Announcement, Sync
from wattflow.server.app import allowed, house_of
from wattflow.server.bodies import OBJECT_BYTES, answer, raw, schema, typed

router = APIRouter(prefix="/v1", tags=["agents"])
LOG_BYTES = 8 << 20


def _driver(request: Request) -> AgentsDriver:
    driver = house_of(request).service.driver
    if not isinstance(driver, AgentsDriver):
        raise HTTPException(409, f"this server runs work by {driver.name}; it takes no agents")
    return driver


@router.post("/nodes", openapi_extra=schema(Announcement))
async def announce(request: Request) -> Response:
    """A node joins, or comes back."""
    allowed(request, "agent")
    announcement = await typed(request, Announcement)
    if not OLDEST_PROTOCOL <= announcement.protocol <= PROTOCOL:
        raise HTTPException(409, spoken(announcement.protocol))
    if len(announcement.node.busy) != len(announcement.node.watts):
        raise HTTPException(422, "a node's busy and watts must be as many")
    try:
        _driver(request).announce(announcement.node, announcement.boot)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    service = house_of(request).service
    await service.stored()
    return answer(request, Announced(announcement.node.name, PROTOCOL, service.fences.epoch), 201)


def spoken(protocol: int) -> str:
    """Why an agent that speaks another protocol is refused, and what to do."""
    known = f"it speaks protocol {protocol}, this server {OLDEST_PROTOCOL} to {PROTOCOL} (wattflow {__version__})"
    return f"the agent is too {'new' if protocol > PROTOCOL else 'old'}: {known}. " + (
        "Bring the server up to date first" if protocol > PROTOCOL else "Bring the agent up to date"
    )


@router.post("/agents/sync", openapi_extra=schema(Sync))
async def sync(request: Request) -> Response:
    """One turn of an agent: news in, orders out."""
    allowed(request, "agent")
    turn = await typed(request, Sync)
    driver = _driver(request)
    if driver.knows(turn.node, turn.boot):
        await driver.report(turn)
        if turn.ended or turn.started:
            await house_of(request).service.stored()
    house = house_of(request)
    orders = await driver.orders(turn)
    return answer(request, msgspec.structs.replace(orders, epoch=house.service.fences.epoch, servers=house.servers))


@router.post("/attempts/{fence}/log", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}})
async def log(request: Request, fence: int, offset: int) -> Response:
    """Output of an attempt from a place on."""
    allowed(request, "agent")
    if offset < 0 or fence < 0:
        raise HTTPException(422, "offset and fence must not be negative")
    data = await raw(request, LOG_BYTES)
    written = house_of(request).service.log(fence, offset, data)
    try:
        if written is not None:
            await asyncio.wrap_future(written)
    except OSError as error:
        raise HTTPException(507, f"the output could not be written: {error.strerror}") from None
    return answer(request, {"taken": len(data)})


@router.post("/objects", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}})
async def put_object(request: Request) -> Response:
    """Keep bytes; answers with their name."""
    allowed(request, "user", "agent")
    data = await raw(request, OBJECT_BYTES)
    name = await asyncio.to_thread(house_of(request).objects.put, data)
    return answer(request, {"object": name}, 201)


@router.get("/objects/{name}")
async def get_object(request: Request, name: str) -> Response:
    """Bytes by name."""
    allowed(request, "user", "agent")
    try:
        data = await asyncio.to_thread(house_of(request).objects.get, name)
    except KeyError:
        raise HTTPException(404, f"no object {name}") from None
    return Response(data, media_type="application/octet-stream")
