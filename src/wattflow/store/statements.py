"""Every statement that changes the tables.

Statements have a rank: within one group commit they run in this order, each over all its rows in the order in which
they were given. A row is inserted once and changed later by one statement, so ranks cannot put a change before its row.

SQLite's module lets go of the interpreter for every statement and must get it back after it, for which a busy loop lets
it wait longer than the statement takes. So the changes of every task's way take up to 64 rows in one statement there.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from wattflow.store.schema import (
    Row,
    accounts,
    attempts,
    audit,
    energy,
    events,
    journal,
    meta,
    node_states,
    nodes,
    snapshot_pieces,
    snapshots,
    tasks,
    tokens,
    usage,
    workflows,
)
from wattflow.store.writing import Statement

FROM_VALUES = sqlite3.sqlite_version_info >= (3, 33)
"""True where SQLite can change many rows in one statement; an older one takes them one after the other."""
SIZES = (64, 16, 4, 1)
"""Rows in one statement of SQLite's; each size is prepared once and kept."""


class Write(enum.IntEnum):
    """A statement, by its rank."""

    WORKFLOW = 0
    TASK = 1
    ATTEMPT = 2
    NODE = 3
    EVENT = 20
    NODE_STATE = 21
    ATTEMPT_STARTED = 4
    ATTEMPT_ENDED = 5
    ATTEMPT_ENERGY = 6
    TASK_STATE = 7
    WORKFLOW_STATE = 8
    ENERGY_FORGET = 9
    ENERGY = 10
    JOURNAL = 11
    META = 12
    JOURNAL_FORGET = 13
    SNAPSHOT_PIECE = 14
    SNAPSHOT = 15
    SNAPSHOT_FORGET = 16
    SNAPSHOT_PIECES_FORGET = 17
    TASK_ENGINE = 18
    AUDIT = 19
    ACCOUNT = 22
    USAGE = 23
    TOKEN = 24
    TOKEN_REVOKED = 25


@dataclass(frozen=True, slots=True)
class Update:
    """Columns that a change sets in the row that its keys name; a key's value is given as ``b_`` and its name."""

    table: sa.Table
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the values that a row of the change brings, the keys last."""
        return (*self.columns, *(f"b_{key}" for key in self.keys))

    def statement(self) -> sa.Update:
        """For one row, or many one after the other."""
        named = [self.table.c[key] == sa.bindparam(f"b_{key}") for key in self.keys]
        return sa.update(self.table).where(*named).values({column: sa.bindparam(column) for column in self.columns})

    def text(self, rows: int) -> str:
        """For so many rows at once, in SQLite's words; no two of them may have the same keys."""
        table = self.table.name
        sets = ", ".join(f"{column} = v.column{place}" for place, column in enumerate(self.columns, 1))
        found = " AND ".join(
            f"{table}.{key} = v.column{place}" for place, key in enumerate(self.keys, 1 + len(self.columns))
        )
        return f"UPDATE {table} SET {sets} FROM (VALUES {_places(len(self.given), rows)}) AS v WHERE {found}"


INSERTS = {Write.WORKFLOW: workflows, Write.TASK: tasks, Write.ATTEMPT: attempts, Write.JOURNAL: journal,
           Write.SNAPSHOT_PIECE: snapshot_pieces, Write.SNAPSHOT: snapshots, Write.AUDIT: audit,
           Write.TOKEN: tokens}  # fmt: skip
UPDATES = {
    Write.ATTEMPT_STARTED: Update(attempts, ("task", "number"), ("started_s", "cold_s")),
    Write.ATTEMPT_ENDED: Update(attempts, ("task", "number"), ("outcome", "started_s", "ended_s", "cold_s", "cpu_s",
                                 "peak_bytes", "reason", "gpu_duty", "gpu_beside", "gpu_samples")),
    Write.ATTEMPT_ENERGY: Update(attempts, ("task", "number"), ("energy_j", "low_j", "high_j", "marginal_j",
                                  "provenance")),
    Write.TASK_STATE: Update(tasks, ("id",), ("state", "attempts", "ended_s", "sequence", "result", "reason")),
    Write.TASK_ENGINE: Update(tasks, ("id",), ("spec",)),
    Write.TOKEN_REVOKED: Update(tokens, ("digest",), ("revoked_s",)),
    Write.WORKFLOW_STATE: Update(workflows, ("id",), ("state", "ended_s", "about")),
}  # fmt: skip
"""Changes that write the same columns of a row each time: of several in a group only the last is written."""


def statements(dialect: str) -> dict[Write, sa.Executable]:
    """The statements in a database's dialect (``sqlite`` or ``postgresql``)."""
    insert: Any = sqlite.insert
    if dialect != "sqlite":
        from sqlalchemy.dialects import postgresql  # a tenth of a second that most servers never need

        insert = postgresql.insert
    node, value, event = insert(nodes), insert(meta), insert(events)
    account, used = insert(accounts), insert(usage)
    entry = journal.c.sequence
    return {
        **{change: sa.insert(table) for change, table in INSERTS.items()},
        **{change: update.statement() for change, update in UPDATES.items()},
        Write.NODE: node.on_conflict_do_update(
            index_elements=["name"],
            set_={"spec": node.excluded.spec, "state": node.excluded.state, "seen_s": node.excluded.seen_s},
        ),
        Write.EVENT: event.on_conflict_do_update(
            index_elements=["slot"], set_={"sequence": event.excluded.sequence, "entry": event.excluded.entry}
        ),
        Write.NODE_STATE: insert(node_states).on_conflict_do_nothing(index_elements=["node", "at_s"]),
        Write.ENERGY: _window(insert),
        Write.ENERGY_FORGET: sa.delete(energy).where(
            energy.c.node == sa.bindparam("b_node"),
            energy.c.began_s >= sa.bindparam("b_from"),
            energy.c.began_s < sa.bindparam("b_to"),
        ),
        Write.ACCOUNT: account.on_conflict_do_update(
            index_elements=["scope", "name"], set_={"limits": account.excluded.limits}
        ),
        Write.USAGE: used.on_conflict_do_update(
            index_elements=["month", "owner", "project", "function"],
            set_={name: used.excluded[name] for name in ("attempts", "cpu_s", "energy_j", "carbon_g")},
        ),
        Write.META: value.on_conflict_do_update(index_elements=["key"], set_={"value": value.excluded.value}),
        Write.SNAPSHOT_FORGET: sa.delete(snapshots).where(snapshots.c.sequence == sa.bindparam("b_sequence")),
        Write.SNAPSHOT_PIECES_FORGET: sa.delete(snapshot_pieces).where(
            snapshot_pieces.c.sequence == sa.bindparam("b_sequence")
        ),
        Write.JOURNAL_FORGET: sa.delete(journal).where(entry >= sa.bindparam("b_from"), entry < sa.bindparam("b_to")),
    }


def _window(insert: Any) -> sa.Executable:
    """A window of energy, unless one that is there holds its time: it came before, and may be merged with others."""
    given = {column.name: sa.bindparam(column.name, type_=column.type) for column in energy.columns}
    last = sa.select(energy.c.ended_s).where(energy.c.node == given["node"], energy.c.began_s <= given["began_s"])
    number = partial(sa.literal_column, type_=sa.Float())  # in the text: values are the driver's to bring
    held_s = last.order_by(energy.c.began_s.desc()).limit(number("1")).offset(number("0")).scalar_subquery()
    # A report that is sent again after a lost answer, or after its windows were merged, must not count twice.
    new = sa.select(*given.values()).where(sa.func.coalesce(held_s, number("-1.0")) < given["ended_s"])
    made: sa.Executable = insert(energy).from_select(list(given), new).on_conflict_do_nothing()
    return made


class DriverStatements:
    """The statements as the driver takes them, each compiled once: a commit of a few rows is spent on the disk then."""

    def __init__(self, database: sa.Engine) -> None:
        self._sqlite = database.dialect.name == "sqlite"
        self._dialect = sqlite.dialect(paramstyle="named") if self._sqlite else database.dialect
        self._statements = statements(database.dialect.name)
        self._compiled: dict[tuple[Write, int], str] = {}
        self._given = {change: update.given for change, update in UPDATES.items()}

    def made(self, changes: Mapping[Write, Sequence[Row]]) -> list[Statement]:
        """Statements and their rows for all changes, in the order of their ranks; the rows of one have the same
        columns."""
        # By rank, not as put: rows before the updates of them, a workflow before its tasks and their attempts.
        return [made for change in sorted(changes) for made in self._made(change, changes[change])]

    def _made(self, change: Write, rows: Sequence[Row]) -> Iterator[Statement]:
        many = self._sqlite and (change in INSERTS or (change in UPDATES and FROM_VALUES))
        if not many:
            yield self._one(change, rows[0]), rows
            return
        names = self._given.setdefault(change, tuple(rows[0]))
        done = 0
        for size in SIZES:
            while len(rows) - done >= size:
                values = [row[name] for row in rows[done : done + size] for name in names]
                yield self._many(change, names, size), [tuple(values)]
                done += size

    def _one(self, change: Write, row: Row) -> str:
        text = self._compiled.get((change, 1))
        if text is None:
            columns = None if change is Write.ENERGY else list(row)  # it selects its columns itself
            compiled = self._statements[change].compile(dialect=self._dialect, column_keys=columns)  # type: ignore[attr-defined]
            text = self._compiled[change, 1] = str(compiled)
        return text

    def _many(self, change: Write, names: tuple[str, ...], rows: int) -> str:
        text = self._compiled.get((change, rows))
        if text is None:
            update = UPDATES.get(change)
            text = update.text(rows) if update else _insert(INSERTS[change].name, names, rows)
            self._compiled[change, rows] = text
        return text


def _insert(table: str, names: tuple[str, ...], rows: int) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({columns}) VALUES {_places(len(names), rows)}"


def _places(columns: int, rows: int) -> str:
    one = f"({', '.join('?' * columns)})"
    return ", ".join([one] * rows)
