"""Between workflow documents and the columns of a workload, both ways."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wattflow.model.profile import Provenance
from wattflow.model.workflow import File, Function, Task, Workflow
from wattflow.model.workload import Workload

_NUMBERS = ("avg_cpu_pct", "start_s", "energy_j", "avg_power_w", "energy_error", "priority")
_WHOLE = ("peak_memory_bytes", "read_bytes", "written_bytes")
_KEPT = frozenset({*_NUMBERS, *_WHOLE, "machine", "energy_provenance", "runtime_known"})


def to_workload(found: Sequence[Workflow], name: str, notes: Sequence[str] = ()) -> Workload:
    """Make one workload of all documents; what had to be assumed stands in its notes."""
    workload = Workload.of(found, found[0].name if len(found) == 1 else name, allow_unknown_runtimes=True)
    tasks = [task for workflow in found for task in workflow.tasks]
    lines = list(notes)
    unknown = sum(task.runtime_s is None for task in tasks)
    if unknown:
        lines.append(
            f"{unknown} of {len(tasks)} tasks have no runtime; 1 s stands in for it and the estimate is unknown"
        )
    zero = sum(task.runtime_s == 0 for task in tasks)
    if zero:
        lines.append(f"{zero} of {len(tasks)} tasks have a runtime of 0 and are kept")
    return dataclasses.replace(workload, notes=tuple(lines))


def of_workload(workload: Workload) -> tuple[tuple[Workflow, ...], tuple[str, ...]]:
    """Return the workload's documents, made from its columns where it has none, and what they cannot hold.

    Columns that a run or a predictor has put over the documents (runtimes, estimates, energy) are taken over into them.
    """
    # Columns may have been cut or repeated since; documents of another number of tasks say nothing of
    # these rows.
    if workload.documents and sum(len(one.tasks) for one in workload.documents) == len(workload):
        return _updated(workload), ()
    dropped = tuple(
        f"column {name} has no place in a workflow document" for name in sorted(workload.columns) if name not in _KEPT
    )
    return _from_columns(workload), dropped


def _updated(workload: Workload) -> tuple[Workflow, ...]:
    """Return the documents with the workload's present estimates and recorded columns."""
    found, base = [], 0
    recorded = _recorded(workload)
    for document in workload.documents:
        tasks = []
        for i, task in enumerate(document.tasks):
            changes = {
                name: value
                for name, value in recorded[base + i].items()
                if value is not None and value != getattr(task, name)
            }
            runtime = float(workload.runtime_s[base + i])
            # A runtime that nobody recorded stays unknown: the 1 s that stands in must not become a record.
            if task.runtime_s is not None and runtime != task.runtime_s:
                changes["runtime_s"] = runtime
            estimate = float(workload.estimate_s[base + i])
            # An estimate that equals the runtime is the default, and says nothing.
            usual = runtime if task.estimate_s is None else task.estimate_s
            if not math.isnan(estimate) and task.runtime_s is not None and estimate != usual:
                changes["estimate_s"] = estimate
            tasks.append(dataclasses.replace(task, **changes) if changes else task)
        found.append(dataclasses.replace(document, tasks=tuple(tasks)))
        base += len(document.tasks)
    return tuple(found)


def _recorded(workload: Workload) -> list[dict[str, Any]]:
    """Return, per task, the recorded values as Python numbers; unknown is None."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(workload))]
    for name in (*_NUMBERS, *_WHOLE):
        if name in workload.columns:
            for row, value in zip(rows, workload.columns[name].astype(np.float64).tolist(), strict=True):
                row[name] = None if math.isnan(value) else round(value) if name in _WHOLE else value
    for name in ("machine", "energy_provenance"):
        if name in workload.columns:
            for row, text in zip(rows, workload.columns[name].tolist(), strict=True):
                value = str(text) if text else None
                row[name] = Provenance(value) if value and name == "energy_provenance" else value
    return rows


def _from_columns(workload: Workload) -> tuple[Workflow, ...]:
    """Make documents from columns. Bytes become files, see `_Files`."""
    ids = [workload.task_id(t) for t in range(len(workload))]
    # Ids come from several documents and may repeat; a document needs them unique.
    if len(set(ids)) < len(ids):
        ids = [f"{id}#{t}" for t, id in enumerate(ids)]
    known = workload.columns.get("runtime_known")
    recorded = _recorded(workload)
    members: list[list[Task]] = [[] for _ in workload.workflow_names]
    bytes_of, functions = _Files(workload, ids), _functions_of(workload)
    for t, id in enumerate(ids):
        number = int(workload.workflow[t])
        shape = workload.shapes[int(workload.shape[t])]
        runtime = float(workload.runtime_s[t])
        estimate = float(workload.estimate_s[t])
        deadline = float(workload.deadline_s[t])
        submit = float(workload.workflow_submit_s[number])
        has_runtime = known is None or bool(known[t])
        members[number].append(
            Task(
                id=id,
                name=id,
                function=workload.functions[shape.function].name,
                runtime_s=runtime if has_runtime else None,
                variants=shape.variants,
                parents=tuple(ids[p] for p in workload.parents_of(t).tolist()),
                inputs=tuple(bytes_of.inputs[t]),
                outputs=tuple(bytes_of.outputs[t]),
                parts=shape.parts,
                # Documents count from their own submission.
                submit_s=max(0.0, float(workload.release_s[t]) - submit),
                deadline_s=deadline - submit if math.isfinite(deadline) else None,
                # As above: an estimate equal to the runtime is left out.
                estimate_s=None if math.isnan(estimate) or (has_runtime and estimate == runtime) else estimate,
                **recorded[t],
            )
        )
    return tuple(
        Workflow(
            name=name,
            tasks=tuple(members[number]),
            files=tuple(bytes_of.files[number]),
            machines=workload.machines,
            functions=functions[number],
            submit_s=float(workload.workflow_submit_s[number]),
        )
        for number, name in enumerate(workload.workflow_names)
    )


def as_one_workflow(workload: Workload) -> Workload:
    """Make the jobs of a log tasks of one workflow, each released when it was."""
    return dataclasses.replace(
        workload,
        workflow=np.zeros(len(workload), np.int32),
        workflow_names=(workload.name,),
        workflow_submit_s=workload.release_s.min(keepdims=True) if len(workload) else np.zeros(0),
    )


def _functions_of(workload: Workload) -> list[tuple[Function, ...]]:
    """Return the functions that each workflow uses, in order of number."""
    function = np.array([shape.function for shape in workload.shapes] or [0], np.int64)
    # One number per pair of workflow and function; `unique` sorts them, so functions keep their order.
    pairs = np.unique(workload.workflow * len(workload.functions) + function[workload.shape])
    found: list[list[Function]] = [[] for _ in workload.workflow_names]
    for number, index in zip(*(side.tolist() for side in np.divmod(pairs, len(workload.functions))), strict=True):
        found[number].append(workload.functions[index])
    return [tuple(each) for each in found]


class _Files:
    """Files that carry the bytes of a workload's columns.

    A task has one file for what it reads from storage, one for each size that it hands to children, and one for the
    rest of what it writes.
    """

    def __init__(self, workload: Workload, ids: list[str]) -> None:
        count = len(workload)
        self.inputs: list[list[str]] = [[] for _ in range(count)]
        self.outputs: list[list[str]] = [[] for _ in range(count)]
        self.files: list[list[File]] = [[] for _ in workload.workflow_names]
        handed: list[dict[float, str]] = [{} for _ in range(count)]
        child_of_edge = np.repeat(np.arange(count), np.diff(workload.parent_start)).tolist()
        edges = zip(child_of_edge, workload.parent.tolist(), workload.parent_bytes.tolist(), strict=True)
        for child, parent, size in edges:
            if size > 0:
                # One file for each size that a parent hands on: children that get equal bytes share it, as they
                # would a real file.
                name = handed[parent].setdefault(size, f"{ids[parent]}.{len(handed[parent])}")
                self.inputs[child].append(name)
        for t, number in enumerate(workload.workflow.tolist()):
            outside, written = float(workload.input_bytes[t]), float(workload.output_bytes[t])
            if outside > 0:
                self.inputs[t].append(f"{ids[t]}.in")
                self.files[number].append(File(f"{ids[t]}.in", round(outside)))
            for size, name in handed[t].items():
                self.outputs[t].append(name)
                self.files[number].append(File(name, round(size)))
            # What is written beyond the files handed on; children that share a file share its bytes.
            rest = written - sum(handed[t])
            if rest > 0:
                self.outputs[t].append(f"{ids[t]}.out")
                self.files[number].append(File(f"{ids[t]}.out", round(rest)))
