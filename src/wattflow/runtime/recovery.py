"""A restart: the engine from its snapshot and journal, the records from the tables."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.policy import registry
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import Limits
from wattflow.runtime.audit import Chain
from wattflow.runtime.clock import Clock
from wattflow.runtime.compaction import rebuilt
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.feed import Feed
from wattflow.runtime.records import AttemptRecord, TaskRecord, WorkflowRecord
from wattflow.runtime.service import Service
from wattflow.runtime.usage import month_of
from wattflow.runtime.verdicts import judge
from wattflow.store import epochs, events, reads, schema
from wattflow.store.epochs import Fences
from wattflow.store.reads import Found
from wattflow.store.writer import Writer

log = logging.getLogger(__name__)
_TASK = msgspec.msgpack.Decoder(tuple[int, m.Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, m.Node])
_LIMITS = msgspec.msgpack.Decoder(Limits)
_BLOB = msgspec.msgpack.Decoder(m.Blob)


def restore(database: sa.Engine, writer: Writer, driver: Driver, folder: Path, policy: str) -> Service:
    """Go on where the last service stopped, or begin.

    It begins an epoch: from then on no server of an earlier one commits, so what is read is all there is.
    """
    # First of all: from here on nobody else commits, so what is read below cannot change under it.
    epoch = writer.epoch = epochs.begin(database)
    decider, replayed = rebuilt(database, folder, policy)
    if registry.load(policy).steer is not None:
        from wattflow.live import shielding  # the simulator with it, which others do without

        decider.rehearsing = shielding.adviser(policy, shielding.Remembered(**decider.shield))
    if replayed.sequence == 0:
        decider.began_with(policy)
    decider.room()
    service = Service(decider, writer, driver, folder / "logs", Clock(replayed.time_s))
    service.fences = Fences(epoch)
    service.ledger.feed = Feed(service.tasks, service.workflows)
    service.ledger.feed.next = events.last(database) + 1
    _fill(service, database)
    # A snapshot may have taken the whole journal with it: its number counts, too.
    service.ledger.next_entry = max(service.ledger.next_entry, replayed.sequence + 1)
    service.ledger.checksum = replayed.checksum
    still_open = [w for w in service.workflows.values() if w.state == "open"]
    if decider.policy != policy and not still_open:
        decider.use(policy)
    elif not any(w.objective for w in still_open):
        decider.keep()  # work that is open under one policy ends under it, whatever this start was told
    return service


def _fill(service: Service, database: sa.Engine) -> None:
    """Records of everything open."""
    most = reads.highest(database)
    service.next_task, service.sequence, service.ledger.next_entry = (
        most["task"] + 1,
        most["sequence"],
        most["entry"] + 1,
    )
    # Tags only tell workflows apart in the engine; they need not be those of before.
    service.next_workflow = most["workflows"] + 1
    for row in reads.nodes(database):
        engine, spec = _NODE.decode(row["spec"])
        service.nodes.add(spec, engine, row["state"])
        service.joules.plausible.seen_until(spec.name, reads.last_window_s(database, spec.name))
    _accounts(service, database)
    for row in reads.workflows(database, state="open", most=1_000_000):
        _workflow(service, database, row)
    for row in reads.open_attempts(database):
        _attempt(service, row)
    for row in reads.gpu_uses(database):
        _gpu_use(service, row)


def _accounts(service: Service, database: sa.Engine) -> None:
    """The month's books, the limits and the end of the audit log."""
    service.ledger.usage.restore(reads.usage(database, month_of(service.now())))
    for row in reads.rows(database, sa.select(schema.accounts)):
        service.accounts.limits[row["scope"], row["name"]] = _LIMITS.decode(row["limits"])
    last = reads.audit(database, newest=True, most=1)
    if last:
        service.ledger.chain = Chain(last[0]["sequence"], last[0]["hash"])


def _gpu_use(service: Service, row: Found) -> None:
    """Learn again what was learned on GPUs before, from the ends that taught it."""
    node = service.nodes.get(row["node"])
    _, spec = _TASK.decode(row["spec"])
    if node is not None:
        use = m.GpuUse(row["gpu_duty"], row["gpu_beside"] or 0.0, row["gpu_samples"] or 0)
        runtime_s = row["ended_s"] - row["started_s"]
        service.learning.on_gpu(spec, row["variant"], node.spec, row["device"], runtime_s, use)


def _workflow(service: Service, database: sa.Engine, row: Found) -> None:
    about = msgspec.msgpack.decode(row["about"])
    workflow = WorkflowRecord(
        row["id"], row["name"], row["owner"], about["engine"], about, row["submitted_s"], sealed=about["sealed"]
    )
    service.workflows[workflow.id] = workflow
    before: dict[int, list[Found]] = {}
    for attempt in reads.attempts(database, workflow.id):
        workflow.spent_j += attempt["energy_j"] or 0.0
        if attempt["outcome"] not in (None, "done"):
            before.setdefault(attempt["task"], []).append(attempt)
    for found in reads.tasks(database, workflow.id):
        engine, spec = _TASK.decode(found["spec"])
        task = TaskRecord(found["id"], workflow, spec, engine, found["submitted_s"], found["submitted_s"],
                          tuple(workflow.keys[key] for key in spec.results), found["state"], found["attempts"],
                          result=_BLOB.decode(found["result"]) if found["result"] else None,
                          reason=found["reason"])  # fmt: skip
        for attempt in before.get(task.id, ()):
            judge(task, m.Ended(fence=attempt["fence"], outcome=attempt["outcome"], reason=attempt["reason"]),
                  attempt["node"])  # fmt: skip
        service.tasks[task.id] = task
        service.warming.seen(spec, workflow.owner)
        workflow.keys[spec.key] = task.id
        if task.state in ("waiting", "running"):
            workflow.open += 1
            service.gate.opened(task)
    workflow.outcomes = [outcome_of(found) for found in reads.outcomes(database, workflow.id, 0, 1_000_000)]


def wanted_objects(database: sa.Engine) -> set[str]:
    """Names of all objects that a task in the store has to do with."""
    wanted: set[str | None] = set()
    for row in reads.payloads(database):
        _, spec = _TASK.decode(row["spec"])
        wanted.add(spec.function)
        wanted.update(variant.function for variant in spec.variants)
        wanted.add(spec.call.object if spec.call is not None else None)
        wanted.add(_BLOB.decode(row["result"]).object if row["result"] else None)
    return {name for name in wanted if name is not None}


def outcome_of(row: Found) -> m.Outcome:
    """A stored end as a client sees it."""
    result = _BLOB.decode(row["result"]) if row["result"] else None
    return m.Outcome(key=row["key"], task=row["id"], state=row["state"], sequence=row["sequence"], result=result,
                     reason=row["reason"] if row["state"] != "done" else None)  # fmt: skip


def _attempt(service: Service, row: Found) -> None:
    task = service.tasks.get(row["task"])
    if task is None:
        return
    lease = m.Lease(
        fence=row["fence"], task=task.id, number=row["number"], node=row["node"], workflow=task.workflow.id,
        spec=task.spec, variant=row["variant"], device=row["device"], share=task.spec.variants[row["variant"]].gpu,
        inputs=[service.tasks[parent].result or m.Blob() for parent in task.parents], owner=task.workflow.owner,
    )  # fmt: skip
    engine = row["fence"] if row["engine"] is None else row["engine"]  # 0.1.0 had one number for both
    record = AttemptRecord(row["fence"], engine, task, row["number"], row["node"], row["placed_s"], lease,
                           row["started_s"], row["cold_s"] or 0.0)  # fmt: skip
    service.attempts.add(record)
    service.gate.began(record)
