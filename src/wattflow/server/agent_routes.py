"""Routes of agents. Each answer comes after the store has what the call brought."""

from __future__ import annotations

import asyncio
import ipaddress

import msgspec
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wattflow import __version__
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.logs import LIMIT_BYTES
from wattflow.runtime.messages import OLDEST_PROTOCOL, PROTOCOL, Announced, Announcement, Sync
from wattflow.runtime.recovery import remake
from wattflow.server.bodies import OBJECT_BYTES, answer, raw, schema, typed
from wattflow.server.context import allowed, context_of
from wattflow.server.tokens import Identity
from wattflow.store.objects import ObjectDamaged

router = APIRouter(prefix="/v1", tags=["agents"])
LOG_BYTES = 8 << 20


def _driver(request: Request) -> AgentsDriver:
    driver = context_of(request).service.driver
    if not isinstance(driver, AgentsDriver):
        raise HTTPException(409, f"this server runs work by {driver.name}; it takes no agents")
    return driver


def _speaking_for(request: Request, node: str) -> Identity:
    """Who asks, if it may speak for a node: the token of that node, or one of no node for a name that has no token.

    A token of no node is for the machine of the server itself: from another one it is refused.
    """
    who = allowed(request, "agent")
    if who.node and who.node != node:
        raise HTTPException(403, f"this token is for node {who.node}, not for {node}")
    if not who.node and context_of(request).tokens.has_node(node):
        raise HTTPException(403, f"node {node} has a token of its own; use that")
    if not who.node and who.role == "agent" and not _is_local(request):
        raise HTTPException(
            403,
            "this token is for agents on the server's own machine; "
            f"`wattflow token create {node} --role agent` makes one for this node",
        )
    return who


def _is_local(request: Request) -> bool:
    """Say whether the caller is on this machine."""
    host = request.client.host if request.client is not None else "127.0.0.1"
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False


@router.post("/nodes", openapi_extra=schema(Announcement))
async def announce(request: Request) -> Response:
    """A node joins, or comes back."""
    allowed(request, "agent")
    announcement = await typed(request, Announcement)
    who = _speaking_for(request, announcement.node.name)
    if not OLDEST_PROTOCOL <= announcement.protocol <= PROTOCOL:
        raise HTTPException(409, spoken(announcement.protocol))
    if len(announcement.node.busy) != len(announcement.node.watts):
        raise HTTPException(422, "a node's busy and watts must be as many")
    try:
        _driver(request).announce(announcement.node, announcement.boot, who.id)
    except PermissionError as error:
        raise HTTPException(403, str(error)) from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    service = context_of(request).service
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
    who, driver = _speaking_for(request, turn.node), _driver(request)
    try:
        driver.check_token(turn.node, who.id)
    except PermissionError as error:
        raise HTTPException(403, str(error)) from None
    # Reports of an agent that must announce itself first are not taken: its attempts may have been leased anew.
    if driver.knows(turn.node, turn.boot):
        await driver.report(turn)
        # The agent forgets what is answered, so it must be on disk by then. Joules and loads are sent again anyway.
        if turn.ended or turn.started:
            await context_of(request).service.stored()
    context = context_of(request)
    orders = await driver.orders(turn)
    return answer(request, msgspec.structs.replace(orders, epoch=context.service.fences.epoch, servers=context.servers))


@router.post("/attempts/{fence}/log", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}})
async def log(request: Request, fence: int, offset: int) -> Response:
    """Output of an attempt from a place on."""
    who = allowed(request, "agent")
    if not 0 <= offset <= LIMIT_BYTES or fence < 0:
        raise HTTPException(422, f"offset must be within 0 and {LIMIT_BYTES}, and fence not negative")
    # Before the body is read: a stranger's gigabyte is not worth receiving.
    if not _driver(request).has(fence, who.id):
        raise HTTPException(403, f"attempt {fence} is not one of this agent's")
    data = await raw(request, LOG_BYTES)
    written = context_of(request).service.log(fence, offset, data)
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
    name = await asyncio.to_thread(context_of(request).objects.put, data)
    return answer(request, {"object": name}, 201)


@router.get("/objects/{name}")
async def get_object(request: Request, name: str) -> Response:
    """Bytes by name."""
    allowed(request, "user", "agent")
    try:
        data = await asyncio.to_thread(context_of(request).objects.get, name)
    except KeyError as error:
        maker = await remake(context_of(request).service, name)
        what = str(error) if isinstance(error, ObjectDamaged) else f"no object {name}"
        raise HTTPException(
            404, what if maker is None else f"{what}; task {maker}, which made it, runs again"
        ) from None
    return Response(data, media_type="application/octet-stream")
