"""Routes of operators and monitors: figures, tokens, limits, books, the audit log."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wattflow import __version__
from wattflow.model.errors import InvalidInput
from wattflow.runtime.accounts import Limits, Scope, month_of
from wattflow.runtime.capping import Signal, plain_policy
from wattflow.runtime.messages import Amount
from wattflow.runtime.service import Service
from wattflow.server.bodies import answer, schema, typed
from wattflow.server.context import allowed, context_of
from wattflow.server.tokens import Identity
from wattflow.store import reads
from wattflow.store.durations import Durations
from wattflow.store.reads import Found

if TYPE_CHECKING:
    from wattflow.runtime.service import Service
    from wattflow.server.context import Context

router = APIRouter(tags=["operations"])
LONGEST_S = 10 * 365 * 86400.0
PLAIN = r"^[^\x00-\x1f\x7f/]*$"
"""Names of people, projects and nodes: no control characters, and no slash, which names a path."""
Called = Annotated[str, Path(min_length=1, max_length=200, pattern=PLAIN)]


class NewToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token to be made."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=PLAIN)]
    role: str = "user"
    project: Annotated[str, msgspec.Meta(max_length=200, pattern=PLAIN)] = ""
    node: Annotated[str, msgspec.Meta(max_length=200, pattern=PLAIN)] = ""
    lifetime_s: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] | None = None


class ChangedLimits(msgspec.Struct, frozen=True):
    """Limits to be changed; null takes one away."""

    energy_j: Amount | msgspec.UnsetType | None = msgspec.UNSET
    carbon_g: Amount | msgspec.UnsetType | None = msgspec.UNSET
    mode: Literal["hard", "soft", "alert"] | msgspec.UnsetType = msgspec.UNSET
    running: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | msgspec.UnsetType | None = msgspec.UNSET
    waiting: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | msgspec.UnsetType | None = msgspec.UNSET
    share: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | msgspec.UnsetType = msgspec.UNSET
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] | msgspec.UnsetType = msgspec.UNSET


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures as OpenMetrics text."""
    allowed(request, "viewer", "user", "agent")
    return Response(exposition(context_of(request)), media_type=CONTENT_TYPE)


@router.post("/v1/tokens", openapi_extra=schema(NewToken))
async def make_token(request: Request) -> Response:
    """Make a token; this answer is the only place where it is ever seen."""
    boss = allowed(request, "operator")
    wanted = await typed(request, NewToken)
    context = context_of(request)
    token, row = context.tokens.draft(
        wanted.name, wanted.role, project=wanted.project, node=wanted.node, lifetime_s=wanted.lifetime_s
    )
    # Token and audit entry go with one commit; only then does the token work.
    context.service.ledger.token(row)
    about = {key: row[key] for key in ("name", "role", "project")}
    await _noted(request, boss, "token create", token=row["id"], **about)
    return answer(request, {"token": token, **_shown(context.tokens.know(row))}, 201)


@router.get("/v1/tokens")
async def tokens(request: Request) -> Response:
    """List all tokens, without their secrets."""
    allowed(request, "operator")
    return answer(request, [_shown(who) for who in context_of(request).tokens.listed()])


@router.delete("/v1/tokens/{named}")
async def revoke_token(request: Request, named: str) -> Response:
    """Revoke a token by its id, or all tokens of a name."""
    boss = allowed(request, "operator")
    context, now_s = context_of(request), time.time()
    ended = context.tokens.revoke(named, now_s)
    for digest in ended:
        context.service.ledger.token_revoked(digest, now_s)
    await _noted(request, boss, "token revoke", tokens=[who.id for who in ended.values()])
    return answer(request, [_shown(who) for who in ended.values()])


async def _noted(request: Request, who: Identity, action: str, **about: object) -> None:
    """Write an entry of the audit log in one commit with what it tells of; wait until it is on disk."""
    service = context_of(request).service
    service.ledger.audit(service.now(), who.name, action, **about)
    await service.stored()


@router.get("/v1/cap")
async def cap(request: Request) -> Response:
    """Tell the cap on all nodes' watts, its next changes, and the signals that hold or will."""
    allowed(request, "user", "viewer")
    return answer(request, context_of(request).service.capping.told())


@router.post("/v1/cap", openapi_extra=schema(Signal))
async def signal_cap(request: Request) -> Response:
    """Cap all nodes' watts from a time on, for a time (demand response); null watts take a signal away."""
    who, service = allowed(request, "operator"), context_of(request).service
    try:
        signal = await typed(request, Signal)
        await service.capping.signal(signal, who.name)
    except InvalidInput as error:
        raise HTTPException(400, str(error)) from None
    except HTTPException as error:
        # Whoever sends signals is told 400 for all that is wrong with one.
        raise HTTPException(400 if error.status_code == 422 else error.status_code, error.detail) from None
    await _noted(
        request,
        who,
        "cap",
        **{k: v for k, v in msgspec.structs.asdict(signal).items() if v is not None or k == "watts"},
    )
    return answer(request, service.capping.told())


@router.get("/v1/accounts")
async def accounts(request: Request) -> Response:
    """List limits, with what is used and reserved of them this month."""
    allowed(request, "operator")
    service = context_of(request).service
    return answer(request, [_account(service, account, limits) for account, limits in service.accounts.limits.items()])


@router.patch("/v1/accounts/{scope}/{name}", openapi_extra=schema(ChangedLimits))
async def change_account(request: Request, scope: Scope, name: Called) -> Response:
    """Change what a user or a project may use; what is not named stays as it is."""
    who = allowed(request, "operator")
    changed = await typed(request, ChangedLimits)
    service = context_of(request).service
    given = {key: value for key, value in msgspec.structs.asdict(changed).items() if value is not msgspec.UNSET}
    # Unset is not null: null takes a limit away, what is not named stays.
    before = msgspec.structs.asdict(service.accounts.limits.get((scope, name), Limits()))
    limits = msgspec.convert(before | given, Limits)
    service.accounts.set((scope, name), limits)
    service.ledger.account(scope, name, limits)
    service.ledger.audit(service.now(), who.name, "limits", account=f"{scope} {name}", **given)
    await service.stored()
    return answer(request, msgspec.structs.asdict(limits))


@router.get("/v1/usage")
async def usage(
    request: Request,
    by: Literal["user", "project", "function"] = "user",
    month: Annotated[str, Query(pattern=r"^(\d{4}-\d{2})?$")] = "",
) -> Response:
    """Tell what was used in a month; a user sees only what is its own."""
    who, context = allowed(request, "user"), context_of(request)
    owner = None if who.sees_all else who.name
    found = await asyncio.to_thread(reads.usage, context.database, month or month_of(context.service.now()), owner)
    return answer(request, _by(found, by))


@router.get("/v1/audit")
async def audit(
    request: Request,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    most: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Entries of the audit log beyond a number."""
    allowed(request, "operator")
    return answer(request, await asyncio.to_thread(reads.audit, context_of(request).database, after, most))


def _account(service: Service, account: tuple[str, str], limits: Limits) -> dict[str, Any]:
    used = service.accounts.usage.used(*account, service.now())
    now = {"used_j": used.energy_j, "used_g": used.carbon_g, "reserved_j": service.accounts.reserved_j[account]}
    return {"scope": account[0], "name": account[1], **msgspec.structs.asdict(limits), **now}


def _by(rows: list[Found], by: str) -> list[dict[str, Any]]:
    """Sums over everything but one column, the largest first."""
    column = {"user": "owner"}.get(by, by)
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        made = sums.setdefault(
            row[column], {by: row[column], "attempts": 0, "cpu_s": 0.0, "energy_j": 0.0, "carbon_g": None}
        )
        for name in ("attempts", "cpu_s", "energy_j"):
            made[name] += row[name]
        if row["carbon_g"] is not None:
            made["carbon_g"] = (made["carbon_g"] or 0.0) + row["carbon_g"]
    return sorted(sums.values(), key=lambda made: -made["energy_j"])


def _shown(who: Identity) -> dict[str, Any]:
    fields = ("id", "name", "role", "project", "node", "created_s", "expires_s", "revoked_s")
    return {field: getattr(who, field) for field in fields}


# `GET /metrics`: the server's state as OpenMetrics text, for Prometheus and whoever reads the same format.
#
# Everything is read from memory when it is asked for, so a scrape costs no query, and nothing is counted that nobody
# reads. Counters begin at zero with the process, as the format expects.

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
QUANTILES = (0.5, 0.99, 0.999)
Sample = tuple[dict[str, str], float]


def exposition(context: Context) -> str:
    """All families, in the order of their names' areas, ended by ``# EOF``."""
    lines: list[str] = []
    for name, kind, about, samples in _families(context):
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {about}"]
        for labels, value in samples:
            suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
            lines.append(f"{name}{suffix}{_labels(labels)} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, Iterable[Sample]]


def _families(context: Context) -> Iterator[Family]:
    service, pulse, written = context.service, context.pulse, context.service.writer.figures
    about = {"version": __version__, "policy": plain_policy(service.decider.policy), "driver": service.driver.name}
    yield "wattflow", "info", "Version, policy and driver.", [(about, 1)]
    yield from _work(service)
    yield from _nodes(service)
    yield from _shield(service)
    yield from _cap(service)
    yield _counter("wattflow_set_aside", "Items that raised and were set aside.", service.aside.counts, "kind")
    yield "wattflow_store_commits", "counter", "Group commits.", [({}, written.commits)]
    yield "wattflow_store_rows", "counter", "Rows written.", [({}, written.rows)]
    yield _gauge(
        "wattflow_store_trouble", "1 while the store takes no changes.", int(service.writer.message is not None)
    )
    yield _quantiles("wattflow_store_commit_seconds", "Time of a group commit.", written.commit_s)
    yield _quantiles("wattflow_turn_seconds", "Time of a turn of the engine.", service.turns.took_s)
    yield _quantiles("wattflow_loop_late_seconds", "How late the loop's timers are.", pulse.late_s)
    yield _quantiles("wattflow_loop_held_seconds", "The server's own part of that.", pulse.held_s)
    yield _counter("wattflow_http_requests", "Requests answered, by status.", context.requests, "status")
    yield _counter("wattflow_http_connections_refused", "Connections closed at a limit.", context.closed, "limit")


def _work(service: Service) -> Iterator[Family]:
    flows, counts, running = service.workflows.values(), service.ledger.counts, len(service.attempts)
    yield _gauge("wattflow_workflows_open", "Workflows that are open.", sum(flow.state == "open" for flow in flows))
    waiting = sum(flow.open for flow in flows) - running
    tasks: list[Sample] = [({"state": "running"}, running), ({"state": "waiting"}, waiting)]
    yield "wattflow_tasks", "gauge", "Open tasks, by state.", tasks
    yield _counter("wattflow_attempts", "Attempts that ended, by outcome.", counts.attempts, "outcome")
    yield _counter("wattflow_task_energy_joules", "Joules of attempts.", counts.energy_j, "provenance")
    yield _counter("wattflow_reports_refused", "Reports of agents that were refused.", counts.refused, "reason")


def _shield(service: Service) -> Iterator[Family]:
    """Nothing where the policy has no shield, or before its first answer."""
    summary = service.decider.shield.get("summary")
    if not summary:
        return
    yield _gauge("wattflow_shield_kept", "1 while nobody waits longer than promised.", int(summary["kept"]))
    yield _gauge("wattflow_shield_late", "Lateness beside the reference, as a share.", summary["late"])
    yield _gauge("wattflow_shield_tail", "p95 response over the reference's.", summary["tail"])
    if summary["saved"] is not None:
        yield _gauge("wattflow_shield_saved", "Share of the reference's joules saved, modelled.", summary["saved"])
    yield "wattflow_shield_spent", "counter", "Times that the budget was spent.", [({}, summary["spent"])]
    seconds = service.decider.shield["processor_s"]
    yield "wattflow_shield_processor_seconds", "counter", "Processor time of the shield.", [({}, seconds)]


def _cap(service: Service) -> Iterator[Family]:
    """Nothing where no cap holds."""
    told = service.capping.told()
    if told["watts"] is not None:
        yield _gauge("wattflow_cap_watts", "What all nodes together are kept below.", told["watts"])
    yield _gauge("wattflow_cap_signals", "Signals of caps that hold or will.", len(told["signals"]))


def _nodes(service: Service) -> Iterator[Family]:
    states = Counter(node.state for node in service.nodes)
    yield "wattflow_nodes", "gauge", "Nodes, by state.", _counted(states, "state")
    here = [(node.spec.name, node.load) for node in service.nodes if node.load is not None and node.state == "on"]
    watts = [({"node": n, "provenance": load.provenance}, load.watts) for n, load in here if load.watts is not None]
    yield "wattflow_node_watts", "gauge", "What a node draws.", watts
    busy = [({"node": name}, load.cpu_busy) for name, load in here]
    yield "wattflow_node_cpu_busy", "gauge", "Busy share of a node's processors.", busy
    joules = [({"node": n, "account": account}, j) for (n, account), j in service.ledger.counts.node_j.items()]
    yield "wattflow_node_energy_joules", "counter", "Joules that a node's meter counted, by account.", joules


def _gauge(name: str, about: str, value: float) -> Family:
    return name, "gauge", about, [({}, value)]


def _counter(name: str, about: str, counts: Counter[str] | dict[str, float], label: str) -> Family:
    return name, "counter", about, _counted(counts, label)


def _counted(counts: Counter[str] | dict[str, float], label: str) -> list[Sample]:
    return [({label: key}, value) for key, value in sorted(counts.items())]


def _quantiles(name: str, about: str, durations: Durations) -> Family:
    found = [(share, durations.quantile(share)) for share in QUANTILES]
    return name, "gauge", about, [({"quantile": f"{share:g}"}, value) for share, value in found if value is not None]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    """A label's value as the format wants it; a lone surrogate would break the answer's encoding."""
    # A node's name is whatever its agent says.
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
