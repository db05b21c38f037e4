"""A new snapshot without a pause: a process of its own replays what the store has and writes the engine that comes out.

The server puts it into the store, where whoever takes over finds it.
The engine is deterministic, so snapshot and journal are as good as the engine in memory, and copying that one would
hold the server's loop up for as long as its tables are large. The server loses a short start of a process and some of
another core; it goes on deciding meanwhile. ``python -m wattflow.runtime.compaction`` is that process; it reads what
it needs to know from its standard input (a store's URL may hold a password, which does not belong into an argument).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.service import Service
from wattflow.runtime.turns import on_disk
from wattflow.store import journal, reads
from wattflow.store.schema import Row, address_of, read_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer

LONGEST_S = 600.0
# It has time: the journal it replaces works as well.
NICE = 10
PIECE, PAUSE_S = 128, 0.005
"""Entries of the journal that are forgotten with one group, and a pause after it."""
KEEP_BYTES = 256 << 20
"""Bytes that snapshots and journal may take together; the latest snapshot and what follows it are kept in any case."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far an engine was brought: the last entry, its checksum, and the time of the last step."""

    sequence: int = 0
    checksum: int = 0
    time_s: float = 0.0


async def take_snapshot(service: Service, database: sa.Engine, folder: Path, keep_bytes: int = KEEP_BYTES) -> None:
    """Have the engine saved into the store as it is now. What is older than the oldest snapshot that is kept is let
    go of once that is on disk; the rest tells how past decisions came about."""
    # Noted before the commit is awaited: entries that come meanwhile belong to the next snapshot.
    sequence = service.ledger.next_entry - 1
    await service.stored()
    store = address_of(database)
    wanted = {"store": store, "folder": str(folder), "sequence": sequence, "policy": service.decider.policy}
    told = json.loads(await _elsewhere(json.dumps(wanted)))
    file = folder / told.pop("file")
    try:
        # Old entries go only after this is on disk: a kill in between leaves more than is needed, never less.
        await _keep(service.writer, journal.StoredSnapshot(**told), file)
    finally:
        file.unlink(missing_ok=True)
    await _forget(service.writer, database, keep_bytes)


def rebuilt(
    database: sa.Engine, folder: Path, policy: str, up_to: int | None = None
) -> tuple[JournaledEngine, Replayed]:
    """The engine after what the store has (or up to an entry), and how far that is.

    Raises:
        Damaged: The journal has a gap, or something is not what was written.
    """
    decider = JournaledEngine(policy)
    at = _loaded(decider, database, folder, up_to)
    for entry in journal.entries(database, at.sequence, at.checksum, up_to):
        last_s = max(at.time_s, decider.replay(msgspec.msgpack.decode(entry.data)))
        at = Replayed(entry.sequence, entry.checksum, last_s)
    return decider, at


def _loaded(decider: JournaledEngine, database: sa.Engine, folder: Path, up_to: int | None) -> Replayed:
    """Begin with the latest snapshot that is not beyond an entry; with nothing where there is none."""
    known = [one for one in journal.snapshots(database) if up_to is None or one.sequence <= up_to]
    before = reads.meta(database).get("snapshot")  # a file of its own, as 0.1.0 kept them
    if known:
        return load_snapshot(decider, database, known[-1])
    if before is not None:
        old = json.loads(before)
        decider.load(folder / old["file"])
        decider.policy = old["policy"]
        return Replayed(old["sequence"], 0, old["time_s"])
    return Replayed()


def load_snapshot(decider: JournaledEngine, database: sa.Engine, about: journal.StoredSnapshot) -> Replayed:
    """Go on from a snapshot of the store's."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "engine"
        file.write_bytes(journal.snapshot_bytes(database, about))
        decider.load(file)
    decider.policy = about.policy
    return Replayed(about.sequence, about.checksum, about.time_s)


def write_snapshot(store: str, folder: Path, up_to: int, policy: str) -> str:
    """Replay and save into a file; returns what the store must know of it, and the file's name."""
    database = read_store(store)
    try:
        decider, at = rebuilt(database, folder, policy, up_to)
        before = max((one.sequence for one in journal.snapshots(database)), default=0)
        journal_bytes = journal.entries_bytes(database, before, at.sequence)
    finally:
        database.dispose()
    name = f"engine-{at.sequence}"
    decider.save(folder / name)
    # Level 1: tables are mostly zeros, and more effort costs seconds beside a busy server.
    packed = zlib.compress((folder / name).read_bytes(), 1)
    (folder / name).write_bytes(packed)
    about = journal.StoredSnapshot(
        sequence=at.sequence, policy=decider.policy, time_s=at.time_s, checksum=at.checksum,
        digest=hashlib.sha256(packed).hexdigest(), size_bytes=len(packed), journal_bytes=journal_bytes,
    )  # fmt: skip
    return json.dumps(dataclasses.asdict(about) | {"file": name})


async def _keep(writer: Writer, about: journal.StoredSnapshot, file: Path) -> None:
    """Put a snapshot into the store, a piece with a group, and last what says that it is there."""
    packed = await asyncio.to_thread(file.read_bytes)
    await _put(writer, (Write.SNAPSHOT_PIECES_FORGET, {"b_sequence": about.sequence}))
    for piece, start in enumerate(range(0, len(packed), journal.PIECE_BYTES)):
        row = {"sequence": about.sequence, "piece": piece, "data": packed[start : start + journal.PIECE_BYTES]}
        await _put(writer, (Write.SNAPSHOT_PIECE, row))
    # The row that names it comes last, so a snapshot with missing pieces is none.
    await _put(writer, (Write.SNAPSHOT, dataclasses.asdict(about)))


async def _put(writer: Writer, *batch: tuple[Write, Row]) -> None:
    """Put changes and wait until they are on disk; a little longer, so that others come first."""
    writer.put(*batch)
    await on_disk(writer)
    await asyncio.sleep(PAUSE_S)


async def _elsewhere(wanted: str) -> str:
    """The same in another process. Raises OSError where it fails: the journal stays, the next try has more of it."""
    process = await asyncio.to_thread(_process)  # in a thread: starting one takes a while, and fork would take longer
    try:
        told, said = await asyncio.to_thread(process.communicate, wanted, LONGEST_S)
    except subprocess.TimeoutExpired:
        raise OSError(f"the engine was not saved within {LONGEST_S:g} s") from None
    finally:
        if process.poll() is None:  # the server ends, or has waited long enough
            process.kill()
    if process.returncode:
        last = said.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise OSError(f"the engine was not saved: {last[0]}")
    return told.strip()


def _process() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-P", "-m", "wattflow.runtime.compaction"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


async def _forget(writer: Writer, database: sa.Engine, keep_bytes: int) -> None:
    """Let go of the oldest snapshots, and of entries that no kept one needs, a few with a group: a second one who
    writes to the store would make the writer wait."""
    known = await asyncio.to_thread(journal.snapshots, database)
    first, last = await asyncio.to_thread(reads.first_entry, database), journal.kept_from(known, keep_bytes)
    for old in known:
        if old.sequence < last:
            row = {"b_sequence": old.sequence}
            await _put(writer, (Write.SNAPSHOT_FORGET, row), (Write.SNAPSHOT_PIECES_FORGET, row))
    while first is not None and first <= last:
        await _put(writer, (Write.JOURNAL_FORGET, {"b_from": first, "b_to": min(first + PIECE, last + 1)}))
        first += PIECE


def main() -> None:
    """Run the process that `take_snapshot` starts."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    given = json.load(sys.stdin)
    print(write_snapshot(given["store"], Path(given["folder"]), given["sequence"], given["policy"]))  # noqa: T201


if __name__ == "__main__":
    main()
