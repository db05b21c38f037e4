"""The HTTP application: who asks, what went wrong, which routes there are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from wattflow import __version__
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.pulse import Pulse
from wattflow.runtime.service import Service
from wattflow.server import bodies
from wattflow.server.hot import Hot
from wattflow.server.tokens import Identity, Tokens
from wattflow.store import reads
from wattflow.store.objects import Objects

log = logging.getLogger(__name__)
SNAPSHOT_ENTRIES = 20_000
"""Journal entries after which the engine is saved anew."""


@dataclass(slots=True)
class House:
    """Everything that the routes need.

    Attributes:
        keep_s: How long ended workflows, their results and logs are kept.
        shut_down: Ends the server; set by whoever runs it.
    """

    service: Service
    database: sa.Engine
    objects: Objects
    tokens: Tokens
    folder: Path
    keep_s: float = 30 * 86400.0
    shut_down: Callable[[], None] = lambda: None
    background: list[asyncio.Task[None]] = field(default_factory=list)
    pulse: Pulse = field(default_factory=Pulse)


def make_app(house: House) -> FastAPI:
    """The application over a house."""
    from wattflow.server import agent_routes, routes

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await house.service.start()
        house.background = [asyncio.create_task(_housekeeping(house)), asyncio.create_task(house.pulse.run())]
        yield
        for task in house.background:
            task.cancel()
        await house.service.stop()

    app = FastAPI(title="wattflow", version=__version__, lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.house = house
    app.add_middleware(_Door, tokens=house.tokens)
    app.include_router(routes.router)
    app.include_router(agent_routes.router)
    app.add_exception_handler(WattflowError, _refused)
    app.add_exception_handler(HTTPException, _http)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(describe(app))

    return app


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the messages' schemas."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(bodies.SCHEMAS)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


class _Door:
    """Nobody passes without a token. A plain ASGI wrapper costs microseconds; a middleware function, hundreds."""

    def __init__(self, app: Any, tokens: Tokens) -> None:
        self._app, self._tokens, self._hot = app, tokens, Hot(_refused, _http)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        token = given[7:].decode("latin-1") if given[:7].lower() == b"bearer " else ""
        identity = self._tokens.who(token) if token else None
        if identity is None:
            response = JSONResponse({"error": "a token is needed: authorization: Bearer …"}, 401,
                                    {"www-authenticate": "Bearer"})  # fmt: skip
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["identity"] = identity
        if not await self._hot.answered(scope, receive, send):
            await self._app(scope, receive, send)


def house_of(request: Request) -> House:
    """The house that a request came to."""
    house: House = request.app.state.house
    return house


def allowed(request: Request, *roles: str) -> Identity:
    """Who asks, if the role is one of these."""
    identity: Identity = request.state.identity
    if not identity.may(*roles):
        raise HTTPException(403, f"this needs the role {' or '.join(roles)}; the token's role is {identity.role}")
    return identity


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 422 if isinstance(error, InvalidInput) else 409)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _housekeeping(house: House) -> None:
    """Snapshots, and an end to what was kept long enough."""
    saved = house.service.ledger.next_entry
    while True:
        await asyncio.sleep(5)
        try:
            if house.service.ledger.next_entry - saved >= SNAPSHOT_ENTRIES:
                saved = house.service.ledger.next_entry
                await take_snapshot(house.service, house.database, house.folder)
            forget_closed(house.service)
            await asyncio.to_thread(_expire, house, house.service.now() - house.keep_s)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            log.warning("housekeeping: %s", error)


def _expire(house: House, before_s: float) -> None:
    """What ended before a time leaves the store, and its output the disk."""
    for gone in reads.expire(house.database, before_s):
        house.service.logs.drop(gone)


def forget_closed(service: Service, after_s: float = 60.0) -> None:
    """Workflows that are over leave memory; the store answers for them."""
    for workflow in [w for w in service.workflows.values() if w.state != "open"]:
        ended_s = float(workflow.about.get("ended_s", 0.0))  # type: ignore[arg-type]
        if service.now() - ended_s > after_s:
            del service.workflows[workflow.id]
            for task in workflow.keys.values():
                service.tasks.pop(task, None)
