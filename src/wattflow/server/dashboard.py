"""Everything behind the page: sessions, events, processes that read the store beside it, forecasts."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from wattflow import __version__
from wattflow.lab.show.viewer import page
from wattflow.live import Engine
from wattflow.live.fork import fork
from wattflow.runtime.capping import plain_policy
from wattflow.runtime.records import TaskRecord, waits_for
from wattflow.runtime.service import Service
from wattflow.server.decision_replay import shield_note, shown
from wattflow.server.energy import budgets, read_zone
from wattflow.server.event_stream import Events
from wattflow.server.forecasts import Forecasts
from wattflow.server.reader_process import ReaderProcess
from wattflow.server.tokens import Identity, Tokens
from wattflow.store import reads, schema
from wattflow.store.schema import address_of

# Sessions of browsers: a token once, then a cookie that no script can read and no other site can use.
#
# An EventSource cannot send a bearer token, and a token does not belong into a page's memory. The cookie is HttpOnly
# and SameSite=Strict; whatever changes something needs a header beside it, which a form of another site cannot send.
# The store keeps the cookie's hash, so a session outlives the server's restart and ends with its token.

COOKIE = "wattflow_session"
HEADER = b"wattflow-page"
LIFETIME_S = 12 * 3600.0
CODE_S = 60.0
MOST = 10_000
"""Sessions at once; the ones that end first make room."""
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is logged in: by which token, until when."""

    token: str
    expires_s: float


class Sessions:
    """All sessions of a server."""

    def __init__(self, database: sa.Engine, tokens: Tokens) -> None:
        self._database, self._tokens = database, tokens
        self._codes: dict[str, Session] = {}
        self._known = {
            row["digest"]: Session(row["token"], row["expires_s"])
            for row in reads.rows(database, sa.select(schema.sessions))
        }

    def identify(self, scope: Any) -> Identity | None:
        """Tell who asks, by the cookie; None too for a change that does not say that it comes from our page."""
        secret = cookie_of(scope)
        # A cookie comes along with any site's form; the header only with a script of our own page.
        if not secret or (scope["method"] not in _READING and not has_header(scope)):
            return None
        return self.holder(secret)

    def holder(self, secret: str) -> Identity | None:
        """Tell whose session it is, where it and its token are still good."""
        session = self._known.get(_digest(secret))
        return self._holder(session) if session is not None else None

    def expires_s(self, secret: str) -> float | None:
        """Tell when a session ends."""
        session = self._known.get(_digest(secret))
        return session.expires_s if session is not None else None

    def open(self, who: Identity) -> str:
        """Begin a session; the secret is the cookie's value and is not kept."""
        secret, expires_s = secrets.token_urlsafe(32), time.time() + LIFETIME_S
        self._sweep()
        self._known[_digest(secret)] = Session(who.id, expires_s)
        with self._database.begin() as connection:
            row = {"digest": _digest(secret), "token": who.id, "expires_s": expires_s}
            connection.execute(sa.insert(schema.sessions), row)
        return secret

    def close(self, secret: str) -> None:
        """End a session."""
        self._forget([_digest(secret)])

    def code(self, who: Identity) -> str:
        """Make a code that opens one session within a minute: for an address that a command opens in a browser."""
        now_s = time.time()
        self._codes = {key: one for key, one in self._codes.items() if one.expires_s > now_s}
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = Session(who.id, now_s + CODE_S)
        return code

    def redeem(self, code: str) -> Identity | None:
        """Tell who made a code; it is good once."""
        # Popped before it is looked at: a code in a browser's history, or a proxy's log, is used up.
        session = self._codes.pop(_digest(code), None)
        return self._holder(session) if session is not None else None

    def _holder(self, session: Session) -> Identity | None:
        now_s = time.time()
        if session.expires_s <= now_s:
            return None
        # By its token, at every request: revoking the token ends its sessions, too.
        return next((who for who in self._tokens.listed() if who.id == session.token and who.valid(now_s)), None)

    def _sweep(self) -> None:
        now_s = time.time()
        by_end = sorted(self._known, key=lambda digest: self._known[digest].expires_s)
        old = [digest for digest in by_end if self._known[digest].expires_s <= now_s]
        self._forget(old or by_end[: max(0, len(by_end) - MOST + 1)])

    def _forget(self, digests: list[str]) -> None:
        if not digests:
            return
        for digest in digests:
            self._known.pop(digest, None)
        with self._database.begin() as connection:
            connection.execute(sa.delete(schema.sessions).where(schema.sessions.c.digest.in_(digests)))


def cookie_of(scope: Any) -> str:
    """The session cookie of a request; empty without one."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return ""


def has_header(scope: Any) -> bool:
    """Say whether the request tells that it comes from our own page."""
    return any(name == HEADER for name, _ in scope["headers"])


def set_cookie(secret: str, secure: bool, lifetime_s: float = LIFETIME_S) -> str:
    """The header that gives a browser its cookie; a lifetime of 0 takes it away."""
    ends = f"; Max-Age={int(lifetime_s)}"
    return f"{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{ends}{'; Secure' if secure else ''}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


MOST_GROUPS = 24
"""Groups of the queue that are told with a reason."""
LOGIN_BYTES = 4096


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token, or a code that a command got for one."""

    token: str = ""
    code: str = ""


@dataclass(slots=True)
class WaitingGroup:
    """Waiting tasks of one workflow and function."""

    workflow: str
    function: str
    first: TaskRecord
    count: int = 0


class Dashboard:
    """Everything behind the page."""

    def __init__(self, service: Service, database: sa.Engine, tokens: Tokens, folder: Path) -> None:
        store = address_of(database)
        self.service, self._tokens, self._zone = service, tokens, read_zone(folder)
        self.sessions = Sessions(database, tokens)
        self.events = Events(service, database)
        # Two processes: replaying an engine for one explanation takes seconds, and pages must not wait behind it.
        self.documents, self.decisions = ReaderProcess(store, folder), ReaderProcess(store, folder)
        self.forecasts = Forecasts(store, folder, service.now)
        self._warming: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End streams and processes."""
        self.events.close()
        await self.forecasts.close()
        for process in (self.documents, self.decisions):
            await asyncio.to_thread(process.close)

    # ---- before anybody is known

    async def answered(self, scope: Any, receive: Any, send: Any) -> bool:
        """Answer what needs no login: the page's files, what it asks first, and the login itself."""
        path, method = scope["path"], scope["method"]
        answer: Response | None = None
        if path == "/v1/page" and method == "GET":
            answer = JSONResponse(await asyncio.to_thread(self._first, scope), headers={"cache-control": "no-store"})
        elif path == "/v1/session" and method == "POST":
            answer = await self._login(Request(scope, receive))
        # The page's files hold no data, so they need no login; everything below /v1 does.
        elif not path.startswith("/v1/") and method in ("GET", "HEAD"):
            found = page(path)
            answer = None if found is None else Response(found.data, found.status, found.headers)
        if answer is not None:
            await answer(scope, receive, send)
        return answer is not None

    def refusal(self, scope: Any) -> Response:
        """Refuse somebody who is not known, with the reason."""
        # A reason of its own: whoever writes a script against the page would else look for a lost session.
        if cookie_of(scope) and not has_header(scope) and self.sessions.holder(cookie_of(scope)) is not None:
            text = "a change by a session needs the header wattflow-page: 1, so that no other site can make it"
            return JSONResponse({"error": text}, 403)
        if cookie_of(scope):
            return JSONResponse({"error": "the session is over: log in again"}, 401)
        return JSONResponse(
            {"error": "a token is needed: authorization: Bearer …"}, 401, {"www-authenticate": "Bearer"}
        )

    def _first(self, scope: Any) -> dict[str, Any]:
        from wattflow.clusters.toml_file import preset_names
        from wattflow.policy import registry

        who = self.sessions.identify(scope)
        return {
            "mode": "server",
            "wattflow": __version__,
            "session": None if who is None else self.told(who, cookie_of(scope)),
            "policies": sorted(registry.names()),
            "clusters": preset_names(),
        }

    async def _login(self, request: Request) -> Response:
        data = b""
        async for chunk in request.stream():
            data += chunk
            if len(data) > LOGIN_BYTES:
                return JSONResponse({"error": f"a login has at most {LOGIN_BYTES} bytes"}, 413)
        try:
            given = msgspec.json.decode(data, type=Login)
        except msgspec.DecodeError:
            return JSONResponse({"error": 'a login is {"token": "wf_…"} or {"code": "…"}'}, 422)
        who = self._tokens.user_of(given.token) if given.token else self.sessions.redeem(given.code)
        if who is None:
            what = (
                "this token is not known, was revoked or is too old" if given.token else "this code was used, or is old"
            )
            return JSONResponse({"error": what}, 401)
        # An agent's token lies on every node: it must not open a person's page.
        if not who.may("user", "viewer"):
            return JSONResponse({"error": f"a token of the role {who.role} cannot log in; take a user's"}, 403)
        secret = await asyncio.to_thread(self.sessions.open, who)
        self._warming = asyncio.create_task(self.documents.warm())
        secure = request.url.scheme == "https"
        return JSONResponse(self.told(who, secret), headers={"set-cookie": set_cookie(secret, secure)})

    def told(self, who: Identity, secret: str) -> dict[str, Any]:
        """A session as the page sees it."""
        return {"name": who.name, "role": who.role, "expires_s": self.sessions.expires_s(secret)}

    def still_knows(self, who: Identity, secret: str) -> bool:
        """Say whether somebody who came a while ago would be let in again."""
        now_s = time.time()
        valid = any(one.id == who.id and one.valid(now_s) for one in self._tokens.listed())
        return valid and (not secret or self.sessions.holder(secret) is not None)

    # ---- the present

    async def present(self, owner: str | None) -> dict[str, Any]:
        """Nodes, queue by reason, budgets, watts: what only memory knows."""
        service = self.service
        running = service.attempts.by_node()
        nodes = [
            {"name": node.spec.name, "state": node.state, "running": running[node.spec.name],
             "watts": node.load.watts if node.load else None, "busy": node.load.cpu_busy if node.load else None}
            for node in service.nodes
        ]  # fmt: skip
        # One node that is on and tells nothing makes the sum unknown: a part told as the whole would be a lie.
        known = [node["watts"] for node in nodes if node["state"] in ("on", "waking")]
        queue, waiting = await self._queue(owner)
        return {
            "now_s": service.now(), "policy": plain_policy(service.decider.policy), "nodes": nodes,
            "running": len(service.attempts),
            "waiting": waiting, "queue": queue, "learned": await self._learned(), "budgets": budgets(service, owner),
            "watts": None if any(w is None for w in known) else sum(w for w in known if w is not None),
            "carbon_g_per_kwh": self._zone.carbon.at(service.now()) if self._zone.carbon_known else None,
            "trouble": service.writer.message,
        }  # fmt: skip

    async def _learned(self) -> dict[str, dict[str, Any]]:
        """Curves that counters corrected, by node; a few in each turn of the loop."""
        found: dict[str, dict[str, Any]] = {}
        for number, node in enumerate(list(self.service.nodes), start=1):
            if number % 32 == 0:
                await asyncio.sleep(0)
            if (curve := self.service.learning.curve(node.spec.name)) is not None:
                found[node.spec.name] = curve
        return found

    async def _queue(self, owner: str | None) -> tuple[list[dict[str, Any]], int]:
        """Waiting tasks by workflow and function, with why one of each waits. A few hundred are looked at in a turn of
        the loop, and a copy of the engine is asked in a thread: it looks at every node."""
        groups: dict[tuple[str, str], WaitingGroup] = {}
        waiting = 0
        for number, task in enumerate(list(self.service.tasks.values()), start=1):
            if number % 512 == 0:
                await asyncio.sleep(0)
            if task.state == "waiting" and (owner is None or task.workflow.owner == owner):
                waiting += 1
                key = (task.workflow.id, task.spec.function_name)
                groups.setdefault(key, WaitingGroup(*key, task)).count += 1
        # Reasons cost a look at every node each: the largest groups are those that people ask about.
        largest = sorted(groups.values(), key=lambda one: -one.count)[:MOST_GROUPS]
        if not largest:
            return [], 0
        # A copy, made within one turn of the loop: the engine's own tables change while a thread reads.
        copy = fork(self.service.decider.engine)
        told = [
            {"workflow": group.workflow, "function": group.function, "count": group.count,
             "reason": self._known_reason(group.first) or await asyncio.to_thread(_reason, copy, group.first.engine)}
            for group in largest
        ]  # fmt: skip
        return told, waiting

    def _known_reason(self, task: TaskRecord) -> str | None:
        """Why a task waits, where the engine need not be asked."""
        service = self.service
        if service.writer.message is not None:
            return f"the store does not take changes: {service.writer.message}"
        keys = dict.fromkeys([*task.spec.parents, *task.spec.results])
        return waits_for([service.tasks[i] for key in keys if (i := task.workflow.keys[key]) in service.tasks])

    async def explain_waiting(self, task: TaskRecord) -> dict[str, Any]:
        """Candidates of a task that waits. The engine is copied in a turn of the loop, the copy asked in a thread."""
        service, copy = self.service, fork(self.service.decider.engine)
        why = self._known_reason(task) or await asyncio.to_thread(_reason, copy, task.engine)
        candidates = await asyncio.to_thread(copy.explain, task.engine)
        names = {identity: name for name, identity in copy.nodes.items()}
        return {
            "task": task.id, "key": task.spec.key, "state": task.state, "when": "waiting", "at_s": service.now(),
            "attempt": None, "policy": plain_policy(service.decider.policy), "why": why, "chosen": None,
            "shield": shield_note(service.decider),
            "candidates": shown(candidates, names, list(task.spec.variants), None),
            **dict.fromkeys(("cost_s", "energy_j", "low_j", "high_j", "marginal_j", "provenance", "outcome")),
        }  # fmt: skip


def _reason(engine: Engine, task: int) -> str:
    return str(engine.why(task))
