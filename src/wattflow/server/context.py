"""Parts that the routes share: the server that a request came to, who asks, and what they may see."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from fastapi import Request
from starlette.exceptions import HTTPException

from wattflow.runtime.clock import Pulse
from wattflow.runtime.service import Service
from wattflow.server.dashboard import Dashboard
from wattflow.server.tokens import Identity, Tokens
from wattflow.store import reads
from wattflow.store.claim import Claim
from wattflow.store.objects import Objects
from wattflow.store.reads import Found


@dataclass(slots=True)
class Context:
    """Everything that the routes need.

    Attributes:
        keep_s: How long ended workflows, their results and logs are kept.
        requests: Requests answered, by status.
        closed: Connections that were closed at a limit, by limit.
        keep_journal_bytes: What snapshots and journal may take to tell how past decisions came about.
        shut_down: Ends the server; set by whoever runs it.
        claim: On a store that other servers may want, too.
    """

    service: Service
    database: sa.Engine
    objects: Objects
    tokens: Tokens
    folder: Path
    keep_s: float = 30 * 86400.0
    keep_journal_bytes: int = 256 << 20
    shut_down: Callable[[], None] = lambda: None
    claim: Claim | None = None
    background: list[asyncio.Task[None]] = field(default_factory=list)
    pulse: Pulse = field(default_factory=Pulse)
    requests: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    dashboard: Dashboard = field(init=False)

    def __post_init__(self) -> None:
        self.dashboard = Dashboard(self.service, self.database, self.tokens, self.folder)

    @property
    def servers(self) -> list[str]:
        """Where this server, and those that wait to take over from it, are reached; empty while nobody waits."""
        return [self.claim.url, *self.claim.others] if self.claim is not None and self.claim.others else []


def context_of(request: Request) -> Context:
    """Return what the server of a request works with."""
    context: Context = request.app.state.context
    return context


def allowed(request: Request, *roles: str) -> Identity:
    """Who asks, if the role is one of these."""
    identity: Identity = request.state.identity
    if not identity.may(*roles):
        raise HTTPException(403, f"this needs the role {' or '.join(roles)}; the token's role is {identity.role}")
    return identity


async def owned(request: Request, workflow: str) -> Found:
    """A workflow that the asker may see; others' are as if they were not there."""
    who = allowed(request, "user")
    row = await asyncio.to_thread(reads.workflow, context_of(request).database, workflow)
    # One answer for "is not there" and "is somebody else's": ids tell nothing to a stranger.
    if row is None or not (who.sees_all or row["owner"] == who.name):
        raise HTTPException(404, f"no workflow {workflow}")
    return row


async def owned_task(request: Request, task: int) -> Found:
    """A task of a workflow that the asker may see."""
    # Beyond a database's integers it would be an error of the driver's, and a 500.
    if not 0 <= task < 2**62:
        raise HTTPException(404, f"no task {task}")
    row = await asyncio.to_thread(reads.task, context_of(request).database, task)
    if row is None:
        allowed(request, "user")
        raise HTTPException(404, f"no task {task}")
    await owned(request, row["workflow"])
    return row
