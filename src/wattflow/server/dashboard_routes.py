"""Routes of the page: runs as columns, events, energy, explanations, forecasts, its session. docs/page-routes.md."""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from wattflow.files.columns import MEDIA_TYPE
from wattflow.server.bodies import answer, schema, typed
from wattflow.server.context import allowed, context_of, owned, owned_task
from wattflow.server.dashboard import cookie_of, set_cookie
from wattflow.server.energy import HOUR_S, energy
from wattflow.server.forecasts import ForecastJob, ForecastRequest
from wattflow.server.tokens import Identity
from wattflow.store import reads
from wattflow.store import schema as tables

router = APIRouter(prefix="/v1", tags=["dashboard"])
PRIVATE = {"cache-control": "no-store", "vary": "accept-encoding"}


@router.get("/runs")
async def runs(request: Request, most: Annotated[int, Query(ge=1, le=1000)] = 200) -> Response:
    """Workflows as runs, the latest first, with their figures as far as they are known."""
    who = allowed(request, "user")
    found = await asyncio.to_thread(listed, context_of(request).database, owner_of(who), most)
    return answer(request, found)


@router.get("/runs/{workflow}")
async def view(request: Request, workflow: str) -> Response:
    """The document of a workflow, under way or over."""
    await owned(request, workflow)
    context = context_of(request)
    packed = _packed(request)
    data = await context.dashboard.documents.ask("view", workflow=workflow, now_s=context.service.now(), packed=packed)
    return _columns(data, packed)


@router.get("/live")
async def live(request: Request, last_s: Annotated[float, Query(gt=0, le=86400)] = 600.0) -> Response:
    """The document of what runs, and of what ran in the last seconds."""
    who = allowed(request, "user")
    dashboard = context_of(request).dashboard
    present, packed = await dashboard.present(owner_of(who)), _packed(request)
    data = await dashboard.documents.ask(
        "live", owner=owner_of(who), last_s=last_s, present=msgspec.to_builtins(present), packed=packed
    )
    return _columns(data, packed)


@router.get("/events", include_in_schema=False)
async def events(request: Request) -> Response:
    """Server-sent events: what was committed."""
    who = allowed(request, "user")
    hub = context_of(request).dashboard.events
    if not hub.has_room(owner_of(who)):
        raise HTTPException(503, "too many viewers watch already; close a page, or try later")
    dashboard = context_of(request).dashboard
    # A stream lasts for hours: a revoked token must end it, though nothing is asked any more.
    still = functools.partial(dashboard.still_knows, who, cookie_of(request.scope))
    return hub.stream(owner_of(who), request.headers.get("last-event-id"), still)


@router.get("/energy")
async def joules(
    request: Request,
    from_s: Annotated[float | None, Query(alias="from", ge=0, le=1e11)] = None,
    to_s: Annotated[float | None, Query(alias="to", ge=0, le=1e11)] = None,
    step: Annotated[float, Query(ge=1, le=1e9)] = 10.0,
) -> Response:
    """Joules of all nodes by step; the last hour where no span is given."""
    allowed(request, "user", "viewer")
    context = context_of(request)
    until_s = context.service.now() if to_s is None else to_s
    since_s = max(0.0, until_s - HOUR_S) if from_s is None else from_s
    return answer(request, await asyncio.to_thread(energy, context.database, since_s, until_s, step))


@router.get("/tasks/{task}/explain")
async def explain(request: Request, task: int, number: Annotated[int, Query(ge=0, le=10_000)] = 0) -> Response:
    """Candidates of a task that waits, or of the decision that placed one of its attempts."""
    await owned_task(request, task)
    context = context_of(request)
    record = context.service.tasks.get(task)
    # What waits is explained by the engine as it is, the past by replaying the journal up to the decision.
    if record is not None and record.state == "waiting" and number == 0:
        return answer(request, await context.dashboard.explain_waiting(record))
    data = await context.dashboard.decisions.ask("explain", task=task, number=number)
    return answer(request, msgspec.json.decode(data))


@router.post("/forecasts", openapi_extra=schema(ForecastRequest))
async def forecast(request: Request) -> Response:
    """Begin a forecast."""
    who = allowed(request, "user")
    wanted = await typed(request, ForecastRequest, 1 << 16)
    # Checked before the process is started: it reads the store as the server, and knows no owners.
    if wanted.workflow is not None:
        await owned(request, wanted.workflow)
    made = context_of(request).dashboard.forecasts.start(wanted, who.name)
    return answer(request, {"id": made.id, "state": made.state}, 202)


@router.get("/forecasts")
async def forecasts(request: Request) -> Response:
    """Forecasts, the latest first."""
    who = allowed(request, "user")
    return answer(request, [one.shown() for one in context_of(request).dashboard.forecasts.of(owner_of(who))])


@router.get("/forecasts/{forecast}")
async def one_forecast(request: Request, forecast: str) -> Response:
    """One forecast, with its results once it is done."""
    return answer(request, _forecast(request, forecast).shown())


@router.delete("/forecasts/{forecast}")
async def cancel_forecast(request: Request, forecast: str) -> Response:
    """Cancel a forecast."""
    found = _forecast(request, forecast)
    await context_of(request).dashboard.forecasts.cancel(found)
    return answer(request, found.shown())


@router.get("/session")
async def session(request: Request) -> Response:
    """Who is logged in."""
    who = allowed(request, "user", "viewer", "agent")
    return answer(request, context_of(request).dashboard.told(who, cookie_of(request.scope)))


@router.delete("/session")
async def logout(request: Request) -> Response:
    """End the session."""
    allowed(request, "user", "viewer", "agent")
    secret = cookie_of(request.scope)
    await asyncio.to_thread(context_of(request).dashboard.sessions.close, secret)
    gone = set_cookie("", request.url.scheme == "https", 0.0)
    return JSONResponse({"ended": bool(secret)}, headers={"set-cookie": gone})


@router.post("/session/link")
async def link(request: Request) -> Response:
    """A code that opens one session within a minute, for a browser that a command opens."""
    who = allowed(request, "user", "viewer")
    return answer(request, {"code": context_of(request).dashboard.sessions.code(who)}, 201)


def owner_of(who: Identity) -> str | None:
    """Whose work somebody sees; None sees all."""
    return None if who.sees_all else who.name


def listed(database: sa.Engine, owner: str | None, most: int) -> list[dict[str, Any]]:
    """Workflows with their figures: joules and response of what ran."""
    found = reads.workflows(database, owner, None, most)
    t, a = tables.tasks.c, tables.attempts.c
    sums: list[Any] = [
        t.workflow,
        sa.func.count().label("attempts"),
        sa.func.sum(a.energy_j).label("energy_j"),
        sa.func.avg(sa.case((a.outcome == "done", a.ended_s - a.ready_s))).label("response_mean_s"),
    ]
    query = sa.select(*sums).select_from(sa.join(tables.tasks, tables.attempts, t.id == a.task))
    query = query.where(t.workflow.in_([row["id"] for row in found])).group_by(t.workflow)
    known = {row.pop("workflow"): row for row in reads.rows(database, query)}
    nothing = {"attempts": 0, "energy_j": None, "response_mean_s": None}
    return [_run(row) | known.get(row["id"], nothing) for row in found]


def _run(row: dict[str, Any]) -> dict[str, Any]:
    about = msgspec.msgpack.decode(row["about"])
    over = row["ended_s"] is not None
    return {
        "id": row["id"], "title": row["name"], "workload": row["name"], "policy": about.get("policy"),
        "owner": row["owner"], "state": row["state"], "simulated": False, "submitted_s": row["submitted_s"],
        "makespan_s": row["ended_s"] - row["submitted_s"] if over else None, "source": "server",
    }  # fmt: skip


def _forecast(request: Request, identity: str) -> ForecastJob:
    who = allowed(request, "user")
    found = context_of(request).dashboard.forecasts.get(identity, owner_of(who))
    if found is None:
        raise HTTPException(404, f"no forecast {identity}")
    return found


def _packed(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _columns(data: bytes, packed: bool) -> Response:
    return Response(data, 200, PRIVATE | ({"content-encoding": "gzip"} if packed else {}), MEDIA_TYPE)
