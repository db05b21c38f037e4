"""A workflow document (WfFormat) as a submission: commands, edges, needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.workflow import Task as ModelTask
from wattflow.model.workflow import Workflow
from wattflow.runtime import messages as m

BATCH = 500


def submissions(workflow: Workflow, objective: m.Objective | None = None, retries: int = 0) -> Iterator[m.Submission]:
    """The document in batches, parents first, sealed with the last."""
    missing = [
        Problem(f"task {task.id}", "has no command.program to run") for task in workflow.tasks if not task.command
    ]
    if missing:
        raise InvalidInput(workflow.name, missing)
    identity = f"{workflow.name[:100].replace('/', '-')}-{uuid.uuid4().hex[:12]}"
    ordered = _parents_first(workflow)
    for start in range(0, len(ordered), BATCH):
        tasks = [_task(task, retries) for task in ordered[start : start + BATCH]]
        yield m.Submission(workflow=identity, name=workflow.name[:200], tasks=tasks, seal=start + BATCH >= len(ordered),
                           objective=objective, deadline_s=workflow.deadline_s)  # fmt: skip


def _task(task: ModelTask, retries: int) -> m.Task:
    variants = [m.Variant(name=variant.name, cpus=max(variant.cores, 1e-3), memory_bytes=variant.memory_bytes,
                          gpu=variant.devices * variant.device_share if variant.device == "gpu" else 0.0,
                          gpu_memory_bytes=variant.device_memory_bytes)
                for variant in task.variants]  # fmt: skip
    estimate_s = task.estimate_s or task.runtime_s
    return m.Task(
        key=task.id, name=task.name, function_name=task.function or task.name, command=[task.command or "",
        *task.arguments],
        parents=list(task.parents), variants=variants, retries=retries,
        estimate_s=estimate_s if estimate_s and estimate_s > 0 else None,
    )  # fmt: skip


def _parents_first(workflow: Workflow) -> list[ModelTask]:
    by_id = {task.id: task for task in workflow.tasks}
    waiting = {task.id: len(task.parents) for task in workflow.tasks}
    children: dict[str, list[str]] = {}
    for task in workflow.tasks:
        for parent in task.parents:
            children.setdefault(parent, []).append(task.id)
    ready = [identity for identity, count in waiting.items() if count == 0]
    ordered = []
    for identity in ready:
        ordered.append(by_id[identity])
        for child in children.get(identity, ()):
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if len(ordered) < len(by_id):
        raise InvalidInput(workflow.name, "its tasks wait for each other in a circle")
    return ordered
