"""Opening a store: a SQLite file in WAL mode by default, PostgreSQL by URL. The layout's version is checked first."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wattflow.model.errors import InvalidInput, MissingExtra, WattflowError
from wattflow.store import schema
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
        raise schema.StoreMissing(str(url))
    engine = _engine(url)
    try:
        schema.ready(engine, str(url), upgrade, known)
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
            version = schema.version_of(connection)
    except sa.exc.DBAPIError as error:
        raise StoreTrouble(f"{address_of(engine, hide_password=True)}: {told(error)}") from None
    if version != schema.VERSION:
        what = f"has the layout {version}, this version reads {schema.VERSION}" if version else "holds no store"
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
