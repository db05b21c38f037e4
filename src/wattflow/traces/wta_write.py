"""Writing a Workflow Trace Archive folder. What the format has no column for goes into ``params``, namespaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wattflow.model.units import MB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import extension
from wattflow.traces.source import write_folder_atomic

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
