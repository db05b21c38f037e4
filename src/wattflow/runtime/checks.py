"""What a submission must keep before any of it is taken."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from wattflow.model.errors import InvalidInput, Problem
from wattflow.runtime import messages as m
from wattflow.runtime.decider import POLICY_OF
from wattflow.runtime.messages import Task
from wattflow.runtime.records import WorkflowRecord


def problems(new: Sequence[Task], before: Container[str]) -> Iterable[Problem]:
    """What is wrong with new tasks; ``before`` holds the keys that are there (a large workflow's: not copied)."""
    known: set[str] = set()
    for task in new:
        where = f"task {task.key}"
        if task.key in known:
            yield Problem(where, "the key appears twice")
        for key in {k for k in (*task.parents, *task.results) if k not in known and k not in before}:
            yield Problem(where, f"waits for {key!r}, which is not in the workflow before it")
        if (task.command is None) == (task.function is None):
            yield Problem(where, "needs either a command or a function")
        if task.function is not None and (task.python is None or task.call is None):
            yield Problem(where, "a function needs its call and the Python version that made it")
        if task.command is not None and not task.command:
            yield Problem(where, "the command is empty")
        for variant in task.variants:
            if variant.gpu > 1 and variant.gpu != int(variant.gpu):
                yield Problem(
                    f"{where}, variant {variant.name}", f"gpu is a share up to 1 or whole GPUs, not {variant.gpu}"
                )
            if variant.gpu and (variant.fpga or variant.fpgas):
                yield Problem(
                    f"{where}, variant {variant.name}", "one variant runs on a GPU or on an FPGA, not on both"
                )
        known.add(task.key)


def check_submission(
    submission: m.Submission,
    new: Sequence[m.Task],
    workflow: WorkflowRecord | None,
    owner: str,
    others_policy: str | None,
) -> None:
    """Refuse what cannot be right before any of it is taken.

    Args:
        new: The tasks that are not known yet.
        others_policy: What other open workflows run under: an engine has one policy at a time.
    """
    name = f"workflow {submission.workflow}"
    if workflow is not None and workflow.owner != owner:
        raise InvalidInput(name, "belongs to somebody else")
    if workflow is not None and workflow.sealed and new:
        raise InvalidInput(name, "is sealed: it takes no more tasks")
    found = list(problems(new, workflow.keys if workflow is not None else ()))
    if found:
        raise InvalidInput(name, found)
    wanted = POLICY_OF.get(submission.objective or "")
    if wanted is not None and others_policy is not None and wanted != others_policy:
        what = f"objective {submission.objective!r} needs the policy {wanted!r}"
        why = f"other open workflows run under {others_policy!r}"
        raise InvalidInput(name, f"{what}, but {why}; wait for them, or leave the objective out")
