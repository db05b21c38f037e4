"""Decisions of the past, replayed from the store: what was chosen is the cheapest again; too old ones say so."""

from __future__ import annotations

import json
import zlib
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.live import FINISHED, NODE, TASK, Power
from wattflow.runtime import messages as m
from wattflow.runtime.decider import JournaledEngine
from wattflow.server import decision_replay
from wattflow.server.not_there import Missing, NotKept
from wattflow.server.reader_answers import ANSWERS
from wattflow.store import journal, schema
from wattflow.store.schema import open_store

SPEC = m.Task(key="t", name="t", function_name="f", command=["true"])
TURNS, SNAPSHOT_AT = 60, 30


def store(folder: Path) -> sa.Engine:
    """Sixty turns, one task placed in each, a snapshot in the middle."""
    database = open_store(folder / "store.db")
    decider, running, seal = JournaledEngine("least-energy"), list[int](), 0
    decider.began_with("least-energy")
    for i in range(3):
        told = m.Node(name=f"n{i}", cpus=4, memory_bytes=1 << 34, busy=[0, 4], watts=[50 + 9 * i, 100 + 20 * i])
        decider.put(NODE, decider.node(told), state=int(Power.ON))
    flow, shape = decider.workflow(1, None), decider.shape(list(SPEC.variants), "f")
    with database.begin() as connection:
        for number in range(1, TURNS + 1):
            task = decider.put(TASK, shape, workflow=flow, tag=number, estimate_s=5.0)
            if len(running) > 6:
                decider.put(FINISHED, running.pop(0))
            (placed,) = decider.step(float(number)).placements
            running.append(placed.attempt)
            entry = m.pack(decider.entries)
            decider.entries.clear()
            seal = journal.chained(seal, number, entry)
            names = {identity: name for name, identity in decider.engine.nodes.items()}
            for table, row in (
                (schema.journal, {"sequence": number, "entry": entry, "checksum": seal}),
                (schema.tasks, {"id": number, "workflow": "w", "key": f"t{number}", "name": "t", "attempts": 1,
                                "spec": m.pack((task, SPEC)), "submitted_s": float(number), "state": "running"}),
                (schema.attempts, {"task": number, "number": 1, "fence": number, "node": names[placed.node],
                                   "device": -1, "variant": 0, "ready_s": float(number), "placed_s": float(number)}),
            ):  # fmt: skip
                connection.execute(sa.insert(table), row)
            if number == SNAPSHOT_AT:
                _keep(connection, decider, folder, number, seal)
        connection.execute(sa.insert(schema.meta), journal.head(TURNS, seal))
    return database


def _keep(connection: sa.Connection, decider: JournaledEngine, folder: Path, number: int, seal: int) -> None:
    decider.save(folder / "engine")
    packed = zlib.compress((folder / "engine").read_bytes())
    connection.execute(sa.insert(schema.snapshots), {
        "sequence": number, "policy": "least-energy", "time_s": float(number), "checksum": seal,
        "digest": sha256(packed).hexdigest(), "size_bytes": len(packed), "journal_bytes": 0})  # fmt: skip
    connection.execute(sa.insert(schema.snapshot_pieces), {"sequence": number, "piece": 0, "data": packed})


def test_what_was_chosen_is_the_cheapest_again(tmp_path: Path) -> None:
    database = store(tmp_path)
    for task in (1, 12, SNAPSHOT_AT, SNAPSHOT_AT + 1, TURNS):
        told = json.loads(ANSWERS["explain"](database, tmp_path, task=task, number=0))
        first = told["candidates"][0]
        assert first["chosen"] and first["node"] == told["chosen"]["node"], (task, told)
        assert told["at_s"] == float(task) and told["policy"] == "least-energy" and told["when"] == "past"


def test_a_decision_before_all_that_is_kept_is_too_old(tmp_path: Path) -> None:
    database = store(tmp_path)
    with database.begin() as connection:
        connection.execute(sa.delete(schema.journal).where(schema.journal.c.sequence <= SNAPSHOT_AT))
    with pytest.raises(NotKept, match="too old"):
        decision_replay.explained(database, 5, 0)
    assert decision_replay.explained(database, SNAPSHOT_AT + 5, 1)["candidates"]


def test_what_was_never_placed_is_told(tmp_path: Path) -> None:
    database = store(tmp_path)
    with pytest.raises(Missing, match="no task 999"):
        decision_replay.explained(database, 999, 0)
    with pytest.raises(Missing, match="attempt 3 of it was never placed"):
        decision_replay.explained(database, 5, 3)
