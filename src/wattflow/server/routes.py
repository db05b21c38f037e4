"""Routes of users and operators."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wattflow import __version__
from wattflow.model.interfaces import VERSIONS
from wattflow.runtime.capping import plain_policy
from wattflow.runtime.messages import Outcomes, Submission, Task, Variant
from wattflow.runtime.records import why_over
from wattflow.runtime.recovery import outcome_of
from wattflow.server.bodies import answer, answer_rows, schema, typed, typed_submission
from wattflow.server.context import allowed, context_of, owned, owned_task
from wattflow.store import reads
from wattflow.store.reads import Found

router = APIRouter(prefix="/v1", tags=["workflows"])
WAIT_S = 30.0
_SPEC = msgspec.msgpack.Decoder(tuple[int, Task])


class _Way(msgspec.Struct, frozen=True):
    """Of a variant, its name."""

    name: str = Variant().name


class _Ways(msgspec.Struct, frozen=True):
    """Of a task, its variants."""

    variants: list[_Way] = msgspec.field(default_factory=lambda: [_Way()])


_WAYS = msgspec.msgpack.Decoder(tuple[int, _Ways])
Wait = Annotated[float, Query(ge=0, le=WAIT_S)]
Sequence = Annotated[int, Query(ge=0, le=2**62)]
Page = Annotated[int, Query(ge=1, le=10_000)]


class PolicyChange(msgspec.Struct, frozen=True):
    """Which policy decides from now on."""

    policy: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]  # may name a file of weights


def shield_figures(known: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the shield has kept, saved and cost by now; None without one, or before its first answer."""
    return known["summary"] | {"processor_s": known["processor_s"]} if known.get("summary") else None


@router.get("/status")
async def status(request: Request) -> Response:
    """Versions, counts, and whether the store takes changes."""
    allowed(request, "user", "agent", "viewer")
    context = context_of(request)
    service = context.service
    written = service.writer.figures
    return answer(request, {
        "wattflow": __version__, "interfaces": dict(VERSIONS),
        "policy": plain_policy(service.decider.policy), "driver": service.driver.name, "now_s": service.now(),
        "cap": service.capping.told(),
        "nodes": sum(node.state != "down" for node in service.nodes), "running": len(service.attempts),
        "waiting": sum(flow.open for flow in service.workflows.values()) - len(service.attempts),
        "trouble": service.writer.message, "set_aside": dict(service.aside.counts),
        "epoch": service.fences.epoch, "servers": context.servers, "shield": shield_figures(service.decider.shield),
        "commits": written.commits,
        "commit_p50_s": written.commit_s.quantile(0.5), "commit_p99_s": written.commit_s.quantile(0.99),
        "commit_collecting_p50_s": written.collecting_s.quantile(0.5),
        "commit_collecting_p99_s": written.collecting_s.quantile(0.99),
        "commit_statements_p50_s": written.statements_s.quantile(0.5),
        "commit_statements_p99_s": written.statements_s.quantile(0.99),
        "commit_disk_p50_s": written.disk_s.quantile(0.5), "commit_disk_p99_s": written.disk_s.quantile(0.99),
        "turn_p99_s": service.turns.took_s.quantile(0.99), "turn_cpu_p99_s": service.turns.took_cpu_s.quantile(0.99),
        "loop_late_max_s": context.pulse.late_s.longest_s, "loop_held_max_s": context.pulse.held_s.longest_s,
        "loop_held_p999_s": context.pulse.held_s.quantile(0.999),
    })  # fmt: skip


@router.post("/submissions", openapi_extra=schema(Submission))
async def submit(request: Request) -> Response:
    """Tasks for a workflow, new or open."""
    who = allowed(request, "user")
    context = context_of(request)
    submission = await typed_submission(request)
    # Refused at the door: an answer would wait for a commit that does not come.
    if context.service.writer.message is not None:
        raise HTTPException(507, f"the store does not take changes: {context.service.writer.message}")
    if submission.workflow not in context.service.workflows:
        # It may be over and out of memory; opened again under the same id its tasks would be somebody's twice.
        known = await asyncio.to_thread(reads.workflow, context.database, submission.workflow)
        if known is not None:
            raise HTTPException(409, f"workflow {submission.workflow} exists and is over")
    return answer(request, await context.service.submit(submission, who.name, who.project), 201)


@router.get("/workflows")
async def workflows(
    request: Request, most: Annotated[int, Query(ge=1, le=10_000)] = 100, after: str | None = None
) -> Response:
    """Workflows, the latest first; those beyond the one with an id, so many at most."""
    who = allowed(request, "user")
    owner = None if who.sees_all else who.name
    found = await asyncio.to_thread(reads.workflows, context_of(request).database, owner, None, most, after)
    return await answer_rows(request, found, _workflow)


@router.get("/workflows/{workflow}")
async def one_workflow(request: Request, workflow: str) -> Response:
    """One workflow."""
    row = await owned(request, workflow)
    counts = await asyncio.to_thread(reads.task_counts, context_of(request).database, [workflow])
    return answer(request, _workflow(row | {"tasks": counts.get(workflow, {})}))


@router.get("/workflows/{workflow}/tasks")
async def tasks(
    request: Request, workflow: str, after: Sequence = 0, most: Page = 1000, key: str | None = None
) -> Response:
    """Its tasks in order of submission, beyond one and so many at most; or the one with a key."""
    await owned(request, workflow)
    database = context_of(request).database
    found = await asyncio.to_thread(
        lambda: reads.with_joules(database, reads.tasks(database, workflow, after, most, key))
    )
    return await answer_rows(request, found, _task)


@router.get("/workflows/{workflow}/attempts")
async def attempts(
    request: Request, workflow: str, key: str | None = None, after: Sequence = 0, most: Page = 1000
) -> Response:
    """Attempts of its tasks beyond one, so many at most, or of one task: where, when, how it ended, joules."""
    await owned(request, workflow)
    database = context_of(request).database
    asked = partial(reads.attempts, database, workflow, key, specs=True, after=after, most=most)
    found = await asyncio.to_thread(asked)
    return await answer_rows(request, found, _attempt)


@router.get("/workflows/{workflow}/outcomes")
async def outcomes(request: Request, workflow: str, after: Sequence = 0, wait_s: Wait = 0.0) -> Response:
    """Ends of its tasks after a sequence number; waits for one."""
    context = context_of(request)
    record = context.service.workflows.get(workflow)
    if record is None:
        await owned(request, workflow)
        found = await asyncio.to_thread(reads.outcomes, context.database, workflow, after, 1000)
        ends = [outcome_of(row) for row in found]
        return answer(request, Outcomes(ends, ends[-1].sequence if ends else after, 0))
    who = allowed(request, "user")
    # As if it were not there: whether somebody else has such a workflow is nobody's business.
    if not who.sees_all and record.owner != who.name:
        raise HTTPException(404, f"no workflow {workflow}")
    return answer(request, await context.service.outcomes(workflow, after, wait_s))


@router.post("/workflows/{workflow}/cancel")
async def cancel(request: Request, workflow: str, key: str | None = None, waiting: bool = False) -> Response:
    """Cancel a workflow, or one task of it; with ``waiting`` only what has not started."""
    await owned(request, workflow)
    service = context_of(request).service
    record = service.workflows.get(workflow)
    if record is None:
        return answer(request, {"cancelled": 0})
    if key is not None and key not in record.keys:
        raise HTTPException(404, f"no task {key!r} in workflow {workflow}")
    service.ledger.audit(service.now(), request.state.identity.name, "cancel", workflow=workflow, key=key)
    return answer(request, {"cancelled": await service.cancel(workflow, key, only_waiting=waiting)})


@router.get("/workflows/{workflow}/run")
async def run_file(request: Request, workflow: str) -> Response:
    """The finished workflow as a Run file (parquet), like a simulated one."""
    return await _made_of(request, workflow, "run", "application/vnd.apache.parquet")


@router.get("/workflows/{workflow}/document")
async def document(request: Request, workflow: str) -> Response:
    """The finished workflow as WfFormat, with the runtime and the joules of each task."""
    return await _made_of(request, workflow, "document", "application/json")


async def _made_of(request: Request, workflow: str, what: str, media: str) -> Response:
    if (await owned(request, workflow))["state"] == "open":
        raise HTTPException(409, f"workflow {workflow} is not over yet")
    data = await context_of(request).dashboard.documents.ask(what, workflow=workflow)
    return Response(data, media_type=media)


@router.get("/tasks/{task}")
async def one_task(request: Request, task: int) -> Response:
    """One task with its attempts."""
    row = await owned_task(request, task)
    database = context_of(request).database
    found = await asyncio.to_thread(reads.attempts, database, row["workflow"], row["key"], specs=True)
    return answer(request, _task(row) | {"attempts": [_attempt(one) for one in found]})


@router.get("/tasks/{task}/why")
async def why(request: Request, task: int) -> Response:
    """Why it is not running."""
    row = await owned_task(request, task)
    service = context_of(request).service
    record = service.tasks.get(task)
    reason = service.why(record) if record is not None else why_over(row["state"], row["reason"])
    return answer(request, {"task": task, "state": record.state if record is not None else row["state"], "why": reason})


@router.get("/tasks/{task}/log")
async def task_log(
    request: Request, task: int, number: Annotated[int, Query(ge=0, le=10_000)] = 0, offset: Sequence = 0
) -> Response:
    """Output of an attempt (0: the latest) from a place on. Headers tell the attempt and whether it is over."""
    row = await owned_task(request, task)
    context = context_of(request)
    number = number or max(1, row["attempts"])
    data = await asyncio.wrap_future(context.service.logs.get(task, number, offset))
    over = row["state"] not in ("waiting", "running") or number < row["attempts"]
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"wattflow-attempt": str(number), "wattflow-over": str(int(over))},
    )


@router.get("/nodes")
async def nodes(request: Request) -> Response:
    """All nodes: what they offer, their state, what they look like."""
    allowed(request, "user", "agent", "viewer")
    service = context_of(request).service
    running = service.attempts.by_node()
    return answer(request, [
        {"name": node.spec.name, "state": node.state, "cpus": node.spec.cpus, "memory_bytes": node.spec.memory_bytes,
         "devices": node.spec.devices, "running": running[node.spec.name], "load": node.load,
         "interference": service.learning.gpus.interference(node.spec.name), "warm": sorted(node.warm)}
        for node in service.nodes
    ])  # fmt: skip


@router.get("/functions")
async def functions(request: Request) -> Response:
    """Tell what was learned of each function: its runtime on a node of speed 1, its cold start, its duty on GPUs."""
    allowed(request, "user")
    service = context_of(request).service
    learned = service.learning
    return answer(request, [
        {"name": name, "runtime_s": learned.estimates.runtime_s(name), "cold_start_s": about.cold_start_s,
         "gpu_duty": learned.gpus.duties_of(name)}
        for name, about in service.decider.engine.functions.items()
    ])  # fmt: skip


@router.post("/policy", openapi_extra=schema(PolicyChange))
async def policy(request: Request) -> Response:
    """Another policy from now on."""
    who, service = allowed(request, "operator"), context_of(request).service
    change = await typed(request, PolicyChange)
    await service.use(change.policy)
    service.ledger.audit(service.now(), who.name, "policy", policy=change.policy)
    await service.stored()
    return answer(request, {"policy": change.policy})


@router.post("/shutdown")
async def shutdown(request: Request) -> Response:
    """End the server; what is open goes on when it is started again."""
    who, context = allowed(request, "operator"), context_of(request)
    context.service.ledger.audit(context.service.now(), who.name, "shutdown")
    context.shut_down()
    return answer(request, {"stopping": True}, 202)


def _workflow(row: Found) -> dict[str, Any]:
    about = msgspec.msgpack.decode(row["about"])
    shown = {key: row[key] for key in ("id", "name", "owner", "state", "submitted_s", "ended_s")}
    extra = {key: about.get(key) for key in ("objective", "policy", "deadline_s", "energy_budget_j", "sealed")}
    return shown | extra | {"tasks": row.get("tasks", {})} | _joules(row)


def _joules(row: Found) -> dict[str, float | None]:
    return {name: row[name] for name in reads.NO_JOULES if name in row}


def _task(row: Found) -> dict[str, Any]:
    _, spec = _SPEC.decode(row["spec"])
    shown = {
        key: row[key]
        for key in ("id", "workflow", "key", "name", "state", "attempts", "submitted_s", "ended_s", "reason")
    }
    about = {"function": spec.function_name, "command": spec.command, "variants": spec.variants}
    return shown | about | _joules(row)


def _attempt(row: Found) -> dict[str, Any]:
    _, task = _WAYS.decode(row["spec"])
    shown = {key: value for key, value in row.items() if key != "spec"}
    return shown | {"variant_name": task.variants[row["variant"]].name}
