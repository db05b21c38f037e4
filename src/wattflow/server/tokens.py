"""Tokens and roles. A token is a line ``wf_ROLE_…``; the server keeps only its hash, its owner and its role."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from wattflow.files.whole import whole_file
from wattflow.model.errors import InvalidInput

ROLES = ("user", "agent", "operator")
"""``user`` submits and reads its own, ``agent`` leases and completes, ``operator`` may do everything."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks."""

    name: str
    role: str

    def may(self, *roles: str) -> bool:
        """Whether the role is one of these; an operator is every role."""
        return self.role == "operator" or self.role in roles

    @property
    def sees_all(self) -> bool:
        """Whether others' workflows are visible."""
        return self.role == "operator"


class Tokens:
    """The tokens of a server, in a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Identity] = {}
        if path.exists():
            for digest, (name, role) in json.loads(path.read_text()).items():
                self._known[digest] = Identity(name, role)

    def make(self, name: str, role: str) -> str:
        """A new token; it is shown once and not kept."""
        if role not in ROLES:
            raise InvalidInput("role", f"{role!r} is not one of {', '.join(ROLES)}")
        token = f"wf_{role}_{secrets.token_urlsafe(32)}"
        self._known[_digest(token)] = Identity(name, role)
        self._save()
        return token

    def who(self, token: str) -> Identity | None:
        """Whose token it is. Only hashes are compared, so timing tells nothing about the token."""
        return self._known.get(_digest(token))

    def _save(self) -> None:
        with whole_file(self._path) as draft:
            Path(draft).write_text(json.dumps({key: [who.name, who.role] for key, who in self._known.items()}))
        self._path.chmod(0o600)


def write_secret(path: Path, token: str) -> None:
    """A token in a file of its owner's."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
