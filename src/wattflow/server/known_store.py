"""Which store a home worked with: one that is gone or was emptied is told, not quietly begun anew.

The home keeps a note of its store's identity, and of where its objects are. A person who wants to begin anew deletes
the note.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import sqlalchemy as sa

from wattflow.files.whole import write_text
from wattflow.runtime.home import Home, json_object
from wattflow.store import epochs, reads
from wattflow.store.schema import IDENTITY, StoreTrouble

log = logging.getLogger(__name__)


def identity_of(home: Home) -> str | None:
    """The store that this home worked with last; None at its first start."""
    found = _note(home).get("identity")
    return str(found) if found is not None else None


def epoch_of(home: Home) -> int:
    """The latest epoch that this home has seen."""
    return int(str(_note(home).get("epoch", 0)))


def check_objects(home: Home, objects: str | Path) -> None:
    """Refuse a folder of objects that is gone, where the store may name some in it."""
    if _note(home).get("objects") == str(objects) and "://" not in str(objects) and not Path(objects).is_dir():
        raise StoreTrouble(
            f"{objects}: the folder of the store's objects is gone. Put it back (`wattflow store restore`), or delete "
            f"{home.store_note} to go on without what was in it"
        )


def remember(home: Home, database: sa.Engine, objects: str | Path, epoch: int) -> None:
    """Note the store."""
    identity = reads.meta(database).get(IDENTITY)
    note = {"identity": identity, "epoch": max(epoch, epoch_of(home)), "objects": str(objects)}
    write_text(home.store_note, json.dumps(note))


def catch_up(home: Home, database: sa.Engine) -> None:
    """Leave no epoch of this home's to be begun again: a store that was put back by hand knows of fewer."""
    with database.connect() as connection:
        found = epochs.current(connection) or 0
    if epoch_of(home) > found:
        log.warning("the store is older than when it was last seen here: it seems to be put back from a backup")
        epochs.begin(database, epoch_of(home) + 1)
        forget_later_output(home, database)


def forget_later_output(home: Home, database: sa.Engine) -> None:
    """Delete the output of tasks that an older store does not know: the next ones get their numbers."""
    last = reads.highest(database)["task"]
    for path in (home.folder / "logs").glob("*/*.log"):
        number = path.name.partition(".")[0]
        if number.isdecimal() and int(number) > last:
            path.unlink(missing_ok=True)


def gone(store: object, home: Home) -> StoreTrouble:
    """Say that a store is gone, and what to do."""
    return StoreTrouble(
        f"{store}: the store that this server worked with is gone or was emptied; nothing was changed. Put it back "
        f"(`wattflow store restore BACKUP`), name the right one (--store), or delete {home.store_note} to begin anew"
    )


def _note(home: Home) -> dict[str, object]:
    # Not as if there were none: the epochs that this home has seen would be forgotten.
    remedy = "put it back, or delete it to go on without what was in it"
    return json_object(home.store_note, remedy) if home.store_note.exists() else {}
