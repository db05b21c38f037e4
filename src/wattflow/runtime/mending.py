"""A journal made anew from the tables, where the old one has a gap or is damaged.

The tables know every task and what became of it; only what the engine had decided and not yet seen end is lost. So the
open tasks are given to a new engine, attempts under way count as lost with their nodes, and the calls that this took
are the new journal.
"""

from __future__ import annotations

import time

import msgspec
import sqlalchemy as sa

from wattflow.live import EDGE, NODE, SEAL, TASK, Power
from wattflow.runtime import messages as m
from wattflow.runtime.decider import Decider
from wattflow.store import journal, reads, schema
from wattflow.store.reads import Found

REASON = "the journal was made anew from the tables"
_TASK = msgspec.msgpack.Decoder(tuple[int, m.Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, m.Node])
_STATES = {"on": Power.ON, "asleep": Power.ASLEEP, "down": Power.DOWN, "waking": Power.ASLEEP}
OPEN = ("waiting", "running")


def mend(database: sa.Engine, policy: str) -> int:
    """Make the journal anew; returns how many tasks are open in it. Only while no server works on the store."""
    decider = Decider(policy)
    # First in the new journal, as in any: a replay must begin under the policy that the calls were made under.
    decider.began_with(policy)
    changes = [_node(decider, row) for row in reads.nodes(database)]
    count = 0
    # Oldest first, as they came: ties in the engine go by the order of arrival.
    for number, row in enumerate(reversed(reads.workflows(database, state="open", most=1_000_000)), start=1):
        made = _workflow(decider, database, row, number)
        count += len(made) - 1
        changes += made
    with database.begin() as connection:
        for change in changes:
            connection.execute(change)
        _restart(connection, m.pack(decider.entries))
    return count


def _node(decider: Decider, row: Found) -> sa.Update:
    _, spec = _NODE.decode(row["spec"])
    engine, table = decider.node(spec), schema.nodes
    decider.put(NODE, engine, state=int(_STATES.get(row["state"], Power.DOWN)))
    return sa.update(table).where(table.c.name == row["name"]).values(spec=m.pack((engine, spec)))


def _workflow(decider: Decider, database: sa.Engine, row: Found, number: int) -> list[sa.Update]:
    """Give a workflow's open tasks to the engine; the changes of the workflow and of each of these tasks."""
    about = msgspec.msgpack.decode(row["about"])
    about["engine"] = decider.workflow(number, about.get("deadline_s"), about.get("objective"))
    flows, tasks = schema.workflows, schema.tasks
    changes = [sa.update(flows).where(flows.c.id == row["id"]).values(about=m.pack(about))]
    engines: dict[str, int] = {}
    for found in reads.tasks(database, row["id"]):
        if found["state"] in OPEN:
            _, spec = _TASK.decode(found["spec"])
            engines[spec.key] = engine = _task(decider, about["engine"], found, spec)
            for parent in dict.fromkeys([*spec.parents, *spec.results]):
                # A parent that has ended is no edge: the engine would wait for an end that it never hears of.
                if parent in engines:
                    decider.put(EDGE, engines[parent], engine)
            values = {"spec": m.pack((engine, spec)), "state": "waiting"}
            changes.append(sa.update(tasks).where(tasks.c.id == found["id"]).values(values))
    if about["sealed"]:
        decider.put(SEAL, about["engine"])
    return changes


def _task(decider: Decider, workflow: int, found: Found, spec: m.Task) -> int:
    shape = decider.shape(list(spec.variants), spec.function_name)
    deadline_s = found["submitted_s"] + spec.deadline_s if spec.deadline_s else None
    engine = decider.put(
        TASK, shape, workflow=workflow, tag=found["id"], estimate_s=spec.estimate_s, deadline_s=deadline_s
    )
    assert engine is not None
    return engine


def _restart(connection: sa.Connection, entry: bytes) -> None:
    """One entry instead of the journal and its snapshots; what was under way is over."""
    for table in (schema.journal, schema.snapshots, schema.snapshot_pieces):
        connection.execute(sa.delete(table))
    # The old head would make the new journal look cut off at its end.
    connection.execute(sa.delete(schema.meta).where(schema.meta.c.key.in_([journal.HEAD, "snapshot"])))
    checksum = journal.chained(0, 1, entry)
    connection.execute(sa.insert(schema.journal), {"sequence": 1, "entry": entry, "checksum": checksum})
    connection.execute(sa.insert(schema.meta), journal.head(1, checksum))
    attempts = schema.attempts
    lost = {"outcome": "node_lost", "ended_s": time.time(), "reason": REASON}
    connection.execute(sa.update(attempts).where(attempts.c.outcome.is_(None)).values(lost))
