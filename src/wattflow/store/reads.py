"""Questions to the store. Each opens a connection of its own, so that readers never wait for the writer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from wattflow.store import schema

Found = dict[str, Any]
PIECE = 256
"""Rows that are deleted in one transaction."""
PAUSE_S = 0.005
JOULES = ("counted_j", "idle_j", "tasks_j", "unattributed_j")
NO_JOULES: Found = {"energy_j": None, "low_j": None, "high_j": None}


def rows(database: sa.Engine, query: sa.Select[Any]) -> list[Found]:
    """All rows of a query as dictionaries."""
    with database.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(query)]


def meta(database: sa.Engine) -> dict[str, str]:
    """All settings that the store keeps for the server."""
    return {row["key"]: row["value"] for row in rows(database, sa.select(schema.meta))}


def workflows(
    database: sa.Engine, owner: str | None = None, state: str | None = None, most: int = 1000, after: str | None = None
) -> list[Found]:
    """Workflows, the latest first, with how many of their tasks are in each state; those beyond ``after``, the id of
    one that was told last. Nothing is beyond one that is not there."""
    table = schema.workflows
    query = sa.select(table).order_by(table.c.submitted_s.desc(), table.c.id.desc()).limit(most)
    if after is not None:
        last = sa.select(table.c.submitted_s, table.c.id).where(table.c.id == after).subquery()
        earlier = (table.c.submitted_s == last.c.submitted_s) & (table.c.id < last.c.id)
        query = query.where(sa.exists().where((table.c.submitted_s < last.c.submitted_s) | earlier))
    if owner is not None:
        query = query.where(table.c.owner == owner)
    if state is not None:
        query = query.where(table.c.state == state)
    found = rows(database, query)
    ids = [row["id"] for row in found]
    counts, joules = task_counts(database, ids), energies(database, schema.tasks.c.workflow, ids)
    return [row | {"tasks": counts.get(row["id"], {}), **joules.get(row["id"], NO_JOULES)} for row in found]


def energies(database: sa.Engine, of: sa.Column[Any], ids: list[Any]) -> dict[Any, Found]:
    """Joules of workflows or of tasks, all their attempts together, with the band they lie in."""
    attempt = schema.attempts
    sums = [sa.func.sum(attempt.c[name]).label(name) for name in NO_JOULES]
    query = sa.select(of.label("of"), *sums).join(schema.tasks, schema.tasks.c.id == attempt.c.task)
    return {row.pop("of"): row for row in rows(database, query.where(of.in_(ids)).group_by(of))}


def task_counts(database: sa.Engine, workflow_ids: list[str]) -> dict[str, dict[str, int]]:
    """How many tasks of each workflow are in each state."""
    counted = sa.select(schema.tasks.c.workflow, schema.tasks.c.state, sa.func.count().label("count"))
    counted = counted.where(schema.tasks.c.workflow.in_(workflow_ids))
    counts: dict[str, dict[str, int]] = {}
    for row in rows(database, counted.group_by(schema.tasks.c.workflow, schema.tasks.c.state)):
        counts.setdefault(row["workflow"], {})[row["state"]] = row["count"]
    return counts


def workflow(database: sa.Engine, identity: str) -> Found | None:
    """One workflow."""
    found = rows(database, sa.select(schema.workflows).where(schema.workflows.c.id == identity))
    return found[0] if found else None


def tasks(
    database: sa.Engine, workflow_id: str, after: int = 0, most: int = 1_000_000, key: str | None = None
) -> list[Found]:
    """Tasks of a workflow in order of submission, or the one with a key."""
    table = schema.tasks
    query = sa.select(table).where((table.c.workflow == workflow_id) & (table.c.id > after))
    if key is not None:
        query = query.where(table.c.key == key)
    return rows(database, query.order_by(table.c.id).limit(most))


def with_joules(database: sa.Engine, found: list[Found]) -> list[Found]:
    """Tasks with their joules."""
    joules = energies(database, schema.tasks.c.id, [row["id"] for row in found])
    return [row | joules.get(row["id"], NO_JOULES) for row in found]


def payloads(database: sa.Engine) -> Iterator[Found]:
    """Read what every task was given and gave back, one after the other."""
    table = schema.tasks
    with database.connect() as connection:
        query = sa.select(table.c.spec, table.c.result)
        for row in connection.execution_options(stream_results=True).execute(query):
            yield dict(row._mapping)


def task(database: sa.Engine, identity: int) -> Found | None:
    """One task."""
    found = rows(database, sa.select(schema.tasks).where(schema.tasks.c.id == identity))
    return found[0] if found else None


def outcomes(database: sa.Engine, workflow_id: str, after: int, most: int) -> list[Found]:
    """Ended tasks of a workflow in the order in which they ended."""
    table = schema.tasks
    query = sa.select(table).where((table.c.workflow == workflow_id) & (table.c.sequence > after))
    return rows(database, query.order_by(table.c.sequence).limit(most))


def attempts(
    database: sa.Engine,
    workflow_id: str,
    key: str | None = None,
    *,
    specs: bool = False,
    after: int = 0,
    most: int | None = None,
) -> list[Found]:
    """Attempts of a workflow's tasks, or of one of them, by task and number, with the task's key (and its spec).

    Args:
        after: Only those of tasks beyond this one.
        most: So many at most, and of no task only some, unless it is the only one.
    """
    columns = [schema.tasks.c.key, *([schema.tasks.c.spec] if specs else [])]
    query = sa.select(schema.attempts, *columns).join(schema.tasks, schema.tasks.c.id == schema.attempts.c.task)
    query = query.where(schema.tasks.c.workflow == workflow_id)
    if key is not None:
        query = query.where(schema.tasks.c.key == key)
    if after:
        query = query.where(schema.attempts.c.task > after)
    found = rows(database, query.order_by(schema.attempts.c.task, schema.attempts.c.number).limit(most))
    # A page ends between tasks: a reader who asks on after the last task would never see the rest of its attempts.
    if most is None or len(found) < most or found[0]["task"] == found[-1]["task"]:
        return found
    return [row for row in found if row["task"] != found[-1]["task"]]


def open_attempts(database: sa.Engine) -> list[Found]:
    """Attempts that are placed and not over."""
    return rows(database, sa.select(schema.attempts).where(schema.attempts.c.outcome.is_(None)))


def nodes(database: sa.Engine) -> list[Found]:
    """All nodes ever announced."""
    return rows(database, sa.select(schema.nodes).order_by(schema.nodes.c.name))


def energy(database: sa.Engine, began_s: float, ended_s: float) -> list[Found]:
    """Windows of node energy that touch a span."""
    table = schema.energy
    return rows(database, sa.select(table).where((table.c.ended_s >= began_s) & (table.c.began_s <= ended_s)))


def last_window_s(database: sa.Engine, node: str) -> float:
    """When a node's latest window of energy began; minus infinity where it has none."""
    table = schema.energy
    with database.connect() as connection:
        found = connection.execute(sa.select(sa.func.max(table.c.began_s)).where(table.c.node == node)).scalar()
    return -math.inf if found is None else float(found)


def usage(database: sa.Engine, month: str, owner: str | None = None) -> list[Found]:
    """Read what was used in a month, by owner, project and function."""
    table = schema.usage
    query = sa.select(table).where(table.c.month == month)
    return rows(database, query if owner is None else query.where(table.c.owner == owner))


def audit(database: sa.Engine, after: int = 0, most: int = 1000, *, newest: bool = False) -> list[Found]:
    """Entries of the audit log beyond a number, oldest (or newest) first."""
    table = schema.audit
    order = table.c.sequence.desc() if newest else table.c.sequence
    return rows(database, sa.select(table).where(table.c.sequence > after).order_by(order).limit(most))


def journal(database: sa.Engine, after: int, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Entries of the journal beyond a sequence number (and up to another), in order."""
    table = schema.journal
    with database.connect() as connection:
        query = sa.select(table.c.sequence, table.c.entry).where(table.c.sequence > after).order_by(table.c.sequence)
        if up_to is not None:
            query = query.where(table.c.sequence <= up_to)
        for row in connection.execution_options(stream_results=True).execute(query):
            yield row[0], row[1]


def highest(database: sa.Engine) -> dict[str, int]:
    """The largest task id, sequence and journal entry so far."""
    with database.connect() as connection:
        return {
            "task": connection.execute(sa.select(sa.func.max(schema.tasks.c.id))).scalar() or 0,
            "sequence": connection.execute(sa.select(sa.func.max(schema.tasks.c.sequence))).scalar() or 0,
            "entry": connection.execute(sa.select(sa.func.max(schema.journal.c.sequence))).scalar() or 0,
            "workflows": connection.execute(sa.select(sa.func.count()).select_from(schema.workflows)).scalar() or 0,
        }


def first_entry(database: sa.Engine) -> int | None:
    """Number of the journal's oldest entry; None where it is empty."""
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.min(schema.journal.c.sequence))).scalar()


def expire(database: sa.Engine, before_s: float) -> Iterator[list[tuple[int, int]]]:
    """Delete workflows that ended before a time, with tasks and attempts; yields (task, number) of the attempts.

    A few tasks at a time, and a workflow after its last: whoever writes meanwhile waits for one piece at most. Where
    nothing is old nothing is written, and nobody waits.
    """
    w, t, a = schema.workflows, schema.tasks, schema.attempts
    old = sa.select(w.c.id).where(w.c.ended_s < before_s)
    while True:
        with database.connect() as connection:
            few = list(connection.execute(sa.select(t.c.id).where(t.c.workflow.in_(old)).limit(PIECE)).scalars())
            found = connection.execute(sa.select(a.c.task, a.c.number).where(a.c.task.in_(few)))
            gone = [(int(task), int(number)) for task, number in found]
            empty = connection.execute(old.limit(1)).first() is not None and not few
        if empty:
            with database.begin() as connection:
                connection.execute(sa.delete(w).where(w.c.ended_s < before_s))
        if not few:
            break
        with database.begin() as connection:
            connection.execute(sa.delete(a).where(a.c.task.in_(few)))
            connection.execute(sa.delete(t).where(t.c.id.in_(few)))
        yield gone
        time.sleep(PAUSE_S)
    for node in nodes(database):
        _expire_windows(database, node["name"], before_s)


def _expire_windows(database: sa.Engine, node: str, before_s: float) -> None:
    """Windows of energy that began before a time, found by their key: a look at all of them would take long."""
    table = schema.energy
    old = (table.c.node == node) & (table.c.began_s < before_s)
    while True:
        with database.connect() as connection:
            query = sa.select(table.c.began_s).where(old).order_by(table.c.began_s).limit(PIECE)
            few = list(connection.execute(query).scalars())
        if not few:
            return
        with database.begin() as connection:
            connection.execute(sa.delete(table).where((table.c.node == node) & (table.c.began_s <= few[-1])))
        time.sleep(PAUSE_S)


def gpu_uses(database: sa.Engine, most: int = 2000) -> list[Found]:
    """The latest attempts that ended well on a GPU and were read there, oldest first, with their tasks' payloads."""
    attempt, task_ = schema.attempts, schema.tasks
    columns = [
        attempt.c[name]
        for name in ("node", "device", "variant", "started_s", "ended_s", "gpu_duty", "gpu_beside", "gpu_samples")
    ]
    query = sa.select(*columns, task_.c.spec).join(task_, task_.c.id == attempt.c.task)
    query = query.where((attempt.c.outcome == "done") & attempt.c.gpu_duty.is_not(None))
    return rows(database, query.order_by(attempt.c.ended_s.desc()).limit(most))[::-1]


def last_event(database: sa.Engine) -> int:
    """Number of the last entry; 0 where there is none."""
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.max(schema.events.c.sequence))).scalar() or 0


def first_event(database: sa.Engine) -> int:
    """Number of the oldest entry that is kept; 0 where there is none."""
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.min(schema.events.c.sequence))).scalar() or 0


def events_after(database: sa.Engine, sequence: int, up_to: int, most: int = 2000) -> list[tuple[int, bytes]]:
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


def joules_by_step(database: sa.Engine, from_s: float, to_s: float, step_s: float) -> list[Found]:
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
