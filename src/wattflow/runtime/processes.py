"""Processes that outlive the command that started them, known by number *and* start: a number alone may be another's.

A *mark* is a JSON file with both and whatever else its writer notes. Nothing is ever signalled whose mark does not fit.
An agent holds a lock on its folder while it lives, so a new one there knows that the one before is dead, and the server
lets it take over at once. Two machines of one name have two lineages: the second is refused while the first is alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from wattflow.files.whole import write_text
from wattflow.model.errors import InvalidInput

LOOK_S = 0.02


def started(pid: int) -> str | None:
    """When a process began, in the kernel's words; None where there is none, or only its body is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    # With the machine's boot: process numbers and start ticks begin anew with it, and could fit by chance.
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def mark(path: Path, pid: int, **about: object) -> None:
    """Note a process in a file."""
    write_text(path, json.dumps({"pid": pid, "started": started(pid), **about}))


def marked(path: Path, command: str = "wattflow.") -> dict[str, Any] | None:
    """The process of a mark, if it is alive and still that one. ``command`` tells one of version 0.1.0, which noted no
    start: it is part of its command line."""
    try:
        about = json.loads(path.read_text())
        about = {"pid": about} if isinstance(about, int) else about
        return about if is_alive(about, command) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_alive(about: Mapping[str, Any], command: str = "wattflow.") -> bool:
    """Return whether a marked process is alive and still that one, whatever became of its mark."""
    pid = int(about["pid"])
    if "started" in about:
        return about["started"] is not None and started(pid) == about["started"]
    # Of version 0.1.0, which noted no start: its command has to tell.
    return started(pid) is not None and command.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def end(path: Path, patience_s: float, *, forget: bool = True, command: str = "wattflow.") -> bool:
    """End the process of a mark: asked first, by force after a while. Returns whether there was one; the mark goes,
    unless it is more than that."""
    about = marked(path, command)
    if about is not None:
        # Looked up by `marked` just before: whoever got the number since has another start, and is never signalled.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(about["pid"]), number)
            if wait(about, patience_s):
                break
    if forget:
        path.unlink(missing_ok=True)
    return about is not None


def wait(about: Mapping[str, Any], patience_s: float) -> bool:
    """Wait for the end of a marked process; False where it takes longer."""
    end_s = time.monotonic() + patience_s
    while is_alive(about):
        if time.monotonic() > end_s:
            return False
        time.sleep(LOOK_S)
    return True


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
