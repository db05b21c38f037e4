"""A backup of a store: all its rows as they are at one moment, and the objects that they name, in a folder.

The rows are read in one transaction, beside a server that goes on writing, and written into a store in a file, whatever
database they come from; so a backup of either kind can be put back into either. Objects come after the rows: what a row
names was put before it, and nothing young is swept away. The manifest is written last: a folder without one is no
backup.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlalchemy as sa

from wattflow.files.whole import write_text
from wattflow.model.errors import InvalidInput
from wattflow.store import claim, epochs, schema
from wattflow.store.objects import FolderObjects, ObjectDamaged, Objects
from wattflow.store.schema import StoreTrouble, open_store, told

STORE, OBJECTS, MANIFEST = "store.db", "objects", "manifest.json"
ROWS = 1000
_CONTENT = (schema.workflows, schema.nodes)


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """Describe what a backup holds.

    Attributes:
        digest: SHA-256 of its store's file.
        missing: Objects that rows name and that could not be read then.
    """

    made_s: float
    layout: int
    epoch: int
    rows: dict[str, int]
    objects: int
    missing: list[str]
    digest: str


def back_up(
    database: sa.Engine, objects: Objects, folder: Path, named: Callable[[sa.Engine], set[str]]
) -> BackupManifest:
    """Copy a store and its objects into a new folder; ``named`` tells which objects the rows of a store name."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise InvalidInput(str(folder), f"cannot be made: {error.strerror}; a backup has a folder of its own") from None
    made_s = time.time()
    # Always SQLite, whatever the source: a backup is one file that any machine can read and check.
    copy = open_store(folder / STORE)
    try:
        counts = _copied(database, copy)
        # Asked of the copy, not of the store, which has gone on: every object that a copied row names must come
        # along.
        wanted = named(copy)
        missing = _copy_objects(objects, FolderObjects(folder / OBJECTS), wanted)
        with copy.connect() as connection:
            epoch = epochs.current(connection) or 0
        _settle(copy, folder / STORE)
    finally:
        copy.dispose()
    digest = hashlib.sha256((folder / STORE).read_bytes()).hexdigest()
    manifest = BackupManifest(made_s, schema.VERSION, epoch, counts, len(wanted) - len(missing), missing, digest)
    # Last: a backup that was cut off has no manifest, and `read_manifest` refuses it.
    write_text(folder / MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def read_manifest(folder: Path) -> BackupManifest:
    """Read what a backup says of itself, once its store is what was written."""
    try:
        manifest = BackupManifest(**json.loads((folder / MANIFEST).read_text()))
        digest = hashlib.sha256((folder / STORE).read_bytes()).hexdigest()
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(str(folder), f"holds no whole backup: {error}") from None
    # Checked before anything of the target is touched: half a restore of a damaged backup would be worse than none.
    if digest != manifest.digest:
        raise InvalidInput(str(folder / STORE), "is damaged: its checksum is another than the manifest's")
    if manifest.layout > schema.VERSION:
        raise InvalidInput(str(folder), f"was made by a newer wattflow (layout {manifest.layout})")
    return manifest


def put_back(
    folder: Path, store: str | Path, objects: Objects, replace: bool = False, at_least: int = 0
) -> BackupManifest:
    """Put a backup into a store that no server works on, and its objects where the store's are; begins a new epoch.

    A store in a file is exchanged as a whole; the one before stays beside it. Tables of PostgreSQL are filled in one
    transaction, so at any moment there is the old content or the new.

    Args:
        replace: Also where the store is not empty.
        at_least: The new epoch is no earlier than this.
    """
    manifest = read_manifest(folder)
    kept = FolderObjects(folder / OBJECTS)
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(folder / STORE, Path(place) / STORE)  # opening one may change it, and a backup stays as it is
        source = open_store(Path(place) / STORE, upgrade=True)
        try:
            with claim.alone(store):
                if not replace and not _is_empty(store):
                    raise InvalidInput(shown(store), "is not empty; --replace puts the backup in its place")
                # Objects before rows, as a server puts them: a row never names what is not there.
                _copy_objects(kept, objects, kept.names())
                (_fill_file if "://" not in str(store) else _fill_tables)(source, store, max(at_least, manifest.epoch))
        finally:
            source.dispose()
    return manifest


def shown(store: str | Path) -> str:
    """A store's name without its password."""
    text = str(store)
    return sa.make_url(text).render_as_string(hide_password=True) if "://" in text else text


def _is_empty(store: str | Path) -> bool:
    if "://" not in str(store) and not (Path(store).is_file() and Path(store).stat().st_size):
        return True
    database = open_store(store, upgrade=True)
    try:
        with database.connect() as connection:
            return not any(connection.execute(sa.select(table).limit(1)).first() for table in _CONTENT)
    finally:
        database.dispose()


def _fill_tables(source: sa.Engine, store: str | Path, epoch: int) -> None:
    database = open_store(store, upgrade=True)
    try:
        with database.connect() as connection:
            epoch = max(epoch, epochs.current(connection) or 0)
        _copied(source, database)
        epochs.begin(database, epoch + 1)
    finally:
        database.dispose()


def _fill_file(source: sa.Engine, store: str | Path, epoch: int) -> None:
    path = Path(store)
    draft = path.with_name(f"{path.name}-restoring")
    draft.unlink(missing_ok=True)
    database = open_store(draft)
    try:
        _copied(source, database)
        epochs.begin(database, epoch + 1)
        _settle(database, draft)
    finally:
        database.dispose()
    before = path.with_name(f"{path.name}-before-{time.strftime('%Y%m%dT%H%M%S')}")
    # The log first: a file without its log would look whole and miss the last commits.
    for end in ("-wal", "-shm", ""):
        old = path.with_name(path.name + end)
        if old.exists():
            old.rename(before.with_name(before.name + end))
    draft.rename(path)


def _copied(source: sa.Engine, target: sa.Engine) -> dict[str, int]:
    """Copy all rows as they are at one moment; how many there were of each table."""
    counts = {}
    try:
        with source.connect() as reading, target.begin() as writing:
            # One snapshot for all tables: rows of a moment, though a server commits meanwhile.
            if source.dialect.name == "postgresql":
                reading = reading.execution_options(isolation_level="REPEATABLE READ")
            else:
                reading.exec_driver_sql("BEGIN")
            schema.alone(writing)
            for table in schema.metadata.sorted_tables:
                writing.execute(sa.delete(table))
                counts[table.name] = _copy_table(reading, writing, table)
            # Servers of the source's life: a standby would take them for holders and wait.
            writing.execute(sa.delete(schema.servers))
    except sa.exc.DBAPIError as error:
        raise StoreTrouble(f"the copy was not made: {told(error)}") from None
    return counts


def _copy_table(reading: sa.Connection, writing: sa.Connection, table: sa.Table) -> int:
    count = 0
    found = reading.execution_options(stream_results=True, yield_per=ROWS).execute(sa.select(table))
    for few in found.partitions(ROWS):
        writing.execute(sa.insert(table), [dict(row._mapping) for row in few])
        count += len(few)
    return count


def _copy_objects(source: Objects, target: Objects, names: Iterable[str]) -> list[str]:
    """Copy objects; those that are missing or damaged are named."""
    missing = []
    for name in sorted(names):
        try:
            target.put(source.get(name))
        except (KeyError, ObjectDamaged):
            missing.append(name)
    return missing


def _settle(copy: sa.Engine, path: Path) -> None:
    """One file without a log beside it, on the disk."""
    with copy.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")
    path.chmod(0o600)
    with path.open("rb") as file:
        os.fsync(file.fileno())
