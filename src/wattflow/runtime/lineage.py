"""Which agents may follow one another as a node: those of one folder on one machine.

An agent holds a lock on its folder while it lives, so a new one there knows that the one before is dead, and the server
lets it take over at once. Two machines of one name have two lineages: the second is refused while the first is alive.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import uuid
from pathlib import Path
from typing import IO

from wattflow.model.errors import InvalidInput
from wattflow.runtime.processes import started


class Lineage:
    """The lock on an agent's folder, with the folder's id. Held until the process ends.

    Raises:
        InvalidInput: Another agent works in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] = lock_file(folder).open("a+")
        self._file.seek(0)
        try:
            # The kernel lets go of it when the process ends, so whoever gets it knows that the agent before is dead.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _read(self._file).get("pid", "unknown")
            self.close()
            raise InvalidInput(
                str(folder),
                f"an agent works here already (process {holder}): end it, or give this one another --folder",
            ) from None
        self.id = str(_read(self._file).get("lineage") or uuid.uuid4().hex[:16])
        self._write({"pid": os.getpid(), "started": started(os.getpid()), "lineage": self.id})

    def boot(self) -> str:
        """A name for one life of an agent of this lineage."""
        return f"{self.id}.{uuid.uuid4().hex}"

    def close(self) -> None:
        """Let another one work in the folder."""
        self._file.close()

    def _write(self, about: dict[str, object]) -> None:
        self._file.seek(0)
        self._file.truncate()
        json.dump(about, self._file)
        self._file.flush()


def lock_file(folder: Path) -> Path:
    """The lock of a folder on this machine: folders may be shared by many."""
    machine = Path("/etc/machine-id")
    about = socket.gethostname() + (machine.read_text().strip() if machine.is_file() else "")
    return folder / f"agent-{hashlib.sha256(about.encode()).hexdigest()[:12]}.lock"


def lineage_of(boot: str) -> str:
    """Give what lives of one lineage have in common; an agent that names none is its own."""
    return boot.split(".", 1)[0]


def _read(file: IO[str]) -> dict[str, object]:
    file.seek(0)
    try:
        found = json.load(file)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
