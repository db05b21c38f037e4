"""The HTTP application: who asks, what went wrong, which routes there are."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

import fastapi.routing
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from wattflow import __version__
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.logs import REQUEST
from wattflow.runtime.records import Broken
from wattflow.runtime.recovery import wanted_objects
from wattflow.runtime.service import Service
from wattflow.runtime.tidying import trim_memory, trim_own_log
from wattflow.runtime.turns import on_disk
from wattflow.server import admin_routes, agent_routes, bodies, dashboard_routes, routes
from wattflow.server.connections import Rates
from wattflow.server.context import Context
from wattflow.server.tokens import Identity
from wattflow.store import reads
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import StoreTrouble
from wattflow.store.thinning import pieces

Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Request, Exception], Awaitable[Response]]
_OUTCOMES = ("/v1/workflows/", "/outcomes")


class Hot:
    """Answers what is on every task's way; says False to the rest."""

    def __init__(self, refused: Handler, http: Handler) -> None:
        self._refused, self._http, self._routes = refused, http, routes
        self._posts: dict[str, Endpoint] = {"/v1/agents/sync": agent_routes.sync, "/v1/submissions": routes.submit}

    async def answered(self, scope: Any, receive: Any, send: Any) -> bool:
        """Answer if it is one of them."""
        endpoint = self._endpoint(scope)
        if endpoint is None:
            return False
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except WattflowError as error:
            response = await self._refused(request, error)
        except HTTPException as error:
            response = await self._http(request, error)
        await response(scope, receive, send)
        return True

    def _endpoint(self, scope: Any) -> Endpoint | None:
        path: str = scope["path"]
        if scope["method"] == "POST":
            return self._posts.get(path)
        if scope["method"] == "GET" and path.startswith(_OUTCOMES[0]) and path.endswith(_OUTCOMES[1]):
            return self._outcomes(path[len(_OUTCOMES[0]) : -len(_OUTCOMES[1])], scope["query_string"])
        return None

    def _outcomes(self, workflow: str, query: bytes) -> Endpoint | None:
        given = dict(parse_qsl(query.decode("latin-1")))
        after, wait = given.pop("after", "0"), given.pop("wait_s", "0")
        # Anything but the plain question is the framework's: it has the checks and the words for what is wrong.
        if given or "/" in workflow or not after.isdecimal() or len(after) > 18:
            return None
        try:
            wait_s = float(wait)
        except ValueError:
            return None
        if not 0 <= wait_s <= self._routes.WAIT_S:
            return None
        return lambda request: self._routes.outcomes(request, workflow, int(after), wait_s)


log = logging.getLogger(__name__)
LEAST_KEPT_S = 3600.0
"""An object is put before the task that names it: nothing younger is swept away."""
THREADS = 8
"""For files and queries."""
FORGET_AFTER_S = 15.0
"""Memory holds what is over for so long: its clients have their ends by then, and whoever asks later asks the store.
At 200 tasks a second a minute of it was a seventh of the server's memory."""
TRIM_S = 60.0
"""How often memory that the allocator holds free, between what is in use, is given back to the machine."""
FORGET_PIECE = 256
"""Tasks that leave memory before others have a turn of the loop."""
THIN_MOST = 200
"""Groups of windows that are merged before housekeeping goes on."""
SNAPSHOT_ENTRIES = 20_000
"""Journal entries after which the engine is saved anew."""


def make_app(context: Context) -> Door:
    """Make the application of a server, behind its door."""

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        _start_threads(asyncio.get_running_loop())
        await _first_call(app)
        await context.service.start()
        context.background = [
            asyncio.create_task(one) for one in (_housekeeping(context), _snapshots(context), context.pulse.run())
        ]
        yield
        for task in context.background:
            task.cancel()
        await context.dashboard.close()
        await context.service.stop()

    app = FastAPI(title="wattflow", version=__version__, lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.context = context
    app.include_router(routes.router)
    app.include_router(agent_routes.router)
    app.include_router(admin_routes.router)
    app.include_router(dashboard_routes.router)
    app.add_exception_handler(WattflowError, _refused)
    app.add_exception_handler(HTTPException, _http)

    _name_endpoints(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(await asyncio.to_thread(describe, app))

    return Door(app, context)


def _start_threads(loop: asyncio.AbstractEventLoop) -> None:
    """The threads that files and queries are handed to, all of them now: one that is started later makes the loop wait
    until it runs."""
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="wattflow-io")
    together = threading.Barrier(THREADS)
    for _ in range(THREADS):
        executor.submit(together.wait, 10.0)
    loop.set_default_executor(executor)


async def _first_call(app: FastAPI) -> None:
    """Ask for a page that is not there: the framework builds its table of routes at the first call it gets, which would
    hold the loop up for tens of milliseconds when work is under way."""

    async def nothing() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def nobody(_: Any) -> None:
        return None

    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": "/",
        "raw_path": b"/", "root_path": "", "scheme": "http", "query_string": b"", "headers": [], "client": None,
        "server": None, "state": {}, "app": app,
    }  # fmt: skip
    await app(scope, nothing, nobody)


def _name_endpoints(app: FastAPI) -> None:
    """Say where each route's function is written, which FastAPI would look up by parsing its file at the first call:
    that takes tens of milliseconds in the loop. A FastAPI that keeps no such notes is left alone."""
    known = getattr(fastapi.routing, "_endpoint_context_cache", None)
    if not isinstance(known, dict):
        return
    for route in app.routes:
        if isinstance(route, fastapi.routing.APIRoute):
            code = route.endpoint.__code__
            known[id(route.endpoint)] = {
                "file": code.co_filename,
                "line": code.co_firstlineno,
                "function": route.endpoint.__name__,
            }


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the messages' schemas."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(bodies.SCHEMAS)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


class Door:
    """Nobody passes without a token. It stands before the framework, whose layers cost more than what most calls do."""

    def __init__(self, app: FastAPI, context: Context) -> None:
        self._app, self._context, self._hot = app, context, Hot(_refused, _http)
        self._rates = Rates()
        self._open = {"/healthz": _healthy, "/readyz": _ready}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or hand it on with who asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = secrets.token_hex(8)
        # A context variable, not an argument: log lines anywhere below carry the request's id.
        REQUEST.set(request)
        send = self._counted(send, request)
        probe = self._open.get(scope["path"])
        if probe is not None and scope["method"] in ("GET", "HEAD"):
            await probe(self._context)(scope, receive, send)
            return
        identity = self.identify(scope)
        refusal = self._refusal(scope, identity)
        # After the rate: a stranger who floods the login page is refused like any other.
        if refusal is None and await self._context.dashboard.answered(scope, receive, send):
            return
        if identity is None or refusal is not None:
            await (refusal or self._context.dashboard.refusal(scope))(scope, receive, send)
            return
        # Routes ask `allowed`, which reads it there: no route looks at a token itself.
        scope.setdefault("state", {})["identity"] = identity
        scope["app"] = self._app
        if not await self._hot.answered(scope, receive, send):
            await self._app(scope, receive, send)

    def identify(self, scope: Any) -> Identity | None:
        """Tell who asks, by the token in the request's headers or by a browser's cookie."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        token = given[7:].decode("latin-1") if given[:7].lower() == b"bearer " else ""
        return self._context.tokens.user_of(token) if token else self._context.dashboard.sessions.identify(scope)

    def _refusal(self, scope: Any, identity: Identity | None) -> Response | None:
        """Refuse who asks too often. A connection that showed a valid token is no stranger's from then on."""
        if identity is not None and (known := scope.get("state", {}).get("known")) is not None:
            known()
        who, role = (identity.id, identity.role) if identity else (str((scope.get("client") or [""])[0]), "")
        if self._rates.takes(who, role):
            return None
        headers = {"retry-after": "1"} | ({} if identity else {"connection": "close"})
        said = "too many requests; wait a second" + ("" if identity else ", and bring a token")
        return JSONResponse({"error": said}, 429, headers)

    def _counted(self, send: Any, request: str) -> Any:
        """Count the answer by its status, and give it the request's id."""
        requests = self._context.requests

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                # Counted as it is sent: an answer that the framework makes for an error counts, too.
                requests[str(message["status"])] += 1
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request.encode())]
            await send(message)

        return counted


def _healthy(_: Context) -> Response:
    """The loop turns; that is all a liveness probe wants to know."""
    return Response("ok\n", media_type="text/plain")


def _ready(context: Context) -> Response:
    """Ready to take work: the turns go on and the store takes changes. Why not is in the log, not for strangers."""
    ready = context.service.fault is None and context.service.writer.message is None
    return Response("ready\n" if ready else "not ready\n", 200 if ready else 503, media_type="text/plain")


def _is_agents(request: Request) -> bool:
    """Say whether it is a request that only agents make."""
    return request.url.path.startswith(("/v1/agents", "/v1/nodes", "/v1/attempts", "/v1/objects"))


async def _refused(request: Request, error: Exception) -> Response:
    """Trouble of the server's own is 503. An agent waits for the next start then; clients are told a fault at once."""
    # To a client a fault of the engine is final until a restart; an agent must keep its work and wait for that.
    waits = isinstance(error, StoreTrouble) or (isinstance(error, Broken) and _is_agents(request))
    status = 422 if isinstance(error, InvalidInput) else 503 if waits else 409
    return JSONResponse({"error": str(error)}, status)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _housekeeping(context: Context, every_s: float = 5.0) -> None:
    """Put an end to what was kept long enough, in memory, in the store and on the disk."""
    collected = context.service.ledger.next_entry
    trimmed_s = time.monotonic()
    while True:
        await asyncio.sleep(every_s)
        # Cycles that survived their youth stay until here; a whole collection would hold up whoever waits.
        if not context.service.workflows and collected != context.service.ledger.next_entry:
            collected = context.service.ledger.next_entry
            gc.collect()  # nothing is open, so there is little to look at and nobody who waits
        try:
            await forget_closed(context.service)
            await asyncio.to_thread(trim_own_log)
            if time.monotonic() - trimmed_s > TRIM_S:
                trimmed_s = time.monotonic()
                await asyncio.to_thread(trim_memory)
            await thin(context)
            await asyncio.to_thread(_expire, context, context.service.now() - context.keep_s)
        except Exception as error:
            context.service.aside.put("round of", "housekeeping", error)


async def _snapshots(context: Context, every_s: float = 5.0) -> None:
    """Have the engine saved anew now and then.

    Apart from housekeeping: on a busy machine it takes minutes, and what is over must leave memory meanwhile.
    """
    saved = context.service.ledger.next_entry
    while True:
        await asyncio.sleep(every_s)
        if context.service.ledger.next_entry - saved >= SNAPSHOT_ENTRIES:
            saved = context.service.ledger.next_entry
            with context.service.aside.guard("round of", "snapshots"):
                await take_snapshot(context.service, context.database, context.folder, context.keep_journal_bytes)


async def thin(context: Context, most: int = THIN_MOST) -> None:
    """Merge windows of energy that have grown old, a node's few minutes with a group."""
    batches = pieces(context.database, context.service.now())
    for _ in range(most):
        # The reading is in a thread, the writing in the writer's group: windows that come meanwhile are not lost.
        batch = await asyncio.to_thread(next, batches, None)
        if batch is None:
            return
        context.service.writer.put(*batch)
        await on_disk(context.service.writer)


def _expire(context: Context, before_s: float) -> None:
    """Let what ended before a time leave the store, its output and its objects the disk."""
    gone = 0
    for attempts in reads.expire(context.database, before_s):
        context.service.logs.drop(attempts)
        gone += len(attempts)
    if gone and isinstance(context.objects, FolderObjects):  # a bucket has rules of its own for what is old
        old_s = time.time() - max(context.keep_s, LEAST_KEPT_S)
        context.objects.sweep(old_s, lambda: wanted_objects(context.database))


async def forget_closed(service: Service, after_s: float = FORGET_AFTER_S) -> None:
    """Workflows that are over leave memory, a piece at a time; the store answers for them."""
    for workflow in [w for w in service.workflows.values() if w.state != "open"]:
        ended_s: Any = workflow.about.get("ended_s", 0.0)
        if service.now() - ended_s > after_s:
            # Out of the index first: between two pieces nobody may find a workflow with half of its tasks.
            del service.workflows[workflow.id]
            for number, task in enumerate(workflow.keys.values(), start=1):
                service.tasks.pop(task, None)
                if number % FORGET_PIECE == 0:
                    await asyncio.sleep(0)
