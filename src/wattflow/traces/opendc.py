"""OpenDC 2.4 workloads: ``tasks.parquet`` and ``fragments.parquet``.

Mastenbroek et al., "OpenDC 2.0: Convenient Modeling and Simulation of Emerging Technologies in Cloud Datacenters",
doi:10.1109/CCGrid51090.2021.00069. Times are milliseconds, CPU is MHz, memory MB. A task's runtime is the sum of its
fragments; the MHz are what the fragments demand, not a speed: a faster core does not shorten them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.units import MB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables
from wattflow.traces.source import Probe, read_json, write_folder_atomic
from wattflow.traces.wfformat_schema import Check

REFERENCE_MHZ = 1000.0
"""MHz written for one busy core; any number does, as long as the topology's cores have at least that."""
_NUMBERS = ("id", "submission_time", "duration", "cpu_count", "cpu_capacity", "mem_capacity", "deadline")


def claims(probe: Probe) -> bool:
    """Recognise the folder of the two files, or one of them."""
    if probe.folder:
        return _folder(probe.path) is not None
    return probe.name in ("tasks.parquet", "fragments.parquet") and probe.head.startswith(b"PAR1")


def _folder(path: Path) -> Path | None:
    """Return where the two files are: here, beside a file that was named, or in ``trace`` below an experiment."""
    for candidate in (path if path.is_dir() else path.parent, path / "trace"):
        if (candidate / "tasks.parquet").is_file():
            return candidate
    return None


def read(path: Path) -> Workload:
    """Read a workload; tasks that are independent, or a DAG where ``parents`` are given."""
    folder = _folder(path)
    if folder is None:
        raise InvalidInput(str(path), "has no tasks.parquet")
    table = log_tables.read_parquet([folder / "tasks.parquet"])
    table.need("id", "submission_time", "duration")
    skips = log_tables.Skips(len(table), "tasks")
    numbers = {}
    for name in _NUMBERS:
        numbers[name], bad = table.numbers(name)
        # A deadline that cannot be read is no reason to lose the task.
        if name != "deadline":
            skips.drop(bad, f"whose {name} is not a number")
    usage = np.full(len(table), np.nan)
    if (folder / "fragments.parquet").is_file():
        runtime, usage = _fragments(folder / "fragments.parquet", numbers, skips)
    else:
        runtime = numbers["duration"]
        skips.notes.append("there is no fragments.parquet; the tasks' own durations are used")
    for name, values in (("submission time", numbers["submission_time"]), ("duration", runtime)):
        skips.drop(~(values >= 0) | (values > 1e15), f"with an unknown or negative {name}")
    order = np.argsort(numbers["id"], kind="stable")
    twice = np.zeros(len(table), np.bool_)
    # Sorted by id, a repeat stands beside the first; a stable sort keeps the first as the one that
    # stays.
    twice[order[1:]] = numbers["id"][order][1:] == numbers["id"][order][:-1]
    skips.drop(twice | ~np.isfinite(numbers["id"]), "whose id is missing or came before")
    skips.none_left(path)
    return _workload(table, skips, numbers | {"runtime": runtime, "usage": usage}, folder)


def _fragments(
    path: Path, numbers: dict[str, log_tables.Floats], skips: log_tables.Skips
) -> tuple[log_tables.Floats, log_tables.Floats]:
    """Sum each task's runtime (ms) and mean usage (MHz) over its fragments; tasks without any keep their duration."""
    table = log_tables.read_parquet([path])
    table.need("id", "duration", "cpu_usage")
    id, _ = table.numbers("id")
    duration, _ = table.numbers("duration")
    used, _ = table.numbers("cpu_usage")
    good = np.isfinite(id) & (duration >= 0) & (used >= 0)
    if not good.all():
        skips.notes.append(f"{np.count_nonzero(~good)} fragments with bad values were skipped")
    ids = numbers["id"]
    order = np.argsort(ids, kind="stable")
    # As in `log_tables.match_edges`: clamp, then test for equality.
    at = np.minimum(np.searchsorted(ids[order], id), max(len(ids) - 1, 0))
    task = order[at] if len(ids) else np.zeros(len(id), np.int64)
    good &= (ids[task] == id) if len(ids) else False
    runtime = np.bincount(task[good], weights=duration[good], minlength=len(ids))
    work = np.bincount(task[good], weights=(duration * used)[good], minlength=len(ids))
    has = np.bincount(task[good], minlength=len(ids)) > 0
    if not has.all():
        skips.notes.append(f"{np.count_nonzero(~has)} tasks have no fragment; their duration is used")
    with np.errstate(invalid="ignore", divide="ignore"):
        usage = np.where(has & (runtime > 0), work / runtime, np.nan)
    return np.where(has, runtime, numbers["duration"]), usage


def _workload(
    table: log_tables.TraceTable, skips: log_tables.Skips, numbers: dict[str, log_tables.Floats], folder: Path
) -> Workload:
    keep = skips.keep
    edges = log_tables.match_edges(numbers["id"], keep, table.edges("parents"), skips)
    found = {name: values[keep] for name, values in numbers.items()}
    cores = np.where(found["cpu_count"] > 0, found["cpu_count"], 1.0)
    memory = np.where(found["mem_capacity"] > 0, found["mem_capacity"], 0.0)
    if (memory * MB > 2**62).any() or (cores > 1e9).any():
        raise InvalidInput(str(folder), "a task asks for more than 4 EiB of memory or a billion cores")
    shape, rows = log_tables.distinct(cores.tolist(), memory.tolist())
    origin = float(found["submission_time"].min())
    deadline = (found["deadline"] - origin) / 1000
    columns = {"cpu_capacity_mhz": found["cpu_capacity"]}
    if np.isfinite(found["usage"]).any():
        with np.errstate(invalid="ignore", divide="ignore"):
            share = found["usage"] / np.where(found["cpu_capacity"] > 0, found["cpu_capacity"], np.nan)
        # Usage and capacity are of all cores together, so their ratio is a share of the whole task.
        columns["avg_cpu_pct"] = share * cores * 100
    name = folder.parent.name if folder.name == "trace" else folder.name
    workload = Workload.of_columns(
        name,
        release_s=(found["submission_time"] - origin) / 1000,
        runtime_s=found["runtime"] / 1000,
        shapes=[Shape(0, (Variant(cores=float(str(c)), memory_bytes=round(float(str(m)) * MB)),)) for c, m in rows],
        functions=[Function("task")],
        shape=shape,
        edges=edges,
        deadline_s=np.where(np.isfinite(deadline) & (deadline >= 0), deadline, np.inf),
        ids=tuple(str(int(id)) if float(id).is_integer() else str(id) for id in found["id"].tolist()),
        columns=columns,
        notes=tuple(skips.notes),
    )
    if workload.edge_count:
        # Raises on a cycle, which the columns themselves would not show.
        workload.topological_order()
    return workload


def write(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write the two files into a folder; one fragment a task at full demand, times in whole milliseconds."""
    import pyarrow as pa

    first = [shape.variants[0] for shape in workload.shapes]
    cores = np.array([v.cores * s.parts for v, s in zip(first, workload.shapes, strict=True)] or [1.0])
    memory = np.array([v.memory_bytes * s.parts for v, s in zip(first, workload.shapes, strict=True)] or [0])
    # OpenDC has whole cores.
    count = np.maximum(np.ceil(cores), 1).astype(np.int32)[workload.shape]
    id = np.arange(len(workload), dtype=np.int32)
    duration = np.rint(workload.runtime_s * 1000).astype(np.int64)
    columns: dict[str, object] = {
        "id": id,
        "submission_time": np.rint(workload.release_s * 1000).astype(np.int64),
        "duration": duration,
        "cpu_count": count,
        "cpu_capacity": count * REFERENCE_MHZ,
        "mem_capacity": np.ceil(memory / MB).astype(np.int64)[workload.shape],
    }
    if workload.edge_count:
        start, child, _ = workload.children()
        parents = pa.ListArray.from_arrays(pa.array(workload.parent_start.astype(np.int32)), pa.array(workload.parent))
        children = pa.ListArray.from_arrays(pa.array(start.astype(np.int32)), pa.array(child.astype(np.int32)))
        columns |= {"parents": parents, "children": children}
    # The demand is what the task really uses, also where its cores were rounded up.
    usage = np.minimum(cores[workload.shape], count) * REFERENCE_MHZ
    fragments = {"id": id, "duration": duration, "cpu_usage": usage}

    def fill(folder: Path) -> None:
        from pyarrow import parquet

        for name, table in (("tasks", columns), ("fragments", fragments)):
            with (folder / f"{name}.parquet").open("wb") as file:
                parquet.write_table(pa.table(table), file)

    write_folder_atomic(path, fill)
    return _dropped(workload)


def _dropped(workload: Workload) -> tuple[str, ...]:
    lines = ["times below a millisecond and memory below a megabyte: both are rounded"]
    if any(shape.parts > 1 for shape in workload.shapes):
        lines.append("parts: a task of p parts of c cores is one of p·c cores")
    if any(v.device or len(shape.variants) > 1 for shape in workload.shapes for v in shape.variants):
        lines.append("devices and variants")
    if len(workload.workflow_names) > 1 and not workload.one_task_each:
        lines.append("which workflow a task belongs to")
    if (workload.input_bytes > 0).any() or (workload.output_bytes > 0).any() or (workload.parent_bytes > 0).any():
        lines.append("bytes read, written and handed over")
    if "energy_j" in workload.columns:
        lines.append("energy")
    return tuple(lines)


def claims_experiment(probe: Probe) -> bool:
    """Tell whether this is an experiment, which names topologies and workloads."""
    return not probe.folder and '"topologies"' in probe.text() and '"workloads"' in probe.text()


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment's files and the names of its allocation policies."""

    name: str
    topologies: tuple[Path, ...]
    workloads: tuple[Path, ...]
    policies: tuple[str, ...]


def read_experiment(path: Path) -> Experiment:
    """Read the experiment file; paths in it are relative to its folder."""
    check = Check()
    raw = _object(path)

    def paths(key: str) -> tuple[Path, ...]:
        found = []
        for where, entry in check.objects(raw, key, "$"):
            name = check.text(entry, "pathToFile", where)
            if not name:
                check.problem(where, "has no 'pathToFile'")
            else:
                found.append(path.parent / name)
        if not found:
            check.problem(f"$.{key}", "names no file")
        return tuple(found)

    experiment = Experiment(
        name=check.text(raw, "name", "$") or path.parent.name,
        topologies=paths("topologies"),
        workloads=paths("workloads"),
        policies=tuple(
            check.text(entry, "policyName", where) or check.text(entry, "type", where) or ""
            for where, entry in check.objects(raw, "allocationPolicies", "$")
        ),
    )
    if check.problems:
        raise InvalidInput(str(path), check.problems)
    return experiment


def read_workload(path: Path) -> Workload:
    """Read the first workload that an experiment names."""
    experiment = read_experiment(path)
    first = experiment.workloads[0]
    if not first.exists():
        raise InvalidInput(str(path), f"names the workload {first.name!r}, which is not there")
    workload = read(first)
    notes = workload.notes
    if len(experiment.workloads) > 1:
        notes += (f"the experiment names {len(experiment.workloads)} workloads; this is the first",)
    return dataclasses.replace(workload, name=experiment.name, notes=notes)


def _object(path: Path) -> dict[str, object]:
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise InvalidInput(str(path), "must be a JSON object")
    return raw
