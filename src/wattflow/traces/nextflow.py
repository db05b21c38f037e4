"""Nextflow execution traces, comma- or tab-separated.

Numbers come raw (bytes, milliseconds, epoch milliseconds) or for people (``1.2 GB``, ``3m 2s``, ``2024-01-31
10:11:12.5``); both are read. Nextflow's own ``GB`` is 1,024³ bytes. A task's name is its process and, in brackets, what
it worked on: the process is the function, the rest its tag. A trace has no dependencies: tasks are released when they
were submitted, unless the run's DAG lies beside it (`nextflow_dag`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.units import duration_s
from wattflow.model.workflow import Function, Machine, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables, nextflow_dag
from wattflow.traces.source import Probe, stem
from wattflow.traces.wfformat_parse import parse_time

_NEEDED = ("name", "status", "realtime")
_GROUPS = ("node", "machine", "governor", "tool", "rep", "run", "run_name", "session_id")
"""Columns that name the run: a file may hold several, and each is a workflow."""
_NAME = re.compile(r"(?P<process>.*?)\s*\((?P<tag>.*)\)")
_SIZES = {"": 1, "B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4, "PB": 1024**5}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?B)?", re.IGNORECASE)


def claims(probe: Probe) -> bool:
    """Recognise a trace, by its header."""
    header = set(probe.header())
    # `name`, `status` and `realtime` alone are too common to be a Nextflow trace.
    return not probe.folder and set(_NEEDED) <= header and bool({"process", "task_id", "native_id"} & header)


def size(text: str) -> float:
    """Return bytes of ``1.2 GB`` in Nextflow's units, where GB is 1,024³."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return float(match[1]) * _SIZES[(match[2] or "").upper()]


def _milliseconds(text: str) -> float:
    return duration_s(text) * 1000


def _epoch_ms(text: str) -> float:
    seconds = parse_time(text)
    if seconds is None:
        raise ValueError(f"{text!r} is not a time")
    return seconds * 1000


def _percent(text: str) -> float:
    return float(text.removesuffix("%"))


_PARSERS: dict[str, Callable[[str], float]] = {
    "realtime": _milliseconds, "duration": _milliseconds, "submit": _epoch_ms, "start": _epoch_ms,
    "complete": _epoch_ms, "memory": size, "peak_rss": size, "rss": size, "read_bytes": size, "write_bytes": size,
    "rchar": size, "wchar": size, "%cpu": _percent, "cpus": float,
}  # fmt: skip


def read(path: Path) -> Workload:
    """Read a trace. Attempts that did not complete, and tasks taken from the cache, are left out and counted."""
    table = log_tables.read_csv(path, *_NEEDED)
    skips = log_tables.Skips(len(table), "rows", table.bad_rows)
    numbers = {}
    for name, parse in _PARSERS.items():
        numbers[name], bad = table.numbers(name, parse)
        if name in ("realtime", "submit"):
            # A size or a percentage that cannot be read costs only itself.
            skips.drop(bad, f"whose {name} cannot be read")
    for status in sorted(set(table.texts("status"))):
        if status not in ("COMPLETED", ""):
            skips.drop(np.array([text == status for text in table.texts("status")]), f"with status {status[:20]}")
    runtime = numbers["realtime"].copy()
    spanned = ~np.isfinite(runtime) | (runtime == -1)
    # Where `realtime` is missing, end less start is the same time at a coarser clock.
    runtime[spanned] = (numbers["complete"] - numbers["start"])[spanned]
    skips.drop(~np.isfinite(runtime), "without a run time")
    skips.drop(runtime < 0, "with a negative run time")
    skips.drop((runtime > 1e15) | (np.abs(np.nan_to_num(numbers["submit"])) > 1e15), "with times beyond reason")
    skips.none_left(path)
    return _workload(table, skips, numbers | {"runtime": runtime}, path)


def _workload(
    table: log_tables.TraceTable, skips: log_tables.Skips, numbers: dict[str, log_tables.Floats], path: Path
) -> Workload:
    keep, notes = skips.keep, skips.notes
    found = {name: values[keep] for name, values in numbers.items()}

    def kept(column: str) -> list[str]:
        return [t if t != "-" else "" for t, stays in zip(table.texts(column), keep.tolist(), strict=True) if stays]

    submit = np.where(np.isfinite(found["submit"]), found["submit"], found["start"])
    if not np.isfinite(submit).all():
        notes.append(f"{np.count_nonzero(~np.isfinite(submit))} tasks have no submission time; they are released at 0")
    origin = float(np.nanmin(submit)) if np.isfinite(submit).any() else 0.0
    release = np.nan_to_num(submit - origin, nan=0.0) / 1000
    cpus = np.where(found["cpus"] > 0, found["cpus"], 1.0)
    # Memory that was asked for, else what was used at most: a task needs room for that.
    memory = np.where(found["memory"] > 0, found["memory"], np.nan_to_num(found["peak_rss"], nan=0.0))
    if (cpus > 1e6).any() or (memory > 2**62).any():
        raise InvalidInput(str(path), "a task asks for more than a million cores or 4 EiB of memory")
    processes, tags = _processes(kept("process"), kept("tag"), kept("name"))
    # A column `tool` names the program in some shared traces; it is the better function where it is
    # there.
    functions = [tool or process for tool, process in zip(kept("tool"), processes, strict=True)]
    function, names = log_tables.distinct(functions)
    shape, rows = log_tables.distinct(function.tolist(), cpus.tolist(), np.maximum(memory, 0).astype(np.int64).tolist())
    # A file without any column that names its run is one workflow.
    workflow, groups = log_tables.distinct(
        *[kept(column) for column in _GROUPS if table.has(column)] or [[""] * len(cpus)]
    )
    machine = [a or b or c for a, b, c in zip(kept("hostname"), kept("machine"), kept("node"), strict=True)]
    if (found["runtime"] == 0).any():
        notes.append(
            f"{np.count_nonzero(found['runtime'] == 0)} tasks have a run time of 0 (coarse clock) and are kept"
        )
    dag = nextflow_dag.beside(path)
    edges = None
    if dag is None:
        notes.append("a Nextflow trace has no dependencies; tasks are released when they were submitted")
    else:
        times = (submit - origin) / 1000, (found["complete"] - origin) / 1000
        done = map(nextflow_dag.Done, workflow.tolist(), processes, tags, times[0].tolist(), times[1].tolist())
        edges = nextflow_dag.edges(dag, list(done))
        release = _released(release, workflow, edges[1])
        notes.append(f"{len(edges[0])} dependencies are inferred from {dag.name} by process and tag")
    ids = _ids(kept("task_id"), len(groups), workflow)
    return Workload.of_columns(
        stem(path),
        release_s=release,
        runtime_s=found["runtime"] / 1000,
        shapes=[Shape(_int(f), (Variant(cores=_float(c), memory_bytes=_int(m)),)) for f, c, m in rows],
        functions=[Function(str(name)) for (name,) in names],
        shape=shape,
        workflow=workflow,
        workflow_names=tuple(" ".join([stem(path), *(str(part) for part in group if part)]) for group in groups),
        ids=ids,
        edges=edges,
        machines=tuple(Machine(name) for name in dict.fromkeys(machine) if name),
        columns=_columns(found, machine, origin) | _tags(tags),
        notes=tuple(notes),
    )


def _processes(processes: list[str], tags: list[str], names: list[str]) -> tuple[list[str], list[str]]:
    """Return the process and tag of each task; where the trace has no columns for them, its name tells both."""
    told = [_NAME.fullmatch(name) for name in names]
    process = [
        known or (parts["process"] if parts else name)
        for known, parts, name in zip(processes, told, names, strict=True)
    ]
    # ``(7)`` alone counts the tasks of a process that has no tags.
    tag = [
        known or (parts["tag"] if parts and not parts["tag"].isdigit() else "")
        for known, parts in zip(tags, told, strict=True)
    ]
    return process, tag


def _released(release: log_tables.Floats, workflow: np.ndarray, children: np.ndarray) -> log_tables.Floats:
    """Release tasks with parents with their run: their submission told when the parents had ended."""
    # The run's own beginning, not 0: a file may hold several runs.
    first = np.full(int(workflow.max()) + 1, np.inf)
    np.minimum.at(first, workflow, release)
    waits = np.zeros(len(release), np.bool_)
    waits[children] = True
    return np.where(waits, first[workflow], release)


def _columns(found: dict[str, log_tables.Floats], machine: list[str], origin: float) -> dict[str, np.ndarray]:
    """Tell what was recorded of each task besides its runtime."""
    columns = {
        "avg_cpu_pct": found["%cpu"],
        "peak_memory_bytes": found["peak_rss"],
        "read_bytes": found["read_bytes"],
        "written_bytes": found["write_bytes"],
        "read_chars": found["rchar"],
        "written_chars": found["wchar"],
        "start_s": (found["start"] - origin) / 1000,
    }
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    return columns | ({"machine": np.array(machine, np.str_)} if any(machine) else {})


def _tags(tags: list[str]) -> dict[str, np.ndarray]:
    """Return the tag of each task: the sample or input it worked on; nothing where the trace has none."""
    return {"tag": np.array(tags, np.str_)} if any(tags) else {}


def _ids(task_ids: list[str], groups: int, workflow: np.ndarray) -> tuple[str, ...] | None:
    """Return task ids, made unique by the run they belong to; None where the trace has none."""
    if groups > 1:
        # Task ids begin at 1 in every run.
        task_ids = [f"{run}.{id}" for run, id in zip(workflow.tolist(), task_ids, strict=True)]
    return tuple(task_ids) if all(task_ids) and len(set(task_ids)) == len(task_ids) else None


def _int(value: object) -> int:
    return int(str(value))


def _float(value: object) -> float:
    return float(str(value))
