"""A restart: the engine from its snapshot and journal, the records from the tables; and lost results made again.

A result whose bytes were lost or damaged is made again by the task that made it. The task goes to the engine once more,
in a workflow of its own there, for its own may be sealed; what it gives back is its result from then on, the same bytes
or not. Whoever wanted the old bytes is refused meanwhile, and that is not held against it.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.live import SEAL, TASK
from wattflow.policy import registry
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import Limits, month_of
from wattflow.runtime.capping import META
from wattflow.runtime.clock import Clock
from wattflow.runtime.compaction import rebuilt
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.ledger import Chain, Feed
from wattflow.runtime.records import AttemptRecord, TaskRecord, WorkflowRecord, judge
from wattflow.runtime.service import Service
from wattflow.store import epochs, reads, schema
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
    service.ledger.feed.next = reads.last_event(database) + 1
    _fill(service, database)
    # A snapshot may have taken the whole journal with it: its number counts, too.
    service.ledger.next_entry = max(service.ledger.next_entry, replayed.sequence + 1)
    service.ledger.checksum = replayed.checksum
    still_open = [w for w in service.workflows.values() if w.state == "open"]
    settings = reads.meta(database)
    service.learning.levels.restore(settings)
    if service.capping.restore(settings.get(META), policy, bool(still_open)):
        # Its first look takes up the caps of now; at their end open work goes on by what it was submitted for.
        if still_open:
            decider.serve({w.objective for w in still_open})
    elif decider.policy != policy and not still_open:
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
            judge(
                task,
                m.Ended(fence=attempt["fence"], outcome=attempt["outcome"], reason=attempt["reason"]),
                attempt["node"],
            )
        service.tasks[task.id] = task
        service.actions.warming.seen(spec, workflow.owner)
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


MOST = 3
"""How often a task is run again for its result's sake: where it does not last, its disk is the problem."""
OPEN = ("waiting", "running")


async def remake(service: Service, name: str) -> str | None:
    """Have an object made again that a task of an open workflow gave back; says which one, None where none did."""
    task = next((one for one in service.tasks.values() if one.result is not None and one.result.object == name), None)
    if task is None or task.workflow.state != "open":
        return None
    # Asked by each child that misses it: the first begins the remake, the others find it under way.
    if task.state == "done" and task.remade < MOST:
        log.warning("the result of task %s/%s is lost: it runs again", task.workflow.id, task.spec.key)
        _again(service, task)
        await service.stored()
    if task.state not in OPEN:
        return None
    for other in service.tasks.values():
        if task.id in other.parents and other.state in OPEN:
            # They were refused for want of these bytes, which is not their doing.
            other.refusals = 0
    return f"{task.workflow.id}/{task.spec.key}"


def _again(service: Service, task: TaskRecord) -> None:
    spec, decider = task.spec, service.decider
    workflow = decider.workflow(service.next_workflow, None, task.workflow.objective)
    service.next_workflow += 1
    shape = decider.shape(list(spec.variants), spec.function_name)
    engine = decider.put(TASK, shape, workflow=workflow, tag=task.id,
                         estimate_s=spec.estimate_s or service.learning.estimates.runtime_s(spec.function_name),
                         deadline_s=None)  # fmt: skip
    assert engine is not None
    # Sealed at once: a workflow of one task that nobody closes would stay in the engine for ever.
    decider.put(SEAL, workflow)
    task.engine, task.state, task.ready_s = engine, "waiting", service.now()
    task.remade += 1
    task.workflow.open += 1
    service.ledger.task_engine(task)
    service.ledger.task_state(task)
