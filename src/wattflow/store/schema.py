"""The tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

VERSION = 3
"""Of the layout below. New tables and columns are added to older stores by `layout.complete`, which goes by what is
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
