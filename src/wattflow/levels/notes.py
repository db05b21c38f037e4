"""Notes of settings in force: one small file for each knob, written before the knob is turned.

A note outlives whoever wrote it, so that a watchdog, the next start or `wattflow levels off` can return the knob to
what it was. Its owner is a process, known by number *and* start. All reading and writing happens under one lock of the
folder, held for milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from wattflow.files.whole import write_text
from wattflow.levels.port import LevelRefused


@dataclass(frozen=True, slots=True)
class Note:
    """One setting in force.

    Attributes:
        before: What the knob was; None: whatever the device does by itself.
        value: What it was set to.
        pid, started: The process that holds it.
    """

    knob: str
    before: float | None
    value: float
    pid: int
    started: str

    @property
    def held(self) -> bool:
        """Return whether its owner still lives."""
        return started(self.pid) == self.started


def started(pid: int) -> str | None:
    """Read when a process began, in the kernel's words; None where there is none, or only its body is left."""
    try:
        # The name in brackets may hold spaces: count from the last bracket. Field 22 is the start.
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    # A zombie holds nothing.
    return None if fields[0] in "ZX" else fields[19]


class Notes:
    """The notes of one machine.

    Raises:
        LevelRefused: The folder belongs to somebody else or cannot be made: nothing is ever set without a note.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # `lstat`: a link would let somebody else choose where notes are written.
            about = folder.lstat()
        except OSError as error:
            raise LevelRefused(f"{folder}: cannot be made ({error.strerror}); no level is set without a note") from None
        if about.st_uid not in (0, os.getuid()) or folder.is_symlink() or about.st_mode & 0o022:
            raise LevelRefused(f"{folder}: others may write to it; no level is set with notes that could be forged")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out."""
        # Not inherited: a child that outlives us must not keep the lock.
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def all(self) -> list[Note]:
        """Read every note; one that cannot be read is left alone."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                found.append(Note(**json.loads(path.read_text())))
        return found

    def of(self, knob: str) -> Note | None:
        """Read the note of one knob."""
        return next((note for note in self.all() if note.knob == knob), None)

    def write(self, note: Note) -> None:
        """Note a setting, on disk before this returns."""
        # Whole or not at all: half a note could not be used to give the knob back.
        write_text(self._path(note.knob), json.dumps(asdict(note)))

    def drop(self, knob: str) -> None:
        """Forget a setting."""
        self._path(knob).unlink(missing_ok=True)

    @property
    def off(self) -> bool:
        """Return whether `wattflow levels off` was typed: nothing may be set."""
        return (self.folder / "off").exists()

    def switch(self, *, on: bool) -> None:
        """Allow levels to be set, or not."""
        if on:
            (self.folder / "off").unlink(missing_ok=True)
        else:
            (self.folder / "off").touch()

    def _path(self, knob: str) -> Path:
        return self.folder / f"{knob}.json"
