"""The engine's journal: entries without a gap, each sealed by a checksum that continues the one before.

The number and the checksum of the last entry are in ``meta``, written with it, so an end that was cut off is noticed,
too. Older entries stay beyond the snapshot that holds them, up to so many bytes: with the snapshot before them they
tell how the engine came to a decision.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from wattflow.store import reads, schema
from wattflow.store.schema import StoreTrouble

HEAD = "journal"
"""Key in ``meta`` of the last entry's number and checksum."""
PIECE_BYTES = 256 << 10
"""Of a snapshot, in one row."""
WAYS_BACK = (
    "nothing was changed. `wattflow store check` tells what is wrong, `wattflow store restore` puts a backup back, "
    "`wattflow store check --mend` makes the journal anew from the tables"
)


class Damaged(StoreTrouble):
    """The journal, or a snapshot, is not what was written."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry, and the checksum up to it (0 where it was written without one, by an older version)."""

    sequence: int
    data: bytes
    checksum: int


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """An engine after an entry, as the store keeps it.

    Attributes:
        sequence: The last entry that it holds.
        checksum: That entry's.
        digest: SHA-256 of its bytes in the store, which are compressed.
        size_bytes: How many these are.
        journal_bytes: Bytes of the entries between the snapshot before and this one.
    """

    sequence: int
    policy: str
    time_s: float
    checksum: int
    digest: str
    size_bytes: int
    journal_bytes: int


def chained(before: int, sequence: int, data: bytes) -> int:
    """The checksum of an entry that follows one with another checksum."""
    # Number and checksum of the one before are the key: an entry that was moved, doubled or replaced does not verify.
    start = before.to_bytes(8, "little", signed=True) + sequence.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=start).digest(), "little", signed=True)


def head(sequence: int, checksum: int) -> schema.Row:
    """Make what ``meta`` says of the last entry."""
    return {"key": HEAD, "value": f"{sequence} {checksum}"}


def entries(database: sa.Engine, after: int, checksum: int = 0, up_to: int | None = None) -> Iterator[JournalEntry]:
    """Entries beyond one, each checked against the one before.

    Raises:
        Damaged: One is missing or is not what was written.
    """
    last, sealed = after, checksum
    # Read before the rows: a server that goes on writing makes the journal longer meanwhile, never shorter.
    end = _head(database)[0] if up_to is None else up_to
    for sequence, data, found in _rows(database, after, up_to):
        if sequence != last + 1:
            raise Damaged(f"the journal's {_span(last + 1, sequence - 1)} missing; {WAYS_BACK}")
        # None is an entry of 0.1.0, which had no checksums; the chain begins with the first that has one.
        if found is not None and found != chained(sealed, sequence, data):
            raise Damaged(f"the journal's entry {sequence} is damaged: its checksum is another; {WAYS_BACK}")
        last, sealed = sequence, found or 0
        yield JournalEntry(sequence, data, sealed)
    # Gaps in the middle show by their numbers; entries cut off at the end only by what `meta` says was the last.
    if end > last:
        raise Damaged(f"the journal's {_span(last + 1, end)} missing at its end; {WAYS_BACK}")


def _rows(database: sa.Engine, after: int, up_to: int | None) -> Iterator[tuple[int, bytes, int | None]]:
    table = schema.journal
    query = sa.select(table.c.sequence, table.c.entry, table.c.checksum).where(table.c.sequence > after)
    if up_to is not None:
        query = query.where(table.c.sequence <= up_to)
    with database.connect() as connection:
        for row in connection.execution_options(stream_results=True).execute(query.order_by(table.c.sequence)):
            yield row[0], row[1], row[2]


def _span(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def _head(database: sa.Engine) -> tuple[int, int]:
    told = reads.meta(database).get(HEAD)
    if told is None:
        return 0, 0
    sequence, checksum = told.split()
    return int(sequence), int(checksum)


def snapshots(database: sa.Engine) -> list[StoredSnapshot]:
    """All that are kept, oldest first. Each begins a segment: the entries up to the next one."""
    table = schema.snapshots
    return [StoredSnapshot(**row) for row in reads.rows(database, sa.select(table).order_by(table.c.sequence))]


def snapshot_bytes(database: sa.Engine, snapshot: StoredSnapshot) -> bytes:
    """The file that was saved.

    Raises:
        Damaged: The store's pieces are not what was written.
    """
    table = schema.snapshot_pieces
    query = sa.select(table.c.data).where(table.c.sequence == snapshot.sequence).order_by(table.c.piece)
    packed = b"".join(row["data"] for row in reads.rows(database, query))
    if hashlib.sha256(packed).hexdigest() != snapshot.digest:
        raise Damaged(f"the snapshot of the engine after entry {snapshot.sequence} is damaged; {WAYS_BACK}")
    return zlib.decompress(packed)


def entries_bytes(database: sa.Engine, after: int, up_to: int) -> int:
    """Bytes of the entries between two."""
    table = schema.journal
    asked = sa.select(sa.func.sum(sa.func.length(table.c.entry)).label("size"))
    (row,) = reads.rows(database, asked.where(table.c.sequence > after, table.c.sequence <= up_to))
    return int(row["size"] or 0)


def kept_from(known: list[StoredSnapshot], most_bytes: int) -> int:
    """The entry from which on the journal is kept: that of the oldest snapshot that, with all after it, takes no more
    than so many bytes; the latest one's where even that is larger."""
    first, total = known[-1].sequence, known[-1].size_bytes
    for older, newer in zip(reversed(known[:-1]), reversed(known[1:]), strict=True):
        total += older.size_bytes + newer.journal_bytes
        if total > most_bytes:
            return first
        first = older.sequence
    return first if total + known[0].journal_bytes > most_bytes else 0
