"""Reading the ring of committed events, the states of nodes, and sums of energy over windows."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from wattflow.store import schema
from wattflow.store.reads import Found, rows

JOULES = ("counted_j", "idle_j", "tasks_j", "unattributed_j")


def last(database: sa.Engine) -> int:
    """Number of the last entry; 0 where there is none."""
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.max(schema.events.c.sequence))).scalar() or 0


def first(database: sa.Engine) -> int:
    """Number of the oldest entry that is kept; 0 where there is none."""
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.min(schema.events.c.sequence))).scalar() or 0


def after(database: sa.Engine, sequence: int, up_to: int, most: int = 2000) -> list[tuple[int, bytes]]:
    """Entries beyond a number and up to another, in order."""
    table = schema.events.c
    query = sa.select(table.sequence, table.entry).where(table.sequence > sequence, table.sequence <= up_to)
    with database.connect() as connection:
        found = connection.execute(query.order_by(table.sequence).limit(most))
        return [(int(number), bytes(entry)) for number, entry in found]


def node_states(database: sa.Engine, until_s: float) -> list[Found]:
    """States of nodes up to a time, by node and time."""
    table = schema.node_states
    return rows(database, sa.select(table).where(table.c.at_s <= until_s).order_by(table.c.node, table.c.at_s))


def joules(database: sa.Engine, from_s: float, to_s: float, step_s: float) -> list[Found]:
    """Sums of the windows that lie in a span, by node and step: each window belongs to the step of its middle."""
    table = schema.energy.c
    middle = (table.began_s + table.ended_s) / 2
    share = (middle - from_s) / step_s  # not negative: SQLite's cast cuts it off, PostgreSQL's would round
    step = sa.cast(share if database.dialect.name == "sqlite" else sa.func.floor(share), sa.Integer).label("step")
    sums: list[Any] = [sa.func.sum(table[name]).label(name) for name in JOULES]
    query = sa.select(table.node, step, *sums).where(middle >= from_s, middle < to_s, _no_longer(step_s))
    return rows(database, query.group_by(table.node, step).order_by(table.node, step))


def long_windows(database: sa.Engine, from_s: float, to_s: float, step_s: float) -> list[Found]:
    """Windows longer than a step: each belongs to several."""
    table = schema.energy
    touches = (table.c.ended_s > from_s) & (table.c.began_s < to_s)
    return rows(database, sa.select(table).where(touches, ~_no_longer(step_s)))


def _no_longer(step_s: float) -> sa.ColumnElement[bool]:
    # A second's windows are a little longer or shorter than it; up to twice a step counts as one.
    return schema.energy.c.ended_s - schema.energy.c.began_s <= 2 * step_s
