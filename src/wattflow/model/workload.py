"""A workload: one or many workflows as columns, the form that simulators and policies read.

A million tasks are a handful of arrays here. Documents (`Workflow`) become a workload by `Workload.of`; logs are read
into one directly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.workflow import Function, Machine, Task, Transfers, Variant, Workflow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Shape:
    """Describe what a task asks for: its function, the variants offered, and how many parts start together."""

    function: int
    variants: tuple[Variant, ...]
    parts: int = 1


@dataclass(frozen=True, slots=True)
class NumberedNames(Sequence[str]):
    """``stem-0``, ``stem-1`` …: names of the many workflows of a log, none of which is kept in memory."""

    stem: str
    size: int

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self.size)))
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return self.stem if self.size == 1 else f"{self.stem}-{index % self.size}"


_last_children: list[tuple[Ints, Indices, Floats]] = []
"""The edges asked about last and the answer: runs of one workload under many policies ask again and again."""


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """Tasks as columns; index t is a task everywhere.

    Attributes:
        workflow: Index of each task's workflow.
        release_s: Earliest start on the workload's clock (parents may make it later).
        runtime_s: True seconds on a node of speed 1, alone.
        estimate_s: What a scheduler may know of it; NaN is unknown.
        shape: Index into ``shapes``.
        input_bytes: Bytes read from shared storage (not from parents).
        output_bytes: Bytes written.
        deadline_s: On the workload's clock; inf without one.
        parent_start, parent, parent_bytes: Parents of t are ``parent[parent_start[t]:parent_start[t+1]]``,
            with the bytes that each hands over.
        columns: Further per-task columns that a reader found (``energy_j``, ``machine``, ``avg_cpu_pct``, …);
            unknown numbers are NaN.
        notes: What the reader skipped or repaired, one line each.
        documents: The workflows it was made from, where there are any; task order is theirs, concatenated.
    """

    name: str
    workflow: Indices
    release_s: Floats
    runtime_s: Floats
    estimate_s: Floats
    shape: Indices
    input_bytes: Floats
    output_bytes: Floats
    deadline_s: Floats
    parent_start: Ints
    parent: Indices
    parent_bytes: Floats
    shapes: tuple[Shape, ...]
    functions: tuple[Function, ...]
    workflow_names: Sequence[str]
    workflow_submit_s: Floats
    ids: tuple[str, ...] | None = None
    machines: tuple[Machine, ...] = ()
    columns: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    documents: tuple[Workflow, ...] = ()

    def __len__(self) -> int:
        return len(self.runtime_s)

    def __repr__(self) -> str:
        return f"Workload({self.name!r}: {len(self):,} tasks, {len(self.workflow_names):,} workflows)"

    @property
    def one_task_each(self) -> bool:
        """Tell whether every task is a workflow of its own, as the jobs of a log are."""
        return len(self.workflow_names) == len(self) and self.edge_count == 0

    @property
    def edge_count(self) -> int:
        return len(self.parent)

    def task_id(self, task: int) -> str:
        """Return the task's own id, or its number where the source had none."""
        return self.ids[task] if self.ids is not None else str(task)

    def parents_of(self, task: int) -> Indices:
        return self.parent[self.parent_start[task] : self.parent_start[task + 1]]

    def children(self) -> tuple[Ints, Indices, Floats]:
        """Turn the edges round: (child_start, child, bytes), children in index order. The last answer is kept."""
        edges = (self.parent_start, self.parent, self.parent_bytes)
        # By identity: arrays are shared between a workload and its copies with other estimates.
        if len(_last_children) == 2 and all(a is b for a, b in zip(_last_children[0], edges, strict=True)):
            kept_start, kept_child, kept_bytes = _last_children[1]
            # Copies: callers may sort or change what they get.
            return kept_start.copy(), kept_child.copy(), kept_bytes.copy()
        count = len(self)
        # Sorting one number made of both is several times faster than a stable sort by the parent.
        # Upper half the parent, lower half the edge's position: sorted, equal parents stay in the order of
        # their children.
        keys = (self.parent.astype(np.int64) << 32) | np.arange(len(self.parent), dtype=np.int64)
        keys.sort()
        order = keys & 0xFFFFFFFF
        start = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(self.parent, minlength=count), out=start[1:])
        child_of_edge = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.parent_start))
        turned = (start, child_of_edge[order], self.parent_bytes[order])
        _last_children[:] = [edges, turned]
        return turned[0].copy(), turned[1].copy(), turned[2].copy()

    def topological_order(self) -> Ints:
        """Sort tasks so that parents come first; ties by index. Raises InvalidInput on a cycle, naming its tasks."""
        waiting = np.diff(self.parent_start).astype(np.int64)
        start, child, _ = self.children()
        # First in, first out: ties by index, since children are listed by index too.
        ready = deque(np.flatnonzero(waiting == 0).tolist())
        order: list[int] = []
        while ready:
            task = ready.popleft()
            order.append(task)
            for next_task in child[start[task] : start[task + 1]].tolist():
                waiting[next_task] -= 1
                if waiting[next_task] == 0:
                    ready.append(next_task)
        if len(order) < len(self):
            cycle = self._cycle(waiting)
            path = " → ".join(self.task_id(t) for t in [*cycle[:8], *(cycle[:1] if len(cycle) <= 8 else ())])
            more = f" → … ({len(cycle)} tasks)" if len(cycle) > 8 else ""
            raise InvalidInput(self.name, f"tasks wait for each other (a cycle): {path}{more}")
        return np.array(order, np.int64)

    def _cycle(self, waiting: Ints) -> list[int]:
        """Find one cycle among the tasks that still wait, each before the one that waits for it."""
        task = int(np.flatnonzero(waiting > 0)[0])
        seen: dict[int, int] = {}
        while task not in seen:
            seen[task] = len(seen)
            # A task that is left over has a parent that is left over too, so the walk upwards meets itself.
            task = next(parent for parent in self.parents_of(task).tolist() if waiting[parent] > 0)
        return list(seen)[seen[task] :][::-1]

    def with_estimates(self, estimate_s: Floats) -> Workload:
        """Return the same workload with other estimates (NaN is unknown)."""
        return replace(self, estimate_s=np.ascontiguousarray(estimate_s, np.float64))

    @classmethod
    def of_columns(
        cls,
        name: str,
        *,
        release_s: Floats,
        runtime_s: Floats,
        shapes: Sequence[Shape] = (Shape(0, (Variant(),)),),
        functions: Sequence[Function] = (Function("task"),),
        edges: tuple[Indices, Indices] | None = None,
        **columns: object,
    ) -> Workload:
        """Build from arrays; everything else has a default. ``edges`` is (parents, children)."""
        count = len(runtime_s)
        zeros = np.zeros(count)
        parent_start = np.zeros(count + 1, np.int64)
        parent = np.zeros(0, np.int32)
        parent_bytes = np.zeros(0)
        if edges is not None:
            parents, children = (np.asarray(side, np.int32) for side in edges)
            order = np.argsort(children, kind="stable")  # parents of one task keep their order
            parent = np.ascontiguousarray(parents[order])
            parent_bytes = np.ascontiguousarray(
                np.asarray(columns.pop("edge_bytes", np.zeros(len(parents))), np.float64)[order]
            )
            np.cumsum(np.bincount(children, minlength=count), out=parent_start[1:])
        if columns.pop("one_each", False):  # a log: every job or invocation is a workflow of its own
            columns |= {"workflow": np.arange(count, dtype=np.int32), "workflow_names": NumberedNames(name, count)}
        workflow = np.asarray(columns.pop("workflow", np.zeros(count, np.int32)), np.int32)
        workflows = int(workflow.max()) + 1 if count else 0
        defaults: dict[str, Any] = {
            "estimate_s": runtime_s,
            "shape": np.zeros(count, np.int32),
            "input_bytes": zeros,
            "output_bytes": zeros,
            "deadline_s": np.full(count, np.inf),
        }
        if "workflow_names" not in columns:
            names = tuple(f"{name}-{i}" if workflows > 1 else name for i in range(workflows))
            defaults["workflow_names"] = names
        if "workflow_submit_s" not in columns:
            submit = np.full(workflows, np.inf)
            np.minimum.at(submit, workflow, np.asarray(release_s, np.float64))
            defaults["workflow_submit_s"] = submit
        for key, value in (defaults | columns).items():
            if isinstance(value, np.ndarray) and key in cls.__dataclass_fields__:
                kind = np.int32 if key == "shape" else np.float64
                value = np.ascontiguousarray(value, kind)
            defaults[key] = value
        return cls(
            name=name,
            workflow=workflow,
            release_s=np.ascontiguousarray(release_s, np.float64),
            runtime_s=np.ascontiguousarray(runtime_s, np.float64),
            parent_start=parent_start,
            parent=parent,
            parent_bytes=parent_bytes,
            shapes=tuple(shapes),
            functions=tuple(functions),
            **defaults,
        )

    @classmethod
    def of(
        cls,
        workflows: Workflow | Iterable[Workflow],
        name: str | None = None,
        *,
        allow_unknown_runtimes: bool = False,
    ) -> Workload:
        """Make columns of one or several workflow documents.

        A task with unknown runtime is an error. With ``allow_unknown_runtimes``, ``UNKNOWN_RUNTIME_S`` stands in for
        it, its estimate is unknown, and the column ``runtime_known`` says which tasks these are.
        """
        documents = (workflows,) if isinstance(workflows, Workflow) else tuple(workflows)
        columns = _Columns(documents, name or (documents[0].name if len(documents) == 1 else "workload"))
        columns.allow_unknown_runtimes = allow_unknown_runtimes
        return columns.build()


MOST_CORES, MOST_BYTES = 1e6, 1 << 60
"""The most that one task may ask of one machine before it is taken for a mistake."""
LONGEST_S = 3.2e9
"""Longest runtime that is believed: beyond it sums of seconds lose their milliseconds."""
UNKNOWN_RUNTIME_S = 1.0
"""Stands in for a runtime that nobody recorded, so that the structure can be looked at and simulated."""


class _Columns:
    """Collects documents into columns, and all their problems into one error."""

    allow_unknown_runtimes = False

    def __init__(self, documents: tuple[Workflow, ...], name: str) -> None:
        self.documents, self.name = documents, name
        self.problems: list[Problem] = []
        self.functions: dict[Function, int] = {}
        self.shapes: dict[Shape, int] = {}
        self.rows: list[tuple[int, float, float, float, int, float, float, float]] = []
        self.parent_start, self.parent, self.parent_bytes = [0], list[int](), list[float]()
        self.ids: list[str] = []

    def build(self) -> Workload:
        for number, document in enumerate(self.documents):
            self._add(number, document)
        columns = [np.array([row[i] for row in self.rows], np.float64) for i in range(8)]
        workload = Workload(
            name=self.name,
            workflow=columns[0].astype(np.int32),
            release_s=columns[1],
            runtime_s=columns[2],
            estimate_s=columns[3],
            shape=columns[4].astype(np.int32),
            input_bytes=columns[5],
            output_bytes=columns[6],
            deadline_s=columns[7],
            parent_start=np.array(self.parent_start, np.int64),
            parent=np.array(self.parent, np.int32),
            parent_bytes=np.array(self.parent_bytes, np.float64),
            shapes=tuple(self.shapes),
            functions=tuple(self.functions),
            workflow_names=tuple(document.name for document in self.documents),
            workflow_submit_s=np.array([document.submit_s for document in self.documents], np.float64),
            ids=tuple(self.ids),
            machines=tuple(machine for document in self.documents for machine in document.machines),
            columns=_recorded_columns([task for document in self.documents for task in document.tasks]),
            documents=self.documents,
        )
        try:
            # For its cycle check; the order itself is made again where it is needed.
            workload.topological_order()
        except InvalidInput as error:
            self.problems += error.problems
        if self.problems:
            raise InvalidInput(self.name, self.problems)
        return workload

    def _add(self, number: int, document: Workflow) -> None:
        base = len(self.rows)
        index: dict[str, int] = {}
        for i, task in enumerate(document.tasks):
            # The first use of an id stands, so that the others can be named.
            if index.setdefault(task.id, base + i) != base + i:
                self.problems.append(Problem(f"{document.name}, task {task.id!r}", "its id is used twice"))
        transfers = Transfers(document)
        functions = {function.name: function for function in document.functions}
        for task in document.tasks:
            # Functions that a document does not describe have no cold start and do not fail.
            function = functions.get(task.function) or Function(task.function)
            shape = Shape(self.functions.setdefault(function, len(self.functions)), tuple(task.variants), task.parts)
            self._add_task(number, document, task, (index, transfers, shape))

    def _add_task(
        self,
        number: int,
        document: Workflow,
        task: Task,
        lookup: tuple[dict[str, int], Transfers, Shape],
    ) -> None:
        index, transfers, shape = lookup
        where = f"{document.name}, task {task.id!r}"
        unknown = task.runtime_s is None and self.allow_unknown_runtimes
        # NaN fails this comparison as well.
        if not unknown and (task.runtime_s is None or not 0 <= task.runtime_s <= LONGEST_S):
            what = f"runtime {task.runtime_s} is not a number of seconds of 0 … {LONGEST_S:g} (a century)"
            self.problems.append(Problem(where, what))
        for variant in shape.variants:
            if not 0 <= variant.cores <= MOST_CORES or not 0 <= variant.memory_bytes <= MOST_BYTES:
                what = f"{variant.cores:g} cores and {variant.memory_bytes:g} bytes are beyond any machine"
                self.problems.append(Problem(where, what))
        outside, handed = transfers.read(task)
        for parent, size in handed.items():
            if parent not in index:
                self.problems.append(Problem(where, f"its parent {parent!r} is not in the workflow"))
                continue
            self.parent.append(index[parent])
            self.parent_bytes.append(float(size))
        # Also for a task whose parents are all wrong: offsets must be one per task.
        self.parent_start.append(len(self.parent))
        row = self.shapes.setdefault(shape, len(self.shapes))
        runtime = UNKNOWN_RUNTIME_S if task.runtime_s is None else task.runtime_s
        estimate = float("nan") if unknown else runtime
        deadline = task.deadline_s if task.deadline_s is not None else document.deadline_s
        self.ids.append(task.id)
        self.rows.append(
            (
                number,
                document.submit_s + task.submit_s,
                runtime,
                estimate if task.estimate_s is None else task.estimate_s,
                row,
                float(outside),
                float(transfers.written(task)),
                float("inf") if deadline is None else document.submit_s + deadline,
            )
        )


_RECORDED = (
    "avg_cpu_pct",
    "peak_memory_bytes",
    "read_bytes",
    "written_bytes",
    "start_s",
    "energy_j",
    "avg_power_w",
    "energy_error",
    "priority",
)


def _recorded_columns(tasks: Sequence[Task]) -> dict[str, NDArray[np.generic]]:
    """Return columns that at least one task has a value for."""
    columns: dict[str, NDArray[np.generic]] = {}
    for name in _RECORDED:
        values = [getattr(task, name) for task in tasks]
        if any(value is not None for value in values):
            columns[name] = np.array([np.nan if value is None else value for value in values], np.float64)
    if any(task.energy_provenance is not None for task in tasks):
        columns["energy_provenance"] = np.array([task.energy_provenance or "" for task in tasks], np.str_)
    if any(task.runtime_s is None for task in tasks):
        columns["runtime_known"] = np.array([task.runtime_s is not None for task in tasks])
    if any(task.machine is not None for task in tasks):
        columns["machine"] = np.array([task.machine or "" for task in tasks])
    return columns
