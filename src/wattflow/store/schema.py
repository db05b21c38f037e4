"""The store's tables: made, brought up to date, told apart from an older or a newer layout.

There is one way from any older layout to this one: whatever table, column or index stands here and the store has not
is added. It goes by what is there and not by what a version should have, and it is one transaction with the new version
(SQLite's DDL, too, for the transaction is begun by hand); so a migration that was killed goes on with the next start,
also one that an older wattflow left half-way.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from wattflow.model.errors import InvalidInput, MissingExtra, WattflowError
from wattflow.store.writing import settings

PROCESS = f"wattflow-{uuid.uuid4().hex[:16]}"
"""This process, as a PostgreSQL server knows its connections."""


class StoreTrouble(WattflowError):
    """The store cannot be read or written: a full disk, a lost server, a damaged file."""


class _Connection(sqlite3.Connection):
    """One of a pool's, which ends with its engine; Python warns of those that end unclosed from 3.13 on."""

    def __del__(self) -> None:
        self.close()


def open_store(url: str | Path, *, upgrade: bool = False, known: str | None = None) -> sa.Engine:
    """Open or make a store.

    Args:
        url: A file for SQLite, or ``postgresql://user@host/name``.
        upgrade: Bring an older layout up to date; without it an older store is refused and left as it is.
        known: Identity of the store that must be there; then none is made, and another one is `schema.Gone`.
    """
    if known is not None and "://" not in str(url) and not Path(url).is_file():
        raise StoreMissing(str(url))
    engine = _engine(url)
    try:
        ready(engine, str(url), upgrade, known)
    except sa.exc.DBAPIError as error:
        raise StoreTrouble(f"{address_of(engine, hide_password=True)}: {told(error)}") from None
    return engine


def read_store(url: str | Path) -> sa.Engine:
    """A store that is there already, to read from beside the server that writes it; nothing is made or changed."""
    if "://" not in str(url) and not Path(url).is_file():
        raise InvalidInput(str(url), "no store is there; give the folder of a server, its store.db or postgresql://…")
    engine = _engine(url)
    sa.event.listen(engine, "connect", _only_reads)
    try:
        with engine.connect() as connection:
            version = version_of(connection)
    except sa.exc.DBAPIError as error:
        raise StoreTrouble(f"{address_of(engine, hide_password=True)}: {told(error)}") from None
    if version != VERSION:
        what = f"has the layout {version}, this version reads {VERSION}" if version else "holds no store"
        raise InvalidInput(address_of(engine, hide_password=True), what)
    return engine


def _only_reads(connection: Any, _: object) -> None:
    """Whatever is asked of this connection, it changes nothing."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA query_only=ON")
    else:
        connection.read_only = True


def _engine(url: str | Path) -> sa.Engine:
    text = str(url)
    if text.startswith(("postgres://", "postgresql://")):
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise MissingExtra("PostgreSQL needs psycopg: pip install 'wattflow[postgres]'") from None
        about = {"application_name": PROCESS}
        return sa.create_engine(
            "postgresql+psycopg://" + text.split("://", 1)[1], pool_pre_ping=True, connect_args=about
        )
    if "://" in text:
        raise InvalidInput(text, "a store is a file (SQLite) or postgresql://user@host/name")
    # Never as text: `?`, `%` and others mean something in a URL, and any may stand in a path.
    where = sa.URL.create("sqlite", database=str(Path(text).absolute()))
    engine = sa.create_engine(where, connect_args={"timeout": 10.0, "factory": _Connection})
    sa.event.listen(engine, "connect", lambda connection, _: settings(connection))
    return engine


def address_of(database: sa.Engine, hide_password: bool = False) -> str:
    """Return what `open_store` and `read_store` take for this store: a file's plain path, or the URL of a database."""
    if database.dialect.name == "sqlite":
        return str(database.url.database)
    return database.url.set(drivername="postgresql").render_as_string(hide_password=hide_password)


def told(error: Exception) -> str:
    """Find what the database itself says, without the statement and its values."""
    if not isinstance(error, sa.exc.DBAPIError):
        return str(error).strip()
    return str(error.orig).strip().splitlines()[0] if error.orig is not None else type(error).__name__


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
