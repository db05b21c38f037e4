"""Holds levels for one process and gives them back whatever happens.

The order is what makes it safe: note first, then the watchdog, then the knob, then reading back. So there is no moment
in which a knob is turned and nobody knows what it was. A device with a process of somebody else is never touched, and
one whose setting somebody else changed meanwhile is left as they made it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from wattflow.files.whole import write_text
from wattflow.levels.port import Actuator, Knob, LevelRefused

# Notes of settings in force: one small file for each knob, written before the knob is turned.
#
# A note outlives whoever wrote it, so that a watchdog, the next start or `wattflow levels off` can return the knob to
# what it was. Its owner is a process, known by number *and* start. All reading and writing happens under one lock of
# the folder, held for milliseconds.


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


DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class Watchdog:
    """Starts the watchdog of this process, and starts it again where it was killed."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Have one running."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-P", "-m", "wattflow.levels", str(self.folder.absolute()), str(os.getpid())]
        # Blocked signals stay blocked in the child, from its first instruction on: a SIGTERM to the whole group must
        # not find it half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
        try:
            self._launch(command)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _launch(self, command: list[str]) -> None:
        with (self.folder / "watchdog.log").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, started(os.getpid()) or ""],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
                # A session of its own: Ctrl-C and a hang-up go to the whole foreground group.
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it: there is nothing left to give back."""
        if self._process is not None:
            # It ignores SIGTERM on purpose (`DEAF_TO`).
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Return the watchdog's number, where one was started."""
        return None if self._process is None else self._process.pid


log = logging.getLogger(__name__)
SETTLE_S, LOOK_S = 1.0, 0.02
"""How long a clock may take to fall to its new ceiling, and how often it is looked at meanwhile."""
Owns = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Setting:
    """Result of an order: the level asked for and the one in force."""

    knob: str
    asked: float
    seen: float


def own_child(pid: int) -> bool:
    """Return whether a process descends from this one, or is it."""
    # Deeper trees are taken for foreign: not touching a device is the safe mistake.
    for _ in range(64):
        if pid == os.getpid():
            return True
        try:
            # The parent's number is the second field after the name, which may itself hold brackets.
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return False


class Holder:
    """Sets levels in the name of this process.

    Args:
        owns: Tells whether a process on a device is one of ours.
        watched: A watchdog process gives back what this process leaves when it is killed.
    """

    def __init__(
        self, actuators: Sequence[Actuator], folder: Path, owns: Owns = own_child, *, watched: bool = True
    ) -> None:
        self.notes, self._owns = Notes(folder), owns
        self._by_knob = {knob.id: (actuator, knob) for actuator in actuators for knob in actuator.knobs()}
        self._actuators = tuple(actuators)
        self._watchdog = Watchdog(folder) if watched else None
        self._pid, self._started = os.getpid(), started(os.getpid()) or ""
        self._over = False
        # First of all: a process that was killed may have left a knob that this one would take for
        # "before".
        self.recover()

    @property
    def knobs(self) -> list[Knob]:
        """Return every knob of this machine."""
        return [knob for _, knob in self._by_knob.values()]

    def read(self, knob: str) -> float | None:
        """Read what is in force."""
        actuator, found = self._find(knob)
        return _number(actuator, found)

    def recover(self) -> list[str]:
        """Give back what processes that are gone have left. Returns the knobs."""
        with self.notes.lock():
            return [note.knob for note in self.notes.all() if not note.held and self._return(note)]

    def set(self, knob: str, value: float) -> Setting:
        """Set a level and read it back.

        Raises:
            LevelRefused: Out of range, no rights, another's device or level, or the device ignores it. Nothing is
                left behind: the knob is as it was.
        """
        actuator, found = self._find(knob)
        found.check(value)
        with self.notes.lock():
            if self._over:
                raise LevelRefused(f"{knob}: this process has given its levels back and sets none any more")
            prior = self.notes.of(knob)
            # What it was before anybody of us turned it: a note that stands already knows better than the knob.
            note = Note(knob, self._may(actuator, found, prior), value, self._pid, self._started)
            # In this order, as the module says: note, watchdog, knob.
            self.notes.write(note)
            if self._watchdog is not None:
                self._watchdog.start()
            return self._turn(actuator, found, note)

    def give_back(self, knob: str) -> bool:
        """Return one knob to what it was. False where this process holds nothing of it, or it cannot be returned."""
        with self.notes.lock():
            note = self.notes.of(knob)
            # Only one's own: another process's level is not ours to end.
            return note is not None and self._mine(note) and self._return(note)

    def give_back_all(self, *, of_others: bool = False) -> list[str]:
        """Return every knob that this process holds, or whoever does. Returns those that are as before."""
        with self.notes.lock():
            notes = [note for note in self.notes.all() if of_others or self._mine(note)]
            return [note.knob for note in notes if self._return(note)]

    def check(self) -> dict[str, str]:
        """Look after what is held: devices that got a foreign process are given back, settings that somebody else
        changed are theirs. Returns what is held no more, with the reason."""
        gone: dict[str, str] = {}
        with self.notes.lock():
            for note in self.notes.all():
                # Knobs that are gone (an unplugged device) can be neither read nor returned.
                if self._mine(note) and note.knob in self._by_knob and (why := self._lost(note)):
                    gone[note.knob] = why
                    self._return(note)
        # It may have been killed; what is held must not be without one.
        if self._watchdog is not None and any(map(self._mine, self.notes.all())):
            self._watchdog.start()
        return gone

    def close(self) -> None:
        """Give everything back and let go."""
        # Before the lock is taken: an order under way in another thread is either given back below, or refused.
        self._over = True
        self.give_back_all()
        # What could not be given back is left to the watchdog, which tries once more when this process is gone.
        if self._watchdog is not None and not any(map(self._mine, self.notes.all())):
            self._watchdog.stop()
        for actuator in self._actuators:
            actuator.close()

    def _find(self, knob: str) -> tuple[Actuator, Knob]:
        if knob not in self._by_knob:
            known = ", ".join(self._by_knob) or "none"
            raise LevelRefused(f"{knob}: no such knob on this machine; there are: {known}")
        return self._by_knob[knob]

    def _mine(self, note: Note) -> bool:
        return (note.pid, note.started) == (self._pid, self._started)

    def _turn(self, actuator: Actuator, knob: Knob, note: Note) -> Setting:
        """Turn a knob that is noted. A device that refuses or ignores a level gets none: it is as before."""
        try:
            actuator.write(knob, note.value)
            return Setting(knob.id, note.value, self._in_force(actuator, knob, note.value))
        except (LevelRefused, OSError) as error:
            # Forced: the device may have taken a part of the order, so whatever is read now is our doing.
            if not self._return(note, forced=True) and not knob.mine:
                self.notes.drop(knob.id)  # who may not turn it back did not turn it either
            raise _refused(knob, error) from error

    def _may(self, actuator: Actuator, knob: Knob, note: Note | None) -> float | None:
        """Refuse what must not be touched; return what the knob was before this process turned it."""
        if self.notes.off:
            raise LevelRefused(f"{knob.id}: levels are off on this machine; `wattflow levels on` allows them")
        if foreign := self._foreign(actuator, knob):
            raise LevelRefused(f"{knob.id}: process {min(foreign)} of somebody else is on {knob.device}; not touched")
        if note is not None and note.held and not self._mine(note):
            raise LevelRefused(f"{knob.id}: process {note.pid} holds it at {knob.shown(note.value)}; not touched")
        if note is not None:
            return note.before
        # Such a knob returns to what the device does by itself (None).
        if not knob.readable:
            return None
        before = _number(actuator, knob)
        if before is None:
            raise LevelRefused(f"{knob.id}: its present setting cannot be read, so it could not be given back")
        return before

    def _foreign(self, actuator: Actuator, knob: Knob) -> frozenset[int]:
        return frozenset(pid for pid in actuator.users(knob) if not self._owns(pid))

    def _in_force(self, actuator: Actuator, knob: Knob, value: float) -> float:
        """Read a setting back, once for a setting and until it has settled for a clock that results from one."""
        # A setting is there at once or never; a clock falls with the load.
        until_s = time.monotonic() + (0.0 if knob.readable else SETTLE_S)
        while True:
            seen = _number(actuator, knob)
            if seen is not None and _matches(knob, seen, value):
                return seen
            if time.monotonic() >= until_s:
                shown = "nothing" if seen is None else knob.shown(seen)
                raise LevelRefused(f"{knob.id}: {knob.shown(value)} was ignored: {shown} is read back")
            time.sleep(LOOK_S)

    def _lost(self, note: Note) -> str:
        actuator, knob = self._by_knob[note.knob]
        if foreign := self._foreign(actuator, knob):
            return f"process {min(foreign)} of somebody else came to {knob.device}"
        seen = _number(actuator, knob)
        if seen is None:
            return "it cannot be read any more"
        return "" if _matches(knob, seen, note.value) else f"it is {knob.shown(seen)} now, not {knob.shown(note.value)}"

    def _return(self, note: Note, *, forced: bool = False) -> bool:
        """Return a knob and drop its note; where that fails the note stays, for the next who tries."""
        if note.knob not in self._by_knob:
            return False
        actuator, knob = self._by_knob[note.knob]
        seen = _number(actuator, knob)
        # Only a setting that can be read tells whether somebody else has changed it.
        if knob.readable and seen is not None and not forced and not _matches(knob, seen, note.value):
            if note.before is None or not _matches(knob, seen, note.before):
                log.warning("%s: somebody else set %s meanwhile; left as it is", knob.id, knob.shown(seen))
            self.notes.drop(note.knob)
            return True
        try:
            actuator.write(knob, note.before)
        except (LevelRefused, OSError) as error:
            log.error("%s: not given back: %s", knob.id, error)
            return False
        self.notes.drop(note.knob)
        return True


def _number(actuator: Actuator, knob: Knob) -> float | None:
    """Read a knob; what is not a number, or cannot be read, is unknown."""
    try:
        value = actuator.read(knob)
    except OSError:
        return None
    return value if value is not None and math.isfinite(value) else None


def _matches(knob: Knob, seen: float, value: float) -> bool:
    """Return whether what is read fits what was set: equal but for a step, or a clock not above its ceiling."""
    # For a clock any value up to the ceiling fits: an idle device runs slower by itself.
    return seen <= value + knob.step if not knob.readable else abs(seen - value) <= knob.step


def _refused(knob: Knob, error: Exception) -> LevelRefused:
    if isinstance(error, LevelRefused):
        return error
    reason = getattr(error, "strerror", None) or str(error)
    return LevelRefused(f"{knob.id}: {reason}; {knob.who} may set it")
