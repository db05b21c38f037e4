"""A journal of what an engine is told: snapshot and journal together give the same engine after a crash.

Every call that changes the engine (`calls`), in order, is one line of a file with a checksum. A line is written before
its call is carried out, and a torn last line is the call that never was. `checkpoint` writes a snapshot and begins the
next journal; the old ones go only when the new snapshot is on the disk, so a kill at any moment loses nothing.
"""

from __future__ import annotations

import functools
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from wattflow.live import calls, fork
from wattflow.live.engine import Engine
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy.base import Policy

_NUMBERED = re.compile(r"(snapshot|journal)-(\d+)")


class Journal:
    """A folder with an engine's last snapshot and what it was told since.

    Args:
        folder: Its own folder; an empty or missing one begins with a snapshot of the engine as it is.
        sync: Whether each step waits for the disk; without it a crash of the machine (not of the process) may cost
            the last steps.
    """

    def __init__(self, engine: Engine, folder: str | os.PathLike[str], sync: bool = False) -> None:
        self.engine, self.folder, self.sync = engine, Path(folder), sync
        self.folder.mkdir(parents=True, exist_ok=True)
        found = _numbers(self.folder)
        if found["snapshot"]:
            raise InvalidInput(str(folder), "it holds the journal of an engine already; use `recover`")
        self._number = 0
        self._file: Any = None
        self._begin()

    @classmethod
    def _resumed(cls, engine: Engine, folder: Path, number: int, sync: bool) -> Self:
        made = object.__new__(cls)
        made.engine, made.folder, made.sync = engine, folder, sync
        made._number, made._file = number, None
        made._begin()
        return made

    def _begin(self) -> None:
        """Write a snapshot of now, begin the journal that follows it, and have the engine write into it."""
        # A snapshot is of the bare engine: the wrappers that record calls are no part of it.
        self._detach()
        number = self._number + 1
        fork.save(self.engine, self.folder / f"snapshot-{number}")
        # Snapshot first, then its journal, then the old ones go: killed in between, `recover` finds one whole pair.
        following = (self.folder / f"journal-{number}").open("ab", buffering=0)
        if self._file is not None:
            self._file.close()
        self._file, self._number = following, number
        for kind, numbers in _numbers(self.folder).items():
            for old in numbers:
                if old < number:
                    (self.folder / f"{kind}-{old}").unlink()
        self._attach()

    checkpoint = _begin

    def _attach(self) -> None:
        for name in calls.RECORDED:
            if hasattr(type(self.engine), name):
                setattr(self.engine, name, self._recording(name, getattr(type(self.engine), name)))
        vars(self.engine)["by_hand"] = self._refuse

    def _detach(self) -> None:
        for name in (*calls.RECORDED, "by_hand"):
            vars(self.engine).pop(name, None)

    def _refuse(self, *arguments: Any, **fields: Any) -> Any:
        raise WattflowError("decisions by hand are not in the journal; fork the engine, or close the journal first")

    def _recording(self, name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        engine, is_step = self.engine, name == "step"

        @functools.wraps(usual)
        def recorded(*arguments: Any, **fields: Any) -> Any:
            self._write(name, arguments, fields, is_step)
            return usual(engine, *arguments, **fields)

        return recorded

    def _write(self, name: str, arguments: tuple[Any, ...], fields: dict[str, Any], is_step: bool) -> None:
        line = calls.encode(name, arguments, fields)
        self._file.write(b"%08x %b\n" % (zlib.crc32(line), line))
        if is_step and self.sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let the engine go on without a journal."""
        self._detach()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def recover(
    folder: str | os.PathLike[str], policies: Mapping[str, Policy] | None = None, sync: bool = False
) -> Journal:
    """Load the engine as it was when its last step was told; its journal goes on."""
    place = Path(folder)
    first = last_snapshot(place)
    engine, _ = fork.load(first, policies)
    for call in told(place):
        calls.tell(engine, call, policies)
    numbers = _numbers(place)
    return Journal._resumed(engine, place, max([*numbers["snapshot"], *numbers["journal"]]), sync)


def last_snapshot(folder: Path) -> Path:
    """Return the snapshot that the journal goes on from."""
    numbers = _numbers(folder)["snapshot"]
    if not numbers:
        raise InvalidInput(str(folder), "it holds no snapshot of an engine")
    return folder / f"snapshot-{max(numbers)}"


def told(folder: Path) -> Iterator[calls.Call]:
    """Yield what the engine was told since its last snapshot: name, arguments, named arguments."""
    numbers = _numbers(folder)
    for number in sorted(n for n in numbers["journal"] if n >= max(numbers["snapshot"])):
        yield from _lines(folder / f"journal-{number}")


def _lines(path: Path) -> Iterator[calls.Call]:
    """Yield the calls of a journal, up to the first line that is not whole."""
    with path.open("rb") as file:
        for line in file:
            checksum, _, data = line.rstrip(b"\n").partition(b" ")
            if not line.endswith(b"\n") or b"%08x" % zlib.crc32(data) != checksum:
                return
            yield calls.decode(data)


def _numbers(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"snapshot": [], "journal": []}
    for entry in folder.iterdir():
        match = _NUMBERED.fullmatch(entry.name)
        if match:
            found[match[1]].append(int(match[2]))
    return found


__all__ = ["Journal", "last_snapshot", "recover", "told"]
