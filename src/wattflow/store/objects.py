"""Objects: bytes named by their SHA-256, each a file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from wattflow.model.errors import InvalidInput, WattflowError

_NAME = re.compile(r"[0-9a-f]{64}")


class ObjectDamaged(WattflowError, KeyError):
    """The bytes of an object are not what was put."""

    def __init__(self, name: str, where: object) -> None:
        super().__init__(f"object {name} in {where} is damaged: its bytes have another hash")

    def __str__(self) -> str:
        return str(self.args[0])


class Objects(Protocol):
    """Where large payloads, results and files are kept."""

    def put(self, data: bytes) -> str:
        """Keep the bytes; returns their name. The same bytes are kept once."""

    def get(self, name: str) -> bytes:
        """The bytes of a name; KeyError where it is not here, ObjectDamaged (one, too) where they are others."""

    def has(self, name: str) -> bool:
        """Say whether a name is here."""


def object_name(data: bytes) -> str:
    """The name that bytes have in every store."""
    return hashlib.sha256(data).hexdigest()


def checked_name(name: str) -> None:
    """Raise InvalidInput where this is not the name of an object."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInput("object", f"{name[:80]!r} is not the name of an object (64 hexadecimal digits)")


class FolderObjects:
    """Objects in a folder, 256 folders deep so that none grows large."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        """Keep the bytes; returns their name."""
        name = object_name(data)
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == data:  # what is there may be damaged: then this is how it is healed
                os.utime(path)  # wanted again: its time to be forgotten begins anew
                return name
        path.parent.mkdir(exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a name; KeyError where it is not here, ObjectDamaged where they are others."""
        try:
            data = self.path(name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None
        if object_name(data) != name:
            raise ObjectDamaged(name, self.root)
        return data

    def names(self) -> set[str]:
        """All that are here."""
        return {path.parent.name + path.name for path in self.root.glob("??/*") if not path.name.startswith(".")}

    def has(self, name: str) -> bool:
        """Say whether a name is here."""
        return self.path(name).exists()

    def sweep(self, before_s: float, wanted: Callable[[], set[str]]) -> int:
        """Delete what was last put before a time and is not wanted any more; returns how many."""
        old = [path for path in self.root.glob("??/*") if path.stat().st_mtime < before_s]
        if not old:
            return 0
        kept = wanted()
        gone = [path for path in old if path.parent.name + path.name not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def path(self, name: str) -> Path:
        """The file of a name. Anything but a hash is refused, so no name leads out of the folder."""
        checked_name(name)
        return self.root / name[:2] / name[2:]
