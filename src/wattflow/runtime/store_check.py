"""A check of a store that names all faults at once: of its file, journal, snapshots, objects and tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.live.protocol import LiveError
from wattflow.runtime import messages as m
from wattflow.runtime.compaction import rebuilt
from wattflow.runtime.decider import Decider
from wattflow.store import journal, reads, schema
from wattflow.store.objects import ObjectDamaged, Objects

MOST = 20
"""Of one kind that are named one by one."""
_TASK = msgspec.msgpack.Decoder(tuple[int, m.Task])
_BLOB = msgspec.msgpack.Decoder(m.Blob)


def problems(database: sa.Engine, objects: Objects, folder: Path) -> Iterator[str]:
    """Each as a sentence; a store without any gives none. Nothing is changed, and a server may be running."""
    yield from _file(database)
    yield from _segments(database)
    yield from _engine(database, folder)
    yield from _objects(database, objects)


def _file(database: sa.Engine) -> Iterator[str]:
    if database.dialect.name != "sqlite":
        return
    with database.connect() as connection:
        for (said,) in connection.exec_driver_sql("PRAGMA quick_check"):
            if said != "ok":
                yield f"the store's file is damaged: {said}"


def _segments(database: sa.Engine) -> Iterator[str]:
    """Every snapshot that is kept and the entries up to the next, those that only explain the past, too."""
    known = journal.snapshots(database)
    first = reads.first_entry(database)
    starts = [(one.sequence, one.checksum) for one in known]
    # Entries before the first snapshot are checked from their own beginning; there is no checksum to begin with.
    starts = starts if first is None or (known and first > known[0].sequence) else [(first - 1, 0), *starts]
    for one in known:
        try:
            journal.snapshot_bytes(database, one)
        except journal.Damaged as error:
            yield str(error)
    for (start, checksum), after in zip(starts, [*starts[1:], None], strict=True):
        try:
            for _ in journal.entries(database, start, checksum, after[0] if after is not None else None):
                pass
        except journal.Damaged as error:
            yield str(error)


def _engine(database: sa.Engine, folder: Path) -> Iterator[str]:
    """Return whether the engine that a start would make knows the tasks that are open."""
    with tempfile.TemporaryDirectory() as place:
        there = folder if folder.is_dir() else Path(place)
        try:
            decider, _ = rebuilt(database, there, "fifo")
        except (journal.Damaged, OSError) as error:
            if isinstance(error, OSError):
                yield f"the engine's snapshot cannot be read: {error}"
            return
    table = schema.tasks
    query = sa.select(table.c.workflow, table.c.key, table.c.spec).where(table.c.state.in_(("waiting", "running")))
    unknown = [f"{row['workflow']}/{row['key']}" for row in reads.rows(database, query) if _unknown(decider, row)]
    if unknown:
        yield f"the engine does not know {_some(unknown)}: it would wait for ever; `wattflow store check --mend`"


def _unknown(decider: Decider, row: reads.Found) -> bool:
    engine, _ = _TASK.decode(row["spec"])
    try:
        decider.why(engine)
    except LiveError:
        return True
    return False


def _objects(database: sa.Engine, objects: Objects) -> Iterator[str]:
    """Objects that tasks name and that are not here, or not as they were put; each with a task that names it."""
    bad: dict[str, list[str]] = {"missing": [], "damaged": []}
    seen: set[str] = set()
    query = sa.select(*(schema.tasks.c[name] for name in ("workflow", "key", "spec", "result")))
    for row in reads.rows(database, query):
        _, spec = _TASK.decode(row["spec"])
        result = _BLOB.decode(row["result"]).object if row["result"] else None
        call = spec.call.object if spec.call is not None else None
        # Each object once: thousands of tasks share a function, and reading it verifies its hash.
        for name in {spec.function, call, result, *(variant.function for variant in spec.variants)} - {None, *seen}:
            assert name is not None
            seen.add(name)
            if (kind := _trouble(objects, name)) is not None:
                bad[kind].append(f"{name[:12]}… of {row['workflow']}/{row['key']}")
    for kind, names in bad.items():
        if names:
            yield f"objects are {kind}: {_some(names)}"


def _trouble(objects: Objects, name: str) -> str | None:
    try:
        objects.get(name)
    except ObjectDamaged:
        return "damaged"
    except KeyError:
        return "missing"
    return None


def _some(names: list[str]) -> str:
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
