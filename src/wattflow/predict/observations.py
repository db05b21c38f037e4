"""Finished tasks as columns: what every model of this package learns from and is judged on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Texts = NDArray[np.str_]

Benchmarks = Mapping[str, Mapping[str, float]]
"""Seconds of micro-benchmarks: machine → benchmark → seconds. A benchmark named like a task stands for that task."""


@dataclass(frozen=True, slots=True)
class Observations:
    """Rows of finished (or to be predicted) tasks. Unknown numbers are NaN, unknown texts are empty.

    Attributes:
        task: ``workflow/task``: the unit that has a curve of its own.
        run: One execution of one workflow on one machine; a split never cuts through it.
        source: The campaign or input family the run belongs to.
        data: Identity of the input data: rows of one task with the same identity did the same work.
        sizes: Bytes or counts of input known before the task starts, one column per name in ``size_names``.
        request_cores: What the user asked for.
        request_bytes: What the user asked for.
        used_cores: Average busy cores.
        columns: Further numbers known before the start (name → values).
    """

    task: Texts
    machine: Texts
    run: Texts
    runtime_s: Floats
    workflow: Texts
    source: Texts
    data: Texts
    sizes: Floats
    size_names: tuple[str, ...]
    request_cores: Floats
    request_bytes: Floats
    used_cores: Floats
    peak_bytes: Floats
    energy_j: Floats
    columns: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.task)

    def take(self, rows: Ints | NDArray[np.bool_]) -> Observations:
        """Return the chosen rows, in that order."""
        taken: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                taken[part.name] = value[rows]
            elif part.name == "columns":
                taken[part.name] = {name: column[rows] for name, column in value.items()}
        return replace(self, **taken)

    @classmethod
    def of(cls, *, task: Sequence[str] | Texts, **columns: object) -> Observations:
        """Build from what is known; everything else is unknown."""
        count = len(task)
        texts = {"machine": "", "run": "", "workflow": "", "source": "", "data": ""}
        filled: dict[str, Any] = {"task": np.asarray(task, np.str_)}
        for name, default in texts.items():
            filled[name] = np.asarray(columns.pop(name, [default] * count), np.str_)
        named: Any = columns.pop("size_names", ())
        size_names = tuple(str(name) for name in named)
        sizes = np.asarray(columns.pop("sizes", np.zeros((count, 0))), np.float64)
        extra: Any = columns.pop("columns", {})
        for name in ("runtime_s", "request_cores", "request_bytes", "used_cores", "peak_bytes", "energy_j"):
            filled[name] = np.asarray(columns.pop(name, np.full(count, np.nan)), np.float64)
        if columns:
            raise TypeError(f"no such columns: {', '.join(sorted(columns))}")
        wrong = [
            Problem(name, f"{len(value)} values for {count} rows")
            for name, value in filled.items()
            if len(value) != count
        ]
        if sizes.shape != (count, len(size_names)):
            wrong.append(Problem("sizes", f"shape {sizes.shape} for {count} rows and names {size_names}"))
        if wrong:
            raise InvalidInput("observations", wrong)
        return cls(sizes=sizes, size_names=size_names, columns=dict(extra), **filled)


def of_workload(workload: Workload, machine: str = "") -> Observations:
    """Make rows of a workload's tasks: size is everything a task reads, machine is what the trace recorded."""
    # The appended 0 lets `reduceat` take a last task without parents; tasks without any get another's
    # sum, which is undone below.
    handed = np.add.reduceat(np.append(workload.parent_bytes, 0.0), workload.parent_start[:-1])
    handed[np.diff(workload.parent_start) == 0] = 0.0
    read = workload.input_bytes + handed
    names = [workload.functions[shape.function].name for shape in workload.shapes]
    family = [_family(name) for name in workload.workflow_names]
    workflow = np.array([family[w] for w in workload.workflow.tolist()])
    function = [names[s] for s in workload.shape.tolist()]
    machines = workload.columns.get("machine", np.full(len(workload), machine))
    cores = np.array([workload.shapes[s].variants[0].cores for s in workload.shape.tolist()])
    memory = np.array([float(workload.shapes[s].variants[0].memory_bytes) for s in workload.shape.tolist()])
    percent = workload.columns.get("avg_cpu_pct")
    # Seconds that only stand in for unknown ones are no observation.
    recorded = workload.columns.get("runtime_known", np.ones(len(workload), bool))
    extra: dict[str, object] = {
        "used_cores": np.asarray(percent, np.float64) / 100.0 if percent is not None else None,
        "peak_bytes": workload.columns.get("peak_memory_bytes"),
        "energy_j": workload.columns.get("energy_j"),
    }
    if (tag := workload.columns.get("tag")) is not None:
        extra["data"] = np.asarray(tag, np.str_)
    if (start := workload.columns.get("start_s")) is not None:
        extra["columns"] = {"finished_s": np.asarray(start, np.float64) + workload.runtime_s}
    return Observations.of(
        task=[f"{w}/{f}" for w, f in zip(workflow.tolist(), function, strict=True)],
        machine=np.asarray(machines, np.str_),
        run=np.array([workload.workflow_names[w] for w in workload.workflow.tolist()]),
        workflow=workflow,
        runtime_s=np.where(np.asarray(recorded, bool), workload.runtime_s, np.nan),
        sizes=read[:, None],
        size_names=("input_bytes",),
        request_cores=cores,
        # 0 bytes requested means that nobody asked.
        request_bytes=np.where(memory > 0, memory, np.nan),
        **{name: value for name, value in extra.items() if value is not None},
    )


def _family(name: str) -> str:
    """Return the application a document belongs to: the first part of its name that is not a number alone."""
    # Documents of one application are numbered or dated: "blast-chameleon-small-001" and "1000genome"
    # alike belong to a family.
    parts = [part for part in re.split(r"[-_. ]+", name) if part]
    return next((part for part in parts if not part.isdigit()), name).lower()


def _same_sizes(parts: Sequence[Observations]) -> list[Observations]:
    names = tuple(dict.fromkeys(name for part in parts for name in part.size_names))
    whole = []
    for part in parts:
        sizes = np.full((len(part), len(names)), np.nan)
        for column, name in enumerate(part.size_names):
            sizes[:, names.index(name)] = part.sizes[:, column]
        whole.append(replace(part, sizes=sizes, size_names=names))
    return whole


def in_order(rows: Observations) -> Observations:
    """Sort rows in the order they finished, where a column says when; else as they stand."""
    finished = rows.columns.get("finished_s")
    return rows if finished is None else rows.take(np.argsort(finished, kind="stable"))


def concatenate(parts: Sequence[Observations]) -> Observations:
    """Join the rows of several tables; a size that a table lacks is unknown there."""
    parts = _same_sizes(parts)
    joined: dict[str, Any] = {
        part.name: np.concatenate([getattr(p, part.name) for p in parts])
        for part in fields(Observations)
        if isinstance(getattr(parts[0], part.name), np.ndarray)
    }
    # Columns that only some tables have would leave rows without a value.
    shared = set.intersection(*(set(p.columns) for p in parts))
    return replace(parts[0], columns={n: np.concatenate([p.columns[n] for p in parts]) for n in shared}, **joined)
