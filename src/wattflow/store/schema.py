"""The tables, and every statement that changes them.

Statements have a rank: within one group commit they run in this order, each over all its rows in the order in which
they were
given. A row is inserted once and changed later by one statement, so ranks cannot put a change before its row.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

VERSION = 2
"""Of the layout below. A change brings a step in `migrations` and raises it."""

metadata = sa.MetaData()
Row = Mapping[str, object]

meta = sa.Table(
    "meta", metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)  # fmt: skip

workflows = sa.Table(
    "workflows", metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("about", sa.LargeBinary, nullable=False),
    sa.Column("submitted_s", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("ended_s", sa.Float),
)  # fmt: skip

tasks = sa.Table(
    "tasks", metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("workflow", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("submitted_s", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("ended_s", sa.Float),
    sa.Column("sequence", sa.BigInteger),
    sa.Column("result", sa.LargeBinary),
    sa.Column("reason", sa.Text),
    sa.Index("tasks_of_workflow", "workflow", "key", unique=True),
)  # fmt: skip

attempts = sa.Table(
    "attempts", metadata,
    sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("device", sa.Integer, nullable=False),
    sa.Column("variant", sa.Integer, nullable=False),
    sa.Column("ready_s", sa.Float, nullable=False),
    sa.Column("placed_s", sa.Float, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("started_s", sa.Float),
    sa.Column("ended_s", sa.Float),
    sa.Column("cold_s", sa.Float),
    sa.Column("cpu_s", sa.Float),
    sa.Column("peak_bytes", sa.BigInteger),
    sa.Column("reason", sa.Text),
    sa.Column("energy_j", sa.Float),
    sa.Column("low_j", sa.Float),
    sa.Column("high_j", sa.Float),
    sa.Column("marginal_j", sa.Float),
    sa.Column("provenance", sa.Text),
    sa.Column("gpu_duty", sa.Float),
    sa.Column("gpu_beside", sa.Float),
    sa.Column("gpu_samples", sa.Integer),
    sa.Index("attempts_on_gpus", "ended_s", sqlite_where=sa.text("gpu_duty IS NOT NULL"),
             postgresql_where=sa.text("gpu_duty IS NOT NULL")),
)  # fmt: skip

nodes = sa.Table(
    "nodes", metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("seen_s", sa.Float, nullable=False),
)  # fmt: skip

energy = sa.Table(
    "energy", metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("began_s", sa.Float, primary_key=True),
    sa.Column("ended_s", sa.Float, nullable=False),
    sa.Column("counted_j", sa.Float, nullable=False),
    sa.Column("idle_j", sa.Float, nullable=False),
    sa.Column("tasks_j", sa.Float, nullable=False),
    sa.Column("unattributed_j", sa.Float, nullable=False),
    sa.Column("provenance", sa.Text, nullable=False),
)  # fmt: skip

journal = sa.Table(
    "journal", metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("entry", sa.LargeBinary, nullable=False),
)  # fmt: skip


class Change(enum.IntEnum):
    """A statement, by its rank."""

    WORKFLOW = 0
    TASK = 1
    ATTEMPT = 2
    NODE = 3
    ATTEMPT_STARTED = 4
    ATTEMPT_ENDED = 5
    ATTEMPT_ENERGY = 6
    TASK_STATE = 7
    WORKFLOW_STATE = 8
    ENERGY = 9
    JOURNAL = 10
    META = 11


def statements(dialect: str) -> dict[Change, sa.Executable]:
    """The statements in a database's dialect (``sqlite`` or ``postgresql``)."""
    insert: Any = sqlite.insert
    if dialect != "sqlite":
        from sqlalchemy.dialects import postgresql  # a tenth of a second that most servers never need

        insert = postgresql.insert
    one_attempt = (attempts.c.task == sa.bindparam("b_task")) & (attempts.c.number == sa.bindparam("b_number"))
    node = insert(nodes)
    value = insert(meta)
    window = insert(energy)
    return {
        Change.WORKFLOW: sa.insert(workflows),
        Change.TASK: sa.insert(tasks),
        Change.ATTEMPT: sa.insert(attempts),
        Change.NODE: node.on_conflict_do_update(
            index_elements=["name"],
            set_={"spec": node.excluded.spec, "state": node.excluded.state, "seen_s": node.excluded.seen_s},
        ),
        Change.ATTEMPT_STARTED: _update(attempts, one_attempt, "started_s", "cold_s"),
        Change.ATTEMPT_ENDED: _update(attempts, one_attempt, "outcome", "started_s", "ended_s", "cold_s", "cpu_s",
                                      "peak_bytes", "reason", "gpu_duty", "gpu_beside", "gpu_samples"),
        Change.ATTEMPT_ENERGY: _update(attempts, one_attempt, "energy_j", "low_j", "high_j", "marginal_j",
        "provenance"),
        Change.TASK_STATE: _update(tasks, tasks.c.id == sa.bindparam("b_id"), "state", "attempts", "ended_s",
        "sequence",
                                   "result", "reason"),
        Change.WORKFLOW_STATE: _update(workflows, workflows.c.id == sa.bindparam("b_id"), "state", "ended_s", "about"),
        Change.ENERGY: window.on_conflict_do_nothing(index_elements=["node", "began_s"]),
        Change.JOURNAL: sa.insert(journal),
        Change.META: value.on_conflict_do_update(index_elements=["key"], set_={"value": value.excluded.value}),
    }  # fmt: skip


class DriverStatements:
    """The statements as the driver takes them, each compiled once: a commit of a few rows is spent on the disk then."""

    def __init__(self, database: sa.Engine) -> None:
        named = database.dialect.name == "sqlite"
        self._dialect = sqlite.dialect(paramstyle="named") if named else database.dialect
        self._statements = statements(database.dialect.name)
        self._compiled: dict[Change, str] = {}

    def sql(self, change: Change, row: Row) -> str:
        """The text of a change; all rows of one change have the same columns."""
        text = self._compiled.get(change)
        if text is None:
            text = str(self._statements[change].compile(dialect=self._dialect, column_keys=list(row)))  # type: ignore[attr-defined]
            self._compiled[change] = text
        return text


def _update(table: sa.Table, where: sa.ColumnElement[bool], *columns: str) -> sa.Update:
    return sa.update(table).where(where).values({column: sa.bindparam(column) for column in columns})
