"""Rules that a submission must keep before any of it is taken."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

from wattflow.model import units
from wattflow.model.errors import InvalidInput, Problem
from wattflow.runtime import messages as m
from wattflow.runtime.messages import Task
from wattflow.runtime.records import WorkflowRecord


def problems(new: Sequence[Task], before: Container[str]) -> Iterable[Problem]:
    """Find what is wrong with new tasks; ``before`` holds the keys that are there (a large workflow's: not copied)."""
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


def unmet(new: Sequence[Task], nodes: Sequence[m.Node]) -> Iterable[Problem]:
    """Tasks whose needs no node can meet, even empty; nothing where no node is known yet."""
    told: dict[tuple[str | None, tuple[m.Variant, ...]], str | None] = {}
    for task in new if nodes else ():
        needs = task.python if task.function is not None else None, tuple(task.variants)
        if needs not in told:
            lacking = [_lacking(way, nodes) for way in task.variants]
            found = "; or ".join(filter(None, lacking)) if all(lacking) else None
            told[needs] = found or _lacks_python(needs[0], nodes)
        if (what := told[needs]) is not None:
            yield Problem(f"task {task.key} ({task.name})", f"no node can ever run it: it needs {what}")


def _lacks_python(python: str | None, nodes: Sequence[m.Node]) -> str | None:
    """Say that no node runs the Python that made a payload; None where one does, or does not tell."""
    if python is None or any(node.python in ("", python) for node in nodes):
        return None
    return f"Python {python}, which made its payload; nodes here run {', '.join(sorted({one.python for one in nodes}))}"


def _lacking(way: m.Variant, nodes: Sequence[m.Node]) -> str | None:
    """Find what no node has of a variant's needs; None where one has all."""
    kind = "fpga" if way.fpga else "gpu" if way.gpu else None
    count = math.ceil(way.gpu) if kind == "gpu" else 1

    def devices(node: m.Node) -> int:
        return sum(one.kind == kind and one.memory_bytes >= way.gpu_memory_bytes for one in node.devices)

    def enough(node: m.Node) -> bool:
        return node.cpus >= way.cpus and node.memory_bytes >= way.memory_bytes

    if any(enough(node) and (kind is None or devices(node) >= count) for node in nodes):
        return None
    of = f"of {len(nodes)} nodes" if len(nodes) > 1 else "node here"
    if (most := max(node.cpus for node in nodes)) < way.cpus:
        return f"{way.cpus:g} CPUs, the largest {of} has {most:g}"
    if (memory := max(node.memory_bytes for node in nodes)) < way.memory_bytes:
        return f"{way.memory_bytes / units.GIB:.1f} GiB of memory, the largest {of} has {memory / units.GIB:.1f}"
    if kind is not None and (found := max(map(devices, nodes))) < count:
        memory_said = f" with {way.gpu_memory_bytes / units.GIB:.1f} GiB" if way.gpu_memory_bytes else ""
        return f"{count} {kind.upper()}{'s' if count > 1 else ''}{memory_said}, the best {of} has {found}"
    return "more at once than any one node has (CPUs, memory and devices together)"


def check_submission(
    submission: m.Submission,
    new: Sequence[m.Task],
    workflow: WorkflowRecord | None,
    owner: str,
    nodes: Sequence[m.Node] = (),
) -> None:
    """Refuse what cannot be right before any of it is taken.

    Args:
        new: The tasks that are not known yet.
        nodes: All nodes that are known, whatever their state.
    """
    name = f"workflow {submission.workflow}"
    if workflow is not None and workflow.owner != owner:
        raise InvalidInput(name, "belongs to somebody else")
    if workflow is not None and workflow.sealed and new:
        raise InvalidInput(name, "is sealed: it takes no more tasks")
    # All problems at once: a user with ten bad tasks corrects them in one go.
    found = [*problems(new, workflow.keys if workflow is not None else ()), *unmet(new, nodes)]
    if found:
        raise InvalidInput(name, found)
    if workflow is not None and submission.objective not in (None, workflow.objective):
        # Its weights stand in the engine from its first task on, and what is placed by them cannot be placed anew.
        before = f"with the objective {workflow.objective}" if workflow.objective else "without an objective"
        asked = f"so tasks for {submission.objective} cannot join it; open another workflow (a Client of its own)"
        raise InvalidInput(name, f"was opened {before}, {asked}")
