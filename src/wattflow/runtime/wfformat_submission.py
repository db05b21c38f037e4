"""A workflow document (WfFormat) as a submission: commands, edges, needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.workflow import Task as ModelTask
from wattflow.model.workflow import Transfers, Workflow
from wattflow.runtime import facts
from wattflow.runtime import messages as m

BATCH = 500
KEY = re.compile(r"[^/\x00-\x1f]+\Z")
"""Ids that a server takes as keys (`messages.Key`)."""


def submissions(workflow: Workflow, objective: m.Objective | None = None, retries: int = 0) -> Iterator[m.Submission]:
    """Cut a document into batches, parents first, sealed with the last; refuse by name what a server cannot honour."""
    if problems := [Problem(f"task {task.id}", what) for task in workflow.tasks for what in _refused(task)]:
        raise InvalidInput(workflow.name, problems)
    name = m.as_name(workflow.name, "workflow")
    identity = m.workflow_id(name)
    ordered, transfers = _parents_first(workflow), Transfers(workflow)
    functions = [facts.function_message(function) for function in workflow.functions]
    for start in range(0, len(ordered), BATCH):
        tasks = [_task(task, retries, *transfers.read(task)) for task in ordered[start : start + BATCH]]
        yield m.Submission(workflow=identity, name=name, tasks=tasks, seal=start + BATCH >= len(ordered),
                           objective=objective, deadline_s=workflow.deadline_s,
                           functions=[] if start else functions)  # fmt: skip


def _refused(task: ModelTask) -> Iterator[str]:
    if not task.command:
        yield "has no command.program to run"
    if not KEY.match(task.id) or len(task.id) > 200:
        yield "its id holds a / or a control character, or is longer than 200: rename it in the document"
    yield from facts.unsaid(task)


def _task(task: ModelTask, retries: int, input_bytes: int, handed_bytes: dict[str, int]) -> m.Task:
    return m.Task(
        key=task.id, name=task.name[:200] or task.id, function_name=(task.function or task.name)[:200] or task.id,
        command=[task.command or "", *task.arguments], parents=list(task.parents), retries=retries,
        variants=[facts.variant_message(variant) for variant in task.variants],
        estimate_s=task.runtime_s if task.estimate_s is None else task.estimate_s,
        deadline_s=task.deadline_s, submit_s=task.submit_s, input_bytes=input_bytes,
        handed_bytes={key: size for key, size in handed_bytes.items() if size},
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
