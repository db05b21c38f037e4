"""A check of a store that names all faults at once (file, journal, snapshots, objects, tasks), and a journal made anew.

Where the old journal has a gap or is damaged, the tables still know every task and what became of it; only what the
engine had decided and not yet seen end is lost. So the open tasks are given to a new engine, attempts under way count
as lost with their nodes, and the calls that this took are the new journal.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.live import EDGE, NODE, SEAL, TASK, Power
from wattflow.live.protocol import LiveError
from wattflow.runtime import messages as m
from wattflow.runtime.compaction import rebuilt
from wattflow.runtime.decider import JournaledEngine
from wattflow.store import journal, reads, schema
from wattflow.store.objects import ObjectDamaged, Objects
from wattflow.store.reads import Found

REASON = "the journal was made anew from the tables"
_TASK = msgspec.msgpack.Decoder(tuple[int, m.Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, m.Node])
_STATES = {"on": Power.ON, "asleep": Power.ASLEEP, "down": Power.DOWN, "waking": Power.ASLEEP}
OPEN = ("waiting", "running")


def mend(database: sa.Engine, policy: str) -> int:
    """Make the journal anew; returns how many tasks are open in it. Only while no server works on the store."""
    decider = JournaledEngine(policy)
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


def _node(decider: JournaledEngine, row: Found) -> sa.Update:
    _, spec = _NODE.decode(row["spec"])
    engine, table = decider.node(spec), schema.nodes
    decider.put(NODE, engine, state=int(_STATES.get(row["state"], Power.DOWN)))
    return sa.update(table).where(table.c.name == row["name"]).values(spec=m.pack((engine, spec)))


def _workflow(decider: JournaledEngine, database: sa.Engine, row: Found, number: int) -> list[sa.Update]:
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


def _task(decider: JournaledEngine, workflow: int, found: Found, spec: m.Task) -> int:
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


MOST = 20
"""Of one kind that are named one by one."""
_BLOB = msgspec.msgpack.Decoder(m.Blob)


def problems(database: sa.Engine, objects: Objects, folder: Path) -> Iterator[str]:
    """Each as a sentence; a store without any gives none. Nothing is changed, and a server may be running."""
    yield from _file(database)
    yield from _segments(database)
    yield from _engine(database, folder)
    yield from _objects(database, objects)


def _file(database: sa.Engine) -> Iterator[str]:
    if database.dialect.name != "sqlite":
        return
    with database.connect() as connection:
        for (said,) in connection.exec_driver_sql("PRAGMA quick_check"):
            if said != "ok":
                yield f"the store's file is damaged: {said}"


def _segments(database: sa.Engine) -> Iterator[str]:
    """Every snapshot that is kept and the entries up to the next, those that only explain the past, too."""
    known = journal.snapshots(database)
    first = reads.first_entry(database)
    starts = [(one.sequence, one.checksum) for one in known]
    # Entries before the first snapshot are checked from their own beginning; there is no checksum to begin with.
    starts = starts if first is None or (known and first > known[0].sequence) else [(first - 1, 0), *starts]
    for one in known:
        try:
            journal.snapshot_bytes(database, one)
        except journal.Damaged as error:
            yield str(error)
    for (start, checksum), after in zip(starts, [*starts[1:], None], strict=True):
        try:
            for _ in journal.entries(database, start, checksum, after[0] if after is not None else None):
                pass
        except journal.Damaged as error:
            yield str(error)


def _engine(database: sa.Engine, folder: Path) -> Iterator[str]:
    """Return whether the engine that a start would make knows the tasks that are open."""
    with tempfile.TemporaryDirectory() as place:
        there = folder if folder.is_dir() else Path(place)
        try:
            decider, _ = rebuilt(database, there, "fifo")
        except (journal.Damaged, OSError) as error:
            if isinstance(error, OSError):
                yield f"the engine's snapshot cannot be read: {error}"
            return
    table = schema.tasks
    query = sa.select(table.c.workflow, table.c.key, table.c.spec).where(table.c.state.in_(("waiting", "running")))
    unknown = [f"{row['workflow']}/{row['key']}" for row in reads.rows(database, query) if _unknown(decider, row)]
    if unknown:
        yield f"the engine does not know {_some(unknown)}: it would wait for ever; `wattflow store check --mend`"


def _unknown(decider: JournaledEngine, row: reads.Found) -> bool:
    engine, _ = _TASK.decode(row["spec"])
    try:
        decider.why(engine)
    except LiveError:
        return True
    return False


def _objects(database: sa.Engine, objects: Objects) -> Iterator[str]:
    """Objects that tasks name and that are not here, or not as they were put; each with a task that names it."""
    bad: dict[str, list[str]] = {"missing": [], "damaged": []}
    seen: set[str] = set()
    query = sa.select(*(schema.tasks.c[name] for name in ("workflow", "key", "spec", "result")))
    for row in reads.rows(database, query):
        _, spec = _TASK.decode(row["spec"])
        result = _BLOB.decode(row["result"]).object if row["result"] else None
        call = spec.call.object if spec.call is not None else None
        # Each object once: thousands of tasks share a function, and reading it verifies its hash.
        for name in {spec.function, call, result, *(variant.function for variant in spec.variants)} - {None, *seen}:
            assert name is not None
            seen.add(name)
            if (kind := _trouble(objects, name)) is not None:
                bad[kind].append(f"{name[:12]}… of {row['workflow']}/{row['key']}")
    for kind, names in bad.items():
        if names:
            yield f"objects are {kind}: {_some(names)}"


def _trouble(objects: Objects, name: str) -> str | None:
    try:
        objects.get(name)
    except ObjectDamaged:
        return "damaged"
    except KeyError:
        return "missing"
    return None


def _some(names: list[str]) -> str:
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
