"""What operators and monitors call: figures, tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from wattflow.runtime.messages import Name
from wattflow.server import metrics as exposed
from wattflow.server.app import allowed, house_of
from wattflow.server.bodies import answer, schema, typed
from wattflow.server.tokens import Identity

router = APIRouter(tags=["operations"])
LONGEST_S = 10 * 365 * 86400.0


class NewToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token to be made."""

    name: Name
    role: str = "user"
    project: Annotated[str, msgspec.Meta(max_length=200)] = ""
    node: Annotated[str, msgspec.Meta(max_length=200)] = ""
    lifetime_s: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] | None = None


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures as OpenMetrics text."""
    allowed(request, "viewer", "user", "agent")
    return Response(exposed.exposition(house_of(request)), media_type=exposed.CONTENT_TYPE)


@router.post("/v1/tokens", openapi_extra=schema(NewToken))
async def make_token(request: Request) -> Response:
    """Make a token; this answer is the only place where it is ever seen."""
    allowed(request, "operator")
    wanted = await typed(request, NewToken)
    token, who = await asyncio.to_thread(
        house_of(request).tokens.make, wanted.name, wanted.role, project=wanted.project, node=wanted.node,
        lifetime_s=wanted.lifetime_s,
    )  # fmt: skip
    return answer(request, {"token": token, **_shown(who)}, 201)


@router.get("/v1/tokens")
async def tokens(request: Request) -> Response:
    """List all tokens, without their secrets."""
    allowed(request, "operator")
    return answer(request, [_shown(who) for who in house_of(request).tokens.listed()])


@router.delete("/v1/tokens/{named}")
async def revoke_token(request: Request, named: str) -> Response:
    """Revoke a token by its id, or all tokens of a name."""
    allowed(request, "operator")
    ended = await asyncio.to_thread(house_of(request).tokens.revoke, named)
    return answer(request, [_shown(who) for who in ended])


def _shown(who: Identity) -> dict[str, Any]:
    fields = ("id", "name", "role", "project", "node", "created_s", "expires_s", "revoked_s")
    return {field: getattr(who, field) for field in fields}
