"""Sessions of browsers: a token once, then a cookie that no script can read and no other site can use.

An EventSource cannot send a bearer token, and a token does not belong into a page's memory. The cookie is HttpOnly and
SameSite=Strict; whatever changes something needs a header beside it, which a form of another site cannot send. The
store keeps the cookie's hash, so a session outlives the server's restart and ends with its token.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

import sqlalchemy as sa

from wattflow.server.tokens import Identity, Tokens
from wattflow.store import reads, schema

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
