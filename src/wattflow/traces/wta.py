"""Workflow Trace Archive: a folder of parquet with ``tasks``, ``workflows`` and ``workload``.

Versluis et al., "The Workflow Trace Archive: Open-Access Data from Public and Private Computing Infrastructures",
doi:10.1109/TPDS.2020.2984821. Times are milliseconds, −1 is unknown. The archive does not state the units of memory
and energy; MB and joules are read and written here. Column types differ between its traces and are taken as they come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.units import MB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import UNKNOWN_RUNTIME_S, Shape, Workload
from wattflow.traces import extension, log_tables
from wattflow.traces.source import Probe, write_folder_atomic
from wattflow.traces.wfformat_schema import Check

__all__ = ["claims", "read", "write"]

_NUMBERS = (
    "id", "workflow_id", "ts_submit", "runtime", "resource_amount_requested", "memory_requested",
    "energy_consumption", "wait_time", "disk_io_time", "network_io_time", "disk_space_requested", "user_id", "group_id",
)  # fmt: skip


def claims(probe: Probe) -> bool:
    """Recognise the trace's folder, or a parquet file of its tasks."""
    if probe.folder:
        return bool(_parts(probe.path, "tasks"))
    return probe.head.startswith(b"PAR1") and _root(probe.path) != probe.path


def _root(path: Path) -> Path:
    """Return the trace's folder where a file below its ``tasks`` was named."""
    if path.is_dir():
        return path
    return next((parent.parent for parent in path.parents if parent.name == "tasks"), path)


def _parts(folder: Path, kind: str) -> list[Path]:
    """Return the parquet files of one object of the format, of its newest schema version."""
    base = folder / kind
    if not base.is_dir():
        return []
    # Archives keep several versions of one table side by side; names sort by version.
    versions = sorted(child for child in base.iterdir() if child.is_dir() and child.name.startswith("schema-"))
    return sorted((versions[-1] if versions else base).glob("*.parquet"))


def read(path: Path) -> Workload:
    """Read a trace. Tasks of unknown runtime (−1) stay in the DAG with 1 s in its place; other bad rows are skipped."""
    path = _root(path)
    files = _parts(path, "tasks")
    if not files:
        raise InvalidInput(str(path), "has no tasks/*.parquet, so it is not a Workflow Trace Archive folder")
    table = log_tables.read_parquet(files)
    table.need("id", "workflow_id", "ts_submit", "runtime")
    skips = log_tables.Skips(len(table), "tasks")
    numbers = {}
    for name in _NUMBERS:
        numbers[name], bad = table.numbers(name)
        # The first four are needed; what else cannot be read is unknown.
        if name in _NUMBERS[:4]:
            skips.drop(bad | ~np.isfinite(numbers[name]), f"without a usable {name}")
    order = np.argsort(numbers["id"], kind="stable")
    twice = np.zeros(len(table), np.bool_)
    # Sorted by id, repeats stand side by side; stable, so the first of them stays.
    twice[order[1:]] = numbers["id"][order][1:] == numbers["id"][order][:-1]
    skips.drop(twice, "whose id came before")
    runtime = numbers["runtime"]
    skips.drop((runtime < 0) & (runtime != -1), "with a negative runtime")
    skips.drop((runtime > 1e15) | (np.abs(numbers["ts_submit"]) > 1e15), "with times beyond reason")
    skips.none_left(path)
    keep = skips.keep
    edges = log_tables.match_edges(numbers["id"], keep, table.edges("parents"), skips)
    found = {name: values[keep] for name, values in numbers.items()}
    return _Trace(table, keep, found, skips.notes).workload(path.name, edges)


@dataclass(slots=True)
class _Extra:
    """Hold what a task's ``params`` say in the namespaced extension."""

    variants: tuple[Variant, ...] | None = None
    parts: int = 1
    estimate_s: float | None = None
    deadline_s: float | None = None
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    provenance: str = ""
    function: Function | None = None


class _Trace:
    """The usable rows of a trace on their way to columns."""

    def __init__(
        self,
        table: log_tables.TraceTable,
        keep: log_tables.Mask,
        numbers: dict[str, log_tables.Floats],
        notes: list[str],
    ) -> None:
        self.keep, self.numbers, self.notes = keep, numbers, notes
        self.types = self._kept(table, "type")
        self.extras = self._extras(self._kept(table, "params"))

    def _kept(self, table: log_tables.TraceTable, column: str) -> list[str]:
        return [text for text, stays in zip(table.texts(column), self.keep.tolist(), strict=True) if stays]

    def workload(self, name: str, edges: tuple[np.ndarray, np.ndarray]) -> Workload:
        numbers = self.numbers
        submit = numbers["ts_submit"]
        origin = float(submit.min())
        known = numbers["runtime"] != -1
        if not known.all():
            self.notes.append(f"{np.count_nonzero(~known)} tasks have an unknown runtime (−1); 1 s stands in for it")
        runtime = np.where(known, numbers["runtime"] / 1000, UNKNOWN_RUNTIME_S)
        shape, shapes, functions = self._shapes()
        workflow, names = log_tables.distinct(numbers["workflow_id"].tolist())
        # Without a runtime there is no estimate either, unless the extension has one.
        estimate = np.where(known, runtime, np.nan)
        for t, extra in self.extras.items():
            if extra.estimate_s is not None:
                estimate[t] = extra.estimate_s
        workload = Workload.of_columns(
            name,
            release_s=(submit - origin) / 1000,
            runtime_s=runtime,
            estimate_s=estimate,
            shapes=shapes,
            functions=functions,
            shape=shape,
            workflow=workflow,
            workflow_names=tuple(f"{name}-{_short(id)}" for (id,) in names),
            edges=edges,
            ids=tuple(_short(id) for id in numbers["id"].tolist()),
            deadline_s=self._extra_column("deadline_s", np.inf),
            input_bytes=self._extra_column("input_bytes", 0.0),
            output_bytes=self._extra_column("output_bytes", 0.0),
            columns=self._columns(known),
            notes=tuple(self.notes),
        )
        if workload.edge_count:
            # Raises on a cycle, which the columns themselves would not show.
            workload.topological_order()
        return workload

    def _columns(self, known: log_tables.Mask) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {} if known.all() else {"runtime_known": known}
        names = {
            "energy_consumption": ("energy_j", 1.0),
            "wait_time": ("wait_s", 1e-3),
            "disk_io_time": ("disk_s", 1e-3),
            "network_io_time": ("network_s", 1e-3),
            "user_id": ("user", 1.0),
            "group_id": ("group", 1.0),
        }
        for source, (target, factor) in names.items():
            values = self.numbers[source]
            # -1 is unknown.
            values = np.where(values >= 0, values * factor, np.nan)
            if np.isfinite(values).any():
                columns[target] = values
        if any(extra.provenance for extra in self.extras.values()):
            kinds = [self.extras[t].provenance if t in self.extras else "" for t in range(len(self.types))]
            columns["energy_provenance"] = np.array(kinds, np.str_)
        return columns

    def _extra_column(self, field: str, default: float) -> log_tables.Floats:
        values = np.full(len(self.types), default)
        for t, extra in self.extras.items():
            value = getattr(extra, field)
            if value is not None:
                values[t] = value
        return values

    def _shapes(self) -> tuple[np.ndarray, list[Shape], list[Function]]:
        cores = np.where(self.numbers["resource_amount_requested"] > 0, self.numbers["resource_amount_requested"], 1.0)
        memory = np.where(self.numbers["memory_requested"] > 0, self.numbers["memory_requested"] * MB, 0.0)
        if (memory > 2**62).any() or (cores > 1e9).any():
            raise InvalidInput("tasks", "a task asks for more than 4 EiB of memory or a billion cores")
        functions: dict[Function, int] = {}
        shapes: dict[Shape, int] = {}
        codes = []
        rows = zip(self.types, cores.tolist(), np.rint(memory).astype(np.int64).tolist(), strict=True)
        for t, (kind, core, size) in enumerate(rows):
            extra = self.extras.get(t) or _Extra()
            function = extra.function or Function(kind or "task")
            # The column holds the task's cores, a variant those of one part.
            variants = extra.variants or (Variant(cores=core / extra.parts, memory_bytes=size),)
            shape = Shape(functions.setdefault(function, len(functions)), variants, extra.parts)
            codes.append(shapes.setdefault(shape, len(shapes)))
        return np.array(codes, np.int32), list(shapes), list(functions)

    def _extras(self, params: list[str]) -> dict[int, _Extra]:
        """Return extensions by task; ones that cannot be read are counted and passed over."""
        found: dict[int, _Extra] = {}
        bad = 0
        for t, text in enumerate(params):
            # A cheap test first: most traces have no extension, and parsing a million texts takes long.
            if f'"{extension.KEY}"' in text:
                extra = _extra(text)
                if extra is None:
                    bad += 1
                else:
                    found[t] = extra
        if bad:
            self.notes.append(f"{bad} tasks have an extension in params that cannot be read; it was passed over")
        return found


def _extra(text: str) -> _Extra | None:
    try:
        raw = json.loads(text)[extension.KEY]
        check = Check()
        fields = {"variants": "tuple[Variant, ...]", "function": "Function"}
        values: dict[str, Any] = {
            name: extension.decode(raw[name], kind, name, check) for name, kind in fields.items() if name in raw
        }
        for name in ("parts", "estimate_s", "deadline_s", "input_bytes", "output_bytes"):
            if name in raw:
                values[name] = extension.decode(raw[name], "int" if name == "parts" else "float", name, check)
        if "provenance" in raw:
            values["provenance"] = str(Provenance(raw["provenance"]))
        extra = _Extra(**values)
        # What cannot be a task counts as unreadable as a whole.
        return extra if not check.problems and extra.parts >= 1 and extra.variants != () else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _short(id: object) -> str:
    number = float(str(id))
    return str(int(number)) if number.is_integer() else str(number)


_SCHEMA = "schema-1.0"


def write(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write ``tasks``, ``workflows`` and ``workload``; energy is in joules where it is known, −1 elsewhere."""
    tasks, workflows, about = _tasks(workload), _workflows(workload), _about(workload)

    def fill(folder: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        for kind, columns in (("tasks", tasks), ("workflows", workflows)):
            target = folder / kind / _SCHEMA
            target.mkdir(parents=True)
            with (target / "part.0.parquet").open("wb") as file:
                parquet.write_table(pa.table(columns), file, compression="snappy")
        target = folder / "workload" / _SCHEMA
        target.mkdir(parents=True)
        (target / "generic_information.json").write_text(json.dumps(about, indent=1), encoding="utf-8")

    write_folder_atomic(path, fill)
    return _dropped(workload)


def _milliseconds(seconds: np.ndarray) -> np.ndarray:
    """Return whole milliseconds where that is exact, else fractions: the archive's own types drift the same way."""
    # Integers are what the archive uses; fractions only where whole milliseconds would lose something.
    whole = np.rint(seconds * 1000.0)
    return whole.astype(np.int64) if bool((whole / 1000.0 == seconds).all()) else seconds * 1000.0


def _known(workload: Workload, name: str, factor: float = 1.0) -> np.ndarray:
    column = workload.columns.get(name)
    if column is None or column.dtype.kind not in "fiu":
        return np.full(len(workload), -1.0)
    values = column.astype(np.float64) * factor
    return np.where(np.isfinite(values), values, -1.0)


def _tasks(workload: Workload) -> dict[str, object]:
    count = len(workload)
    known = workload.columns.get("runtime_known")
    runtime = _milliseconds(workload.runtime_s)
    shapes = [workload.shapes[s] for s in range(len(workload.shapes))]
    cores = np.array([s.variants[0].cores * s.parts for s in shapes] or [1.0])[workload.shape]
    # -1 MB divided by MB is -1: unknown.
    memory = np.array([s.variants[0].memory_bytes or -MB for s in shapes] or [-MB])[workload.shape] / MB
    types = [workload.functions[s.function].name for s in shapes]
    parents, children = _lists(workload)
    return {
        "id": np.arange(count, dtype=np.int64),
        "type": [types[s] for s in workload.shape.tolist()],
        "ts_submit": _milliseconds(workload.release_s),
        "submission_site": np.zeros(count, np.int32),
        "runtime": runtime if known is None else np.where(known.astype(bool), runtime, -1),
        "resource_type": ["core"] * count,
        "resource_amount_requested": cores.astype(np.float64),
        "parents": parents,
        "children": children,
        "user_id": _known(workload, "user").astype(np.int32),
        "group_id": _known(workload, "group").astype(np.int32),
        "nfrs": ["{}"] * count,
        "workflow_id": workload.workflow.astype(np.int64),
        "wait_time": _known(workload, "wait_s", 1000.0),
        "params": _params(workload, types),
        "memory_requested": memory.astype(np.float64),
        "network_io_time": _known(workload, "network_s", 1000.0),
        "disk_io_time": _known(workload, "disk_s", 1000.0),
        "disk_space_requested": np.full(count, -1.0),
        "energy_consumption": _known(workload, "energy_j"),
        "resource_used": ["[]"] * count,
    }


def _lists(workload: Workload) -> tuple[object, object]:
    """Return parents and children as list columns, built from offsets without a loop over tasks."""
    import pyarrow as pa

    start, child, _ = workload.children()
    lists = ((workload.parent_start, workload.parent), (start, child))
    parents, children = (
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids.astype(np.int64)))
        for offsets, ids in lists
    )
    return parents, children


def _params(workload: Workload, types: Sequence[str]) -> list[str]:
    """Return the extension of each task as JSON text; ``{}`` where the columns say it all."""
    by_shape = [_shape_extra(shape, workload.functions[shape.function]) for shape in workload.shapes]
    provenance = workload.columns.get("energy_provenance")
    known = workload.columns.get("runtime_known")
    texts = []
    for t in range(len(workload)):
        extra = dict(by_shape[int(workload.shape[t])])
        estimate, runtime = float(workload.estimate_s[t]), float(workload.runtime_s[t])
        has_runtime = known is None or bool(known[t])
        # NaN is "unknown" and an estimate equal to the runtime the default: neither is written.
        if np.isfinite(estimate) and not (has_runtime and estimate == runtime):
            extra["estimate_s"] = estimate
        if np.isfinite(workload.deadline_s[t]):
            extra["deadline_s"] = float(workload.deadline_s[t])
        for name, column in (("input_bytes", workload.input_bytes), ("output_bytes", workload.output_bytes)):
            if column[t] > 0:
                extra[name] = float(column[t])
        if provenance is not None and provenance[t]:
            extra["provenance"] = str(provenance[t])
        texts.append(json.dumps({extension.KEY: extra}) if extra else "{}")
    return texts


def _shape_extra(shape: Shape, function: Function) -> dict[str, object]:
    """Tell what a shape says beyond cores, memory and the function's name."""
    extra: dict[str, object] = {}
    first = shape.variants[0]
    if shape.parts != 1:
        extra["parts"] = shape.parts
    plain = shape.variants == (Variant(cores=first.cores, memory_bytes=first.memory_bytes),)
    # Whatever the columns alone would not give back: cores are summed over parts, memory goes through
    # MB.
    if not plain or shape.parts != 1 or first.cores <= 0 or round(first.memory_bytes / MB * MB) != first.memory_bytes:
        extra["variants"] = extension.encode(shape.variants)
    if function != Function(function.name or "task"):
        extra["function"] = extension.encode(function)
    return extra


def _workflows(workload: Workload) -> dict[str, object]:
    count = len(workload.workflow_names)
    sizes = np.bincount(workload.workflow, minlength=count)
    energy = workload.columns.get("energy_j")
    total = np.full(count, -1.0)
    if energy is not None:
        total = np.bincount(workload.workflow, weights=energy.astype(np.float64), minlength=count)
        # One unknown task makes its workflow's sum unknown.
        total = np.where(np.isfinite(total), total, -1.0)
    return {
        "id": np.arange(count, dtype=np.int64),
        "ts_submit": _milliseconds(workload.workflow_submit_s),
        "task_count": sizes.astype(np.int32),
        "critical_path_length": np.full(count, -1, np.int32),
        "critical_path_task_count": np.full(count, -1, np.int32),
        "approx_max_concurrent_tasks": np.full(count, -1, np.int32),
        "nfrs": ["{}"] * count,
        "scheduler": [""] * count,
        "total_resources": np.full(count, -1.0),
        "total_memory_usage": np.full(count, -1.0),
        "total_network_usage": np.full(count, -1.0),
        "total_disk_space_usage": np.full(count, -1.0),
        "total_energy_consumption": total,
    }


def _about(workload: Workload) -> dict[str, object]:
    shapes = workload.shapes
    cores = np.array([s.variants[0].cores * s.parts for s in shapes] or [1.0])[workload.shape]
    return {
        "total_workflows": len(workload.workflow_names),
        "total_tasks": len(workload),
        "domain": "",
        "workload_description": workload.name,
        "total_resource_seconds": float((workload.runtime_s * cores).sum()),
    }


def _dropped(workload: Workload) -> tuple[str, ...]:
    lines = []
    if (workload.parent_bytes > 0).any():
        lines.append("bytes handed from task to task")
    if workload.ids is not None and workload.ids != tuple(str(t) for t in range(len(workload))):
        lines.append("ids of tasks: they are numbered")
    if len(workload.workflow_names) > 1 and not workload.one_task_each:
        lines.append("names of workflows: they are numbered")
    held = {"energy_j", "energy_provenance", "wait_s", "disk_s", "network_s", "user", "group", "runtime_known"}
    more = sorted(set(workload.columns) - held)
    if more:
        lines.append(f"columns {', '.join(more)}")
    if workload.machines:
        lines.append("machines")
    return tuple(lines)
