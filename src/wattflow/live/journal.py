"""A journal of what an engine is told: snapshot and journal together give the same engine after a crash.

Every call that changes the engine (`RECORDED`), in order, is one line of a file with a checksum. A line is written
before its call is carried out, and a torn last line is the call that never was. `checkpoint` writes a snapshot and
begins the next journal; the old ones go only when the new snapshot is on the disk, so a kill at any moment loses
nothing.

The engine is deterministic: the same calls give the same ids and placements. So what it was told is all that a journal
holds. `encode` and `decode` are the one codec of calls, also where the server keeps them beside what it stores
(`runtime.decider`).
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from wattflow.live import fork
from wattflow.live.engine import Engine
from wattflow.live.object_codec import Decoder, Encoder
from wattflow.live.protocol import Kind, Power
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy.base import Policy

RECORDED = (
    "use", "room", "node", "shape", "function", "workflow", "drop", "constraint", "resource", "put", "pin", "prefer",
    "step", "step_on",
)  # fmt: skip
"""Calls that change an engine; `room` too, since which row is free next, and so every id, depends on it."""
_as_json = json.JSONEncoder(separators=(",", ":")).encode
Call = tuple[str, list[Any], dict[str, Any]]


def encode(name: str, arguments: tuple[Any, ...], fields: Mapping[str, Any]) -> bytes:
    """Encode a call as one line of JSON without a line end."""
    told = [_plain(item) for item in arguments], {key: _plain(item) for key, item in fields.items()}
    return _as_json([name, *told]).encode()


def decode(data: bytes) -> Call:
    """Name, arguments and named arguments, not made into objects yet."""
    name, arguments, fields = json.loads(data)
    return name, arguments, fields


def tell(engine: Engine, call: Call, policies: Mapping[str, Policy] | None = None) -> Any:
    """Make a call again; what it gave, or None where it was refused. ``policies`` are those that no registry knows."""
    name, arguments, fields = call
    if name not in RECORDED:
        raise InvalidInput("journal", f"{name!r} is no call of an engine")

    def told(item: Any) -> Any:
        if isinstance(item, dict) and item.get("!") == "policy":
            return fork.policy_of(item["v"], policies or {}, "journal")
        return Decoder({}, "journal").decode(item)

    given, named = [told(item) for item in arguments], {key: told(item) for key, item in fields.items()}
    try:
        return getattr(engine, name)(*given, **named)
    except WattflowError:
        # The call was refused when it was made, and is refused again; the engine did not change.
        return None


def _plain(item: Any) -> Any:
    if item is None or type(item) in (int, bool, str) or (type(item) is float and math.isfinite(item)):
        return item  # nearly everything, and a server's every event passes here
    if isinstance(item, Kind | Power):
        return int(item)
    if isinstance(item, Policy):
        return {"!": "policy", "v": fork.described(item)}
    return Encoder({}).encode(item)


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
        for name in RECORDED:
            if hasattr(type(self.engine), name):
                setattr(self.engine, name, self._recording(name, getattr(type(self.engine), name)))
        vars(self.engine)["by_hand"] = self._refuse

    def _detach(self) -> None:
        for name in (*RECORDED, "by_hand"):
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
        line = encode(name, arguments, fields)
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
        tell(engine, call, policies)
    numbers = _numbers(place)
    return Journal._resumed(engine, place, max([*numbers["snapshot"], *numbers["journal"]]), sync)


def last_snapshot(folder: Path) -> Path:
    """Return the snapshot that the journal goes on from."""
    numbers = _numbers(folder)["snapshot"]
    if not numbers:
        raise InvalidInput(str(folder), "it holds no snapshot of an engine")
    return folder / f"snapshot-{max(numbers)}"


def told(folder: Path) -> Iterator[Call]:
    """Yield what the engine was told since its last snapshot: name, arguments, named arguments."""
    numbers = _numbers(folder)
    for number in sorted(n for n in numbers["journal"] if n >= max(numbers["snapshot"])):
        yield from _lines(folder / f"journal-{number}")


def _lines(path: Path) -> Iterator[Call]:
    """Yield the calls of a journal, up to the first line that is not whole."""
    with path.open("rb") as file:
        for line in file:
            checksum, _, data = line.rstrip(b"\n").partition(b" ")
            if not line.endswith(b"\n") or b"%08x" % zlib.crc32(data) != checksum:
                return
            yield decode(data)


def _numbers(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"snapshot": [], "journal": []}
    for entry in folder.iterdir():
        match = _NUMBERED.fullmatch(entry.name)
        if match:
            found[match[1]].append(int(match[2]))
    return found


__all__ = ["Journal", "last_snapshot", "recover", "told"]
