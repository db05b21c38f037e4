"""The tables."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

VERSION = 3
"""Of the layout below. New tables and columns are added to older stores by `layout.complete`, which goes by what is
there: a new column is nullable or has a ``server_default``. A released layout's successor has the next number."""

metadata = sa.MetaData()
Row = Mapping[str, object]

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

workflows = sa.Table(
    "workflows",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("about", sa.LargeBinary, nullable=False),
    sa.Column("submitted_s", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("ended_s", sa.Float),
)

tasks = sa.Table(
    "tasks",
    metadata,
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
)

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
    sa.Column("reserved_j", sa.Float),
    sa.Column("engine", sa.BigInteger),
    sa.Index("attempts_on_gpus", "ended_s", sqlite_where=sa.text("gpu_duty IS NOT NULL"),
             postgresql_where=sa.text("gpu_duty IS NOT NULL")),
)  # fmt: skip

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("seen_s", sa.Float, nullable=False),
)

energy = sa.Table(
    "energy",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("began_s", sa.Float, primary_key=True),
    sa.Column("ended_s", sa.Float, nullable=False),
    sa.Column("counted_j", sa.Float, nullable=False),
    sa.Column("idle_j", sa.Float, nullable=False),
    sa.Column("tasks_j", sa.Float, nullable=False),
    sa.Column("unattributed_j", sa.Float, nullable=False),
    sa.Column("provenance", sa.Text, nullable=False),
)

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("entry", sa.LargeBinary, nullable=False),
    sa.Column("checksum", sa.BigInteger),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("time_s", sa.Float, nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("journal_bytes", sa.BigInteger, nullable=False),
)

snapshot_pieces = sa.Table(
    "snapshot_pieces",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("piece", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("sequence", sa.BigInteger, nullable=False, index=True),
    sa.Column("entry", sa.LargeBinary, nullable=False),
)
"""A ring of what was committed, for those who watch (`runtime.feed`)."""

node_states = sa.Table(
    "node_states",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("at_s", sa.Float, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
)
"""When a node was on, asleep, waking or down."""

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("expires_s", sa.Float, nullable=False),
)
"""Browsers that are logged in: the SHA-256 of the cookie, and the id of the token that it stands for."""

servers = sa.Table(
    "servers",
    metadata,
    sa.Column("url", sa.Text, primary_key=True),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("active", sa.Integer, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("seen_s", sa.Float, nullable=False),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("project", sa.Text),
    sa.Column("node", sa.Text),
    sa.Column("created_s", sa.Float, nullable=False),
    sa.Column("expires_s", sa.Float),
    sa.Column("revoked_s", sa.Float),
)
"""Of a token only its SHA-256 is kept; ``id`` is the beginning of that, by which people name it."""

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_s", sa.Float, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("about", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
"""Appended to, never changed; each hash covers the one before it."""

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("limits", sa.LargeBinary, nullable=False),
)
"""Limits of a user or a project (``runtime.accounts.Limits``)."""

usage = sa.Table(
    "usage",
    metadata,
    sa.Column("month", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("function", sa.Text, primary_key=True),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("cpu_s", sa.Float, nullable=False),
    sa.Column("energy_j", sa.Float, nullable=False),
    sa.Column("carbon_g", sa.Float),
)
"""Use of a month (UTC, ``2026-11``). It stays when the workflows themselves are forgotten."""
