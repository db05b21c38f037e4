"""Routes of operators and monitors: figures, tokens, limits, books, the audit log."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from wattflow.runtime.accounts import Limits, Scope, month_of
from wattflow.runtime.messages import Amount
from wattflow.runtime.service import Service
from wattflow.server import metrics as exposed
from wattflow.server.bodies import answer, schema, typed
from wattflow.server.context import allowed, context_of
from wattflow.server.tokens import Identity
from wattflow.store import reads
from wattflow.store.reads import Found

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
    return Response(exposed.exposition(context_of(request)), media_type=exposed.CONTENT_TYPE)


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
