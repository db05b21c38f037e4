"""HTTP beside the scheduler: metrics, health tied to the age of the watches, explanations. Loopback by default.

At another address metrics and explanations want the token of ``[http] token_file``, as a bearer token or, through the
API server's proxy, which keeps bearer tokens to itself, in the header ``X-Wattflow-Token``.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from wattflow.kube import accounting, extender
from wattflow.kube.executions import BadExecution, Executions, NoExecution, NoStrategy
from wattflow.kube.prometheus_text import Labels
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.settings import SchedulerSettings
from wattflow.live.shielding import Shielding
from wattflow.model.errors import InvalidInput

ROOT = "/v1/scheduler/{execution}"
_LEAST_TOKEN = 16
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Body(msgspec.Struct, rename="camel", kw_only=True):
    """Fields that we do not use are skipped."""


class Config(_Body):
    namespace: str = "default"
    strategy: str = "rank"


class Vertex(_Body):
    uid: int
    label: str | None = ""
    type: str = "PROCESS"


class Edge(_Body):
    uid: int
    from_: int = msgspec.field(name="from")
    to: int


class TaskConfig(_Body):
    task: str
    run_name: str
    name: str = ""
    input_size: float | None = None


def read_token(path: Path) -> str:
    """Read the token of a file. Raises InvalidInput where it is short, or readable by others."""
    try:
        token, mode = path.read_text(encoding="utf-8").strip(), path.stat().st_mode
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    if len(token) < _LEAST_TOKEN:
        raise InvalidInput(str(path), f"a token has at least {_LEAST_TOKEN} letters")
    if mode & 0o077:
        raise InvalidInput(str(path), "may be read by others; chmod 600 it")
    return token


def routes(executions: Executions, token: str) -> list[web.RouteDef]:
    """Return all routes; each answers 401 without the token."""

    def route(method: str, path: str, act: Callable[[str, web.Request, bytes], object]) -> web.RouteDef:
        async def answer(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "")
            # In constant time: the answer's time must not tell how much of a token was right.
            if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return _problem(401, "a token is needed: Authorization: Bearer …")
            try:
                found = act(request.match_info["execution"], request, await request.read())
            except NoStrategy as error:
                return _problem(404, str(error))
            except (NoExecution, BadExecution) as error:
                return _problem(400, str(error))
            except (msgspec.MsgspecError, ValueError) as error:
                return _problem(400, f"{method} {request.path}: {error}")
            # Only False: None stands for an answer without content.
            if found is False:
                return _problem(404, "there is no such task")
            return web.Response(body=msgspec.json.encode(found or {}), content_type="application/json")

        return web.route(method, ROOT + path, answer)

    known = executions
    return [
        route("POST", "", lambda name, _, raw: known.register(name, *_config(raw))),
        route("DELETE", "", lambda name, _, raw: known.delete(name)),
        route("POST", "/DAG/vertices", lambda name, _, raw: known.add_vertices(name, _vertices(raw))),
        route("DELETE", "/DAG/vertices", lambda name, _, raw: known.drop_vertices(name, _whole(raw))),
        route("POST", "/DAG/edges", lambda name, _, raw: known.add_edges(name, _edges(raw))),
        route("DELETE", "/DAG/edges", lambda name, _, raw: known.drop_edges(name, _whole(raw))),
        route("PUT", "/startBatch", lambda name, _, raw: known.start_batch(name)),
        route("PUT", "/endBatch", lambda name, _, raw: known.end_batch(name, msgspec.json.decode(raw, type=int))),
        route("POST", "/task/{id}", lambda name, request, raw: _task(known, name, _id(request), raw)),
        route("GET", "/task/{id}", lambda name, request, raw: _state(known, name, _id(request))),
        route("DELETE", "/task/{id}", lambda name, request, raw: known.drop_task(name, _id(request))),
    ]


def _problem(code: int, text: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if code == 401 else {}
    return web.json_response({"error": text}, status=code, headers=headers)


def _config(raw: bytes) -> tuple[str, str]:
    found = msgspec.json.decode(raw or b"{}", type=Config)
    return found.namespace, found.strategy


def _vertices(raw: bytes) -> list[tuple[int, str, str]]:
    return [(one.uid, one.label or "", one.type) for one in msgspec.json.decode(raw, type=list[Vertex])]


def _edges(raw: bytes) -> list[tuple[int, int, int]]:
    return [(one.uid, one.from_, one.to) for one in msgspec.json.decode(raw, type=list[Edge])]


def _whole(raw: bytes) -> list[int]:
    return msgspec.json.decode(raw, type=list[int])


def _id(request: web.Request) -> int:
    return int(request.match_info["id"])


def _task(known: Executions, name: str, id: int, raw: bytes) -> None:
    told = msgspec.json.decode(raw, type=TaskConfig)
    known.add_task(name, id, told.task, told.run_name, told.input_size or 0.0)


def _state(known: Executions, name: str, id: int) -> object:
    task = known.of_name(name).tasks.get(id)
    return False if task is None else {"state": task.state}


TOKEN_HEADER = "X-Wattflow-Token"


def unhealthy(scheduler: Scheduler) -> str | None:
    """Tell what is wrong, or None."""
    limit_s = scheduler.settings.stale_after_s
    # A mirror counts from its start, so one that never got an answer becomes unhealthy too.
    old = [f"{mirror.path} {mirror.age_s:.0f} s" for mirror in scheduler.mirrors if mirror.age_s > limit_s]
    return f"watches are silent: {', '.join(old)}" if old else None


def unready(scheduler: Scheduler) -> str | None:
    """Say why pods would not be placed now, or None."""
    behind = [mirror.path for mirror in scheduler.mirrors if not mirror.synced.is_set()]
    if behind:
        return f"not synced: {', '.join(behind)}"
    leader, elects = scheduler.leader, scheduler.settings.leader_elect and scheduler.settings.mode == "schedule"
    stands_by = elects and leader.asked and not leader.leads  # ready to take over, so a rolling update may go on
    return unhealthy(scheduler) if scheduler.book.live or stands_by else "takes up the cluster"


def explain(scheduler: Scheduler, key: str) -> dict[str, object] | None:
    """Tell what is known of one pod: where it was put and why, or what keeps it waiting."""
    for uid, pod in scheduler.book.waiting.items():
        if pod.key == key:
            text = scheduler.book.refused.get(uid) or scheduler.decider.why(uid)
            return {"pod": key, "state": "waiting", "why": text, "requests": accounting.pod_requests(pod)}
    for record in scheduler.book.records.values():
        if record.pod.key == key:
            state = "assumed" if record.assumed else "bound"
            return {"pod": key, "state": state, "node": record.node, "requests": record.amounts}
    return None


@asynccontextmanager
async def serving(scheduler: Scheduler) -> AsyncIterator[int]:
    """Serve while the context is open; gives the port (of use where 0 was asked for)."""
    _add_gauges(scheduler)
    app = extender.application()
    app.router.add_routes(_pages(scheduler))
    if scheduler.settings.mode == "extender":
        app.router.add_routes(extender.routes(scheduler))
    if scheduler.executions is not None:
        token = read_token(Path(scheduler.settings.token_file))
        app.router.add_routes(routes(scheduler.executions, token))
    # No access log: probes and scrapes would fill it.
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, scheduler.settings.address, scheduler.settings.port)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _pages(scheduler: Scheduler) -> list[web.RouteDef]:
    async def health(request: web.Request) -> web.Response:
        return _answer(unhealthy(scheduler))

    async def ready(request: web.Request) -> web.Response:
        return _answer(unready(scheduler))

    async def metrics(request: web.Request) -> web.Response:
        let_in(scheduler.settings, request)
        return web.Response(text=scheduler.metrics.text())

    async def explained(request: web.Request) -> web.Response:
        let_in(scheduler.settings, request)
        found = explain(scheduler, f"{request.match_info['namespace']}/{request.match_info['name']}")
        return web.json_response(found, status=404 if found is None else 200)

    return [
        web.get("/healthz", health),
        web.get("/livez", health),
        web.get("/readyz", ready),
        web.get("/metrics", metrics),
        web.get("/explain/{namespace}/{name}", explained),
    ]


def let_in(settings: SchedulerSettings, request: web.Request) -> None:
    """Refuse who shows no token where others than this machine can ask; the file is read anew, tokens may change."""
    named = settings.token_file
    if _is_loopback(settings.address):
        return
    try:
        token = Path(named).read_text(encoding="utf-8").strip() if named else ""
    except OSError:
        token = ""
    if not token:
        raise web.HTTPForbidden(text="no token is set (http.token_file): only health is told at this address")
    # Our header first: through the API server's proxy the bearer token is the caller's own, for the
    # API.
    shown = request.headers.get(TOKEN_HEADER) or request.headers.get("Authorization", "").removeprefix("Bearer ")
    # In constant time: the answer's time must not tell how much of a token was right.
    if not hmac.compare_digest(shown.encode(), token.encode()):
        raise web.HTTPUnauthorized(text="the scheduler's token is needed")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        # A name could resolve to anything; only this one is taken for loopback.
        return address == "localhost"


def _answer(problem: str | None) -> web.Response:
    return web.Response(text=problem or "ok", status=500 if problem else 200)


def _add_gauges(scheduler: Scheduler) -> None:
    book, watts = scheduler.book, scheduler.watts

    def pending() -> list[tuple[Labels, float]]:
        refused = len(book.refused)
        queued = sum(record.assumed for record in book.records.values())
        # Refused pods are among those that wait.
        found = {"active": queued, "unschedulable": len(book.waiting) - refused, "refused": refused}
        return [((("queue", queue),), float(count)) for queue, count in found.items()]

    def node_watts() -> list[tuple[Labels, float]]:
        found = ((name, watts.node_w(view)) for name, view in book.cluster.nodes.items())
        return [((("node", name),), value) for name, value in found if value is not None]

    def joules() -> list[tuple[Labels, float]]:
        return [((("node", name),), value) for name, value in watts.joules.items()]

    def ages() -> list[tuple[Labels, float]]:
        return [((("path", mirror.path),), mirror.age_s) for mirror in scheduler.mirrors]

    if scheduler.raiser is not None:
        raiser = scheduler.raiser

        def pod_watts() -> list[tuple[Labels, float]]:
            return [((("pod", pod.key),), value) for pod, value in raiser.pod_watts()]

        about = "Modelled watts above idle of a pod that runs, as its node is filled now."
        scheduler.metrics.gauges["wattflow_pod_watts"] = (about, pod_watts)
    if scheduler.shadow is not None:
        shadow = scheduler.shadow
        scheduler.metrics.gauges |= {
            "wattflow_shadow_pods": (
                "Pods of the other scheduler: on our choice too, on another, one with unknown watts, or placed"
                " where ours would have waited.",
                lambda: [((("result", result),), float(count)) for result, count in shadow.pods.items()],
            ),
            "wattflow_shadow_saved_watts": (
                "Modelled watts that our choices would have saved, over pods that went elsewhere.",
                lambda: [((), shadow.saved_w)],
            ),
            "wattflow_shadow_saved_joules": (
                "Modelled joules that our choices would have saved, each pod's watts for as long as it ran.",
                lambda: [((), shadow.saved_j)],
            ),
        }
    scheduler.metrics.gauges |= {
        "scheduler_pending_pods": ("Pods that wait, by queue.", pending),
        "wattflow_node_watts": ("Modelled watts of a node with its requested cores busy.", node_watts),
        "wattflow_node_joules": ("Modelled joules of a node since the start.", joules),
        "wattflow_watch_age_seconds": ("Seconds since a watch last said anything.", ages),
    }


def shield_gauges(shield: Shielding) -> dict[str, tuple[str, Callable[[], list[tuple[Labels, float]]]]]:
    """Gauges of a scheduler whose policy is shielded; they have no sample before the shield's first answer."""

    def of(name: str) -> Callable[[], list[tuple[Labels, float]]]:
        def samples() -> list[tuple[Labels, float]]:
            value = shield.remembered.summary.get(name)  # of joules saved by a policy that is guarded, None
            return [] if value is None else [((), float(value))]

        return samples

    return {
        "wattflow_shield_kept": ("1 while nobody waits longer than promised.", of("kept")),
        "wattflow_shield_judged": ("Workflows by which that is told.", of("judged")),
        "wattflow_shield_late": ("Lateness beside the reference, as a share.", of("late")),
        "wattflow_shield_tail": ("p95 response over the reference's.", of("tail")),
        "wattflow_shield_saved": ("Share of the reference's joules saved, modelled.", of("saved")),
        "wattflow_shield_spent": ("Times that the budget was spent.", of("spent")),
        "wattflow_shield_processor_seconds": (
            "Processor time of the shield.", lambda: [((), shield.remembered.processor_s)],
        ),
    }  # fmt: skip
