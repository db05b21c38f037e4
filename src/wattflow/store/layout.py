"""The store's layout: made, brought up to date, told apart from an older or a newer one.

There is one way from any older layout to this one: whatever table, column or index `schema` has and the store has not
is added. It goes by what is there and not by what a version should have, and it is one transaction with the new version
(SQLite's DDL, too, for the transaction is begun by hand); so a migration that was killed goes on with the next start,
also one that an older wattflow left half-way.
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from wattflow.model.errors import InvalidInput
from wattflow.store import schema

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
        found = connection.execute(sa.select(schema.meta.c.value).where(schema.meta.c.key == IDENTITY)).scalar()
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
        connection.execute(sa.delete(schema.meta).where(schema.meta.c.key == "version"))
        connection.execute(sa.insert(schema.meta), {"key": "version", "value": str(schema.VERSION)})
        if connection.execute(sa.select(schema.meta).where(schema.meta.c.key == IDENTITY)).first() is None:
            connection.execute(sa.insert(schema.meta), {"key": IDENTITY, "value": uuid.uuid4().hex})


def _is_ready(version: int | None, url: str, upgrade: bool) -> bool:
    if version is not None and version > schema.VERSION:
        raise InvalidInput(
            url, f"this store was written by a newer wattflow (layout {version}, this one knows {schema.VERSION})"
        )
    if version is not None and version < schema.VERSION and not upgrade:
        raise InvalidInput(
            url,
            f"this store has the older layout {version}, now it is {schema.VERSION}; nothing was changed. "
            "Copy it away, then `wattflow up --upgrade` brings it up to date",
        )
    return version == schema.VERSION


def version_of(connection: sa.Connection) -> int | None:
    """The layout's version; None where there is no layout, or one whose making was never finished."""
    if not sa.inspect(connection).has_table("meta"):
        return None
    found = connection.execute(sa.select(schema.meta.c.value).where(schema.meta.c.key == "version")).scalar()
    return int(found) if found is not None else None


def complete(connection: sa.Connection) -> None:
    """Add every table, column and index of `schema` that is not there; what is there stays as it is."""
    schema.metadata.create_all(connection)
    here = sa.inspect(connection)
    for table in schema.metadata.sorted_tables:
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
