"""HTTP beside the scheduler: metrics, health tied to the age of the watches, explanations. Loopback by default.

At another address metrics and explanations want the token of ``[http] token_file``, as a bearer token or, through the
API server's proxy, which keeps bearer tokens to itself, in the header ``X-Wattflow-Token``.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from wattflow.kube import accounting, cws, extender
from wattflow.kube.prometheus_text import Labels
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.settings import SchedulerSettings

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
        token = cws.read_token(Path(scheduler.settings.token_file))
        app.router.add_routes(cws.routes(scheduler.executions, token))
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
