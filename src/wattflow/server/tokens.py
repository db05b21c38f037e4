"""Tokens and roles. A token is a line ``wf_ROLE_…``; the store keeps only its hash, whose it is and what it may do."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wattflow.model.errors import InvalidInput
from wattflow.runtime.home import json_object
from wattflow.store import reads, schema
from wattflow.store.schema import Row

ROLES = ("user", "agent", "operator", "viewer")
"""``user`` submits and reads its own, ``agent`` leases and completes, ``operator`` may do everything, ``viewer`` looks
at nodes and figures."""
HOME_ROLES = ("user", "agent", "operator")
"""Each home has a token of these."""
ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks.

    Attributes:
        project: Whose budget pays, beside the user's own; none where empty.
        node: The one node that an agent's token speaks for; any where empty.
        id: Beginning of the token's hash: names it in lists and logs, and is no secret.
    """

    name: str
    role: str
    project: str = ""
    node: str = ""
    id: str = ""
    created_s: float = 0.0
    expires_s: float | None = None
    revoked_s: float | None = None

    def may(self, *roles: str) -> bool:
        """Say whether the role is one of these; an operator is every role."""
        return self.role == "operator" or self.role in roles

    @property
    def sees_all(self) -> bool:
        """Say whether others' workflows are visible."""
        return self.role == "operator"

    def valid(self, now_s: float) -> bool:
        """Say whether it is neither revoked nor too old."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)


class Tokens:
    """The tokens of a store. All are held in memory: every request is looked up here."""

    def __init__(self, database: sa.Engine) -> None:
        self._database = database
        self._known: dict[str, Identity] = {}
        self._of_node: dict[str, list[Identity]] = {}
        for row in reads.rows(database, sa.select(schema.tokens)):
            digest = row.pop("digest")
            self._know(digest, Identity(**row | {key: row[key] or "" for key in ("project", "node")}))

    def user_of(self, token: str) -> Identity | None:
        """Tell whose token it is; None for one that is unknown, revoked or expired.

        Only hashes are compared, so timing tells nothing about the token.
        """
        # By hash: a store that is read, or a backup that is lost, gives no token away.
        found = self._known.get(_digest(token))
        return found if found is not None and found.valid(time.time()) else None

    def knows(self, token: str) -> bool:
        """Say whether it was ever given out, valid or not."""
        return _digest(token) in self._known

    def has_node(self, node: str) -> bool:
        """Say whether some valid token is that of a node."""
        return any(who.valid(time.time()) for who in self._of_node.get(node, ()))

    def draft(
        self, name: str, role: str, *, project: str = "", node: str = "", lifetime_s: float | None = None
    ) -> tuple[str, Row]:
        """Think up a token, which is shown once and not kept, and its row; it is valid once that is stored and known.

        Raises:
            InvalidInput: No such role, or a node for a role that has none.
        """
        if role not in ROLES:
            raise InvalidInput("role", f"{role!r} is not one of {', '.join(ROLES)}")
        if node and role != "agent":
            raise InvalidInput("node", f"only agents speak for a node; this token's role is {role}")
        token = f"wf_{role}_{secrets.token_urlsafe(32)}"
        expires_s = None if lifetime_s is None else time.time() + lifetime_s
        return token, _row(_digest(token), Identity(name, role, project, node, expires_s=expires_s))

    def store(self, row: Row) -> Identity:
        """Store a token's row at once, before there is a server that could do it."""
        with self._database.begin() as connection:
            connection.execute(sa.insert(schema.tokens), row)
        return self.know(row)

    def know(self, row: Row) -> Identity:
        """A token's row is stored: it is valid from now on."""
        told: dict[str, Any] = {key: value for key, value in row.items() if key != "digest"}
        who = Identity(**told)
        self._know(str(row["digest"]), who)
        return who

    def adopt(self, token: str, identity: Identity) -> Identity:
        """Take a token that its owner keeps already, as that of a home whose store was made anew."""
        return self._adopt(_digest(token), identity)

    def adopt_file(self, path: Path) -> None:
        """Take over the hashes of a file of 0.1.0; it is left where it is, for a way back."""
        if not path.exists():
            return
        found = json_object(path, "put it back, or delete it where nobody needs its tokens")
        for digest, (name, role) in found.items():
            if digest not in self._known:
                self._adopt(digest, Identity(name, role))

    def listed(self) -> list[Identity]:
        """All tokens, oldest first."""
        return sorted(self._known.values(), key=lambda who: (who.created_s, who.id))

    def revoke(self, named: str, now_s: float) -> dict[str, Identity]:
        """Take the token with this id, or all tokens of this name, for invalid from now on; returns those that were
        valid, by digest, for whoever writes that down."""
        chosen = {digest: who for digest, who in self._known.items() if named in (who.id, who.name)}
        if not chosen:
            raise InvalidInput(named, "names no token: give the id or the name that `wattflow token list` shows")
        ended = {digest: who for digest, who in chosen.items() if who.valid(now_s)}
        for digest, who in ended.items():
            self._of_node.get(who.node, [who]).remove(who)
            self._known[digest] = replace(who, revoked_s=now_s)
        return ended

    def _adopt(self, digest: str, who: Identity) -> Identity:
        return self.store(_row(digest, who))

    def _know(self, digest: str, who: Identity) -> None:
        self._known[digest] = who
        if who.node and who.revoked_s is None:
            self._of_node.setdefault(who.node, []).append(who)


def write_secret(path: Path, token: str) -> None:
    """Write a token into a file that only its owner reads, whatever the file was before."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")


def _row(digest: str, who: Identity) -> Row:
    return {"digest": digest, **asdict(replace(who, id=digest[:ID_LENGTH], created_s=time.time()))}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
