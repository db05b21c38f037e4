"""The store's tables: made, brought up to date, told apart from an older or a newer layout.

There is one way from any older layout to this one: whatever table, column or index stands here and the store has not
is added. It goes by what is there and not by what a version should have, and it is one transaction with the new version
(SQLite's DDL, too, for the transaction is begun by hand); so a migration that was killed goes on with the next start,
also one that an older wattflow left half-way.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from wattflow.model.errors import InvalidInput

VERSION = 3
"""Of the layout below. New tables and columns are added to older stores by `complete`, which goes by what is
there: a new column is nullable or has a ``server_default``. A released layout's successor has the next number."""

metadata = sa.MetaData()
Row = Mapping[str, object]
Columns = Mapping[str, Any]
TEXT, BYTES, FLOAT, INT, BIG = sa.Text, sa.LargeBinary, sa.Float, sa.Integer, sa.BigInteger


def _table(name: str, keys: Columns, needed: Columns, others: Columns, *indexes: sa.Index) -> sa.Table:
    """Make a table; columns that are ``needed`` are never null, the ``others`` may be."""
    columns: list[sa.Column[Any]] = [
        sa.Column(k, kind, primary_key=True, autoincrement=False) for k, kind in keys.items()
    ]
    columns += [sa.Column(column, kind, nullable=False) for column, kind in needed.items()]
    columns += [sa.Column(column, kind) for column, kind in others.items()]
    return sa.Table(name, metadata, *columns, *indexes)


meta = _table("meta", {"key": TEXT}, {"value": TEXT}, {})
workflows = _table(
    "workflows",
    {"id": TEXT},
    {"name": TEXT, "owner": TEXT, "about": BYTES, "submitted_s": FLOAT, "state": TEXT},
    {"ended_s": FLOAT},
)
tasks = _table(
    "tasks",
    {"id": BIG},
    {"workflow": TEXT, "key": TEXT, "name": TEXT, "spec": BYTES, "submitted_s": FLOAT, "state": TEXT, "attempts": INT},
    {"ended_s": FLOAT, "sequence": BIG, "result": BYTES, "reason": TEXT},
    sa.Index("tasks_of_workflow", "workflow", "key", unique=True),
)
_ON_GPUS = sa.text("gpu_duty IS NOT NULL")
attempts = _table(
    "attempts",
    {"task": BIG, "number": INT},
    {"fence": BIG, "node": TEXT, "device": INT, "variant": INT, "ready_s": FLOAT, "placed_s": FLOAT},
    {"outcome": TEXT, "started_s": FLOAT, "ended_s": FLOAT, "cold_s": FLOAT, "cpu_s": FLOAT, "peak_bytes": BIG,
     "reason": TEXT, "energy_j": FLOAT, "low_j": FLOAT, "high_j": FLOAT, "marginal_j": FLOAT, "provenance": TEXT,
     "gpu_duty": FLOAT, "gpu_beside": FLOAT, "gpu_samples": INT, "reserved_j": FLOAT, "engine": BIG},
    sa.Index("attempts_on_gpus", "ended_s", sqlite_where=_ON_GPUS, postgresql_where=_ON_GPUS),
)  # fmt: skip
nodes = _table("nodes", {"name": TEXT}, {"spec": BYTES, "state": TEXT, "seen_s": FLOAT}, {})
energy = _table(
    "energy",
    {"node": TEXT, "began_s": FLOAT},
    {"ended_s": FLOAT, "counted_j": FLOAT, "idle_j": FLOAT, "tasks_j": FLOAT, "unattributed_j": FLOAT,
     "provenance": TEXT},
    {},
)  # fmt: skip
journal = _table("journal", {"sequence": BIG}, {"entry": BYTES}, {"checksum": BIG})
snapshots = _table(
    "snapshots",
    {"sequence": BIG},
    {"policy": TEXT, "time_s": FLOAT, "checksum": BIG, "digest": TEXT, "size_bytes": BIG, "journal_bytes": BIG},
    {},
)
snapshot_pieces = _table("snapshot_pieces", {"sequence": BIG, "piece": INT}, {"data": BYTES}, {})
events = _table(
    "events", {"slot": INT}, {"sequence": BIG, "entry": BYTES}, {}, sa.Index("ix_events_sequence", "sequence")
)
"""A ring of what was committed, for those who watch (`runtime.ledger`)."""
node_states = _table("node_states", {"node": TEXT, "at_s": FLOAT}, {"state": TEXT}, {})
"""When a node was on, asleep, waking or down."""
sessions = _table("sessions", {"digest": TEXT}, {"token": TEXT, "expires_s": FLOAT}, {})
"""Browsers that are logged in: the SHA-256 of the cookie, and the id of the token that it stands for."""
servers = _table("servers", {"url": TEXT}, {"process": TEXT, "active": INT, "count": BIG, "seen_s": FLOAT}, {})
tokens = _table(
    "tokens",
    {"digest": TEXT},
    {"id": TEXT, "name": TEXT, "role": TEXT, "created_s": FLOAT},
    {"project": TEXT, "node": TEXT, "expires_s": FLOAT, "revoked_s": FLOAT},
)
"""Of a token only its SHA-256 is kept; ``id`` is the beginning of that, by which people name it."""
audit = _table(
    "audit", {"sequence": BIG}, {"at_s": FLOAT, "who": TEXT, "action": TEXT, "about": TEXT, "hash": TEXT}, {}
)
"""Appended to, never changed; each hash covers the one before it."""
accounts = _table("accounts", {"scope": TEXT, "name": TEXT}, {"limits": BYTES}, {})
"""Limits of a user or a project (``runtime.accounts.Limits``)."""
usage = _table(
    "usage",
    {"month": TEXT, "owner": TEXT, "project": TEXT, "function": TEXT},
    {"attempts": BIG, "cpu_s": FLOAT, "energy_j": FLOAT},
    {"carbon_g": FLOAT},
)
"""Use of a month (UTC, ``2026-11``). It stays when the workflows themselves are forgotten."""


IDENTITY = "identity"
"""Key in ``meta`` of a name that no other store has, and that copies of it keep."""
ONE_AT_A_TIME = 0x77617474
"""PostgreSQL's advisory lock under which a layout is made or changed."""


class StoreMissing(Exception):
    """The store that was here is not."""


def ready(engine: sa.Engine, url: str, upgrade: bool, known: str | None = None) -> None:
    """Make the layout where there is none, bring an older one up to date where that is allowed.

    Raises:
        Gone: The store whose identity is known is not here.
    """
    _ready(engine, url, upgrade, known is None)
    with engine.connect() as connection:
        found = connection.execute(sa.select(meta.c.value).where(meta.c.key == IDENTITY)).scalar()
    if known is not None and found != known:
        raise StoreMissing(url)


def _ready(engine: sa.Engine, url: str, upgrade: bool, make: bool) -> None:
    with engine.connect() as connection:
        version = version_of(connection)
        if _is_ready(version, url, upgrade):
            return
        if version is None and not make:
            raise StoreMissing(url)
    with engine.begin() as connection:
        alone(connection)
        if _is_ready(version_of(connection), url, upgrade):
            return  # somebody else made it meanwhile
        complete(connection)
        connection.execute(sa.delete(meta).where(meta.c.key == "version"))
        connection.execute(sa.insert(meta), {"key": "version", "value": str(VERSION)})
        if connection.execute(sa.select(meta).where(meta.c.key == IDENTITY)).first() is None:
            connection.execute(sa.insert(meta), {"key": IDENTITY, "value": uuid.uuid4().hex})


def _is_ready(version: int | None, url: str, upgrade: bool) -> bool:
    if version is not None and version > VERSION:
        raise InvalidInput(
            url, f"this store was written by a newer wattflow (layout {version}, this one knows {VERSION})"
        )
    if version is not None and version < VERSION and not upgrade:
        raise InvalidInput(
            url,
            f"this store has the older layout {version}, now it is {VERSION}; nothing was changed. "
            "Copy it away, then `wattflow up --upgrade` brings it up to date",
        )
    return version == VERSION


def version_of(connection: sa.Connection) -> int | None:
    """The layout's version; None where there is no layout, or one whose making was never finished."""
    if not sa.inspect(connection).has_table("meta"):
        return None
    found = connection.execute(sa.select(meta.c.value).where(meta.c.key == "version")).scalar()
    return int(found) if found is not None else None


def complete(connection: sa.Connection) -> None:
    """Add every table, column and index of `schema` that is not there; what is there stays as it is."""
    metadata.create_all(connection)
    here = sa.inspect(connection)
    for table in metadata.sorted_tables:
        known = {column["name"] for column in here.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                _add(connection, table, column)
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _add(connection: sa.Connection, table: sa.Table, column: sa.Column[object]) -> None:
    """Add a column. Rows are there already, so it must be nullable or bring a ``server_default``."""
    if not column.nullable and column.server_default is None:
        raise TypeError(f"{table.name}.{column.name} is new: it must be nullable or have a server_default")
    described = CreateColumn(column).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {described}")


def alone(connection: sa.Connection) -> None:
    """Nobody else looks at the layout or changes it until this transaction ends."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
