"""Answers of the process beside the server: run files, documents of runs, decisions of the past."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from wattflow.lab.show.run_columns import More, run_columns
from wattflow.model.run import Run
from wattflow.server.energy import forecast, read_zone
from wattflow.server.not_there import Missing
from wattflow.server.runs import RunRecord, document, run_bytes, run_of
from wattflow.store import reads, schema
from wattflow.store.reads import Found

MOST_ATTEMPTS = 1_000_000


def run_file(database: sa.Engine, folder: Path, workflow: str) -> bytes:
    """A finished workflow as a Run file."""
    return run_bytes(database, _workflow(database, workflow), read_zone(folder))


def wfformat(database: sa.Engine, folder: Path, workflow: str) -> bytes:
    """A finished workflow as WfFormat."""
    return document(database, _workflow(database, workflow)).encode()


def view(database: sa.Engine, folder: Path, workflow: str, now_s: float, packed: bool) -> bytes:
    """The document of one workflow, under way or over."""
    sequence = reads.last_event(database)  # before the rows are read: what is later may be in them, what is not is told
    row = _workflow(database, workflow)
    is_open = row["state"] == "open"
    record = RunRecord.of(database, row, now_s)
    about: dict[str, Any] = {
        "kind": "open" if is_open else "run", "id": row["id"], "title": row["name"], "state": row["state"],
        "owner": row["owner"], "origin_s": record.start_s, "sequence": sequence,
    }  # fmt: skip
    if is_open:
        # An open workflow is drawn up to now: without an end its bars would stop at the last finished task.
        about["end_ms"] = 1000.0 * (now_s - record.start_s)
    if not record.attempts:
        about["notes"] = ["no task of it has begun yet" if is_open else "no attempt of it ever ran"]
    run = run_of(database, record, read_zone(folder), whole=not record.attempts)
    return _shown(run, record, about, packed, _announced(database))


def live(
    database: sa.Engine, folder: Path, owner: str | None, last_s: float, present: dict[str, Any], packed: bool
) -> bytes:
    """The document of what runs, and of what ran in the last seconds, of one owner or of all."""
    sequence, now_s = reads.last_event(database), float(present["now_s"])
    record = _recent(database, owner, now_s - last_s, now_s)
    nodes = _announced(database)
    for name, curve in present.pop("learned", {}).items():
        nodes.setdefault(name, {})["learned"] = curve
    about = {
        "kind": "live", "id": "live", "title": "live", "workload": "live", "policy": present["policy"],
        "state": "open", "owner": owner, "origin_s": record.start_s, "start_ms": 0.0, "end_ms": 1000.0 * last_s,
        "sequence": sequence,
        "live": present | {"budgets": forecast(database, present.get("budgets", []), now_s)},
    }  # fmt: skip
    return _shown(run_of(database, record, read_zone(folder), whole=True), record, about, packed, nodes)


def explain(database: sa.Engine, folder: Path, task: int, number: int) -> bytes:
    """A decision of the past."""
    from wattflow.server import decision_replay  # the engine with it, which documents do without

    return msgspec.json.encode(decision_replay.explained(database, task, number))


def _announced(database: sa.Engine) -> dict[str, dict[str, Any]]:
    """When each node told its curves. Later changes of its state take the time's place: known of those that are on."""
    found = reads.nodes(database)
    return {node["name"]: {"announced_s": node["seen_s"] if node["state"] == "on" else None} for node in found}


def _shown(run: Run, record: RunRecord, about: dict[str, Any], packed: bool, nodes: dict[str, dict[str, Any]]) -> bytes:
    more = More(
        about=about,
        states=[task["state"] for task in record.tasks],
        numbers=[task["id"] for task in record.tasks],
        flows=[(row["id"], row["owner"], row["state"]) for row in record.flows],
        nodes=nodes,
    )
    data = run_columns(run, more)
    return gzip.compress(data, 6) if packed else data


def _recent(database: sa.Engine, owner: str | None, from_s: float, now_s: float) -> RunRecord:
    """Attempts that are under way, or ended after a time, with their tasks and workflows."""
    a, t, w = schema.attempts, schema.tasks, schema.workflows
    lately = a.c.outcome.is_(None) | (a.c.ended_s >= from_s)
    mine = lately if owner is None else lately & (w.c.owner == owner)
    joined = sa.join(sa.join(a, t, t.c.id == a.c.task), w, w.c.id == t.c.workflow)
    query = sa.select(a, t.c.key).select_from(joined).where(mine).order_by(a.c.task, a.c.number)
    attempts = reads.rows(database, query.limit(MOST_ATTEMPTS))
    known = sa.select(t).select_from(joined).where(mine).distinct().order_by(t.c.workflow, t.c.id)
    tasks = reads.rows(database, known)
    flows = reads.rows(database, sa.select(w).select_from(joined).where(mine).distinct().order_by(w.c.id))
    there = {task["id"] for task in tasks}  # between two questions another attempt may have begun
    return RunRecord(flows, tasks, [one for one in attempts if one["task"] in there], from_s, now_s)


def _workflow(database: sa.Engine, identity: str) -> Found:
    row = reads.workflow(database, identity)
    if row is None:
        raise Missing(f"no workflow {identity}")
    return row


ANSWERS: dict[str, Callable[..., bytes]] = {
    "run": run_file, "document": wfformat, "view": view, "live": live, "explain": explain,
}  # fmt: skip
