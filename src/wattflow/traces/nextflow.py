"""Nextflow execution traces, comma- or tab-separated.

Numbers come raw (bytes, milliseconds, epoch milliseconds) or for people (``1.2 GB``, ``3m 2s``, ``2024-01-31
10:11:12.5``); both are read. Nextflow's own ``GB`` is 1,024³ bytes. A task's name is its process and, in brackets, what
it worked on: the process is the function, the rest its tag. A trace has no dependencies: tasks are released when they
were submitted, unless the run's DAG lies beside it.

A DAG of the run (``-with-dag run.dot``) beside it is laid over the trace. The file draws processes and channels; a
trace has tasks. An edge from process A to process B makes the tasks of A that worked on the same input (tag) parents of
B's task, or all of A's where none has its tag: a step that gathers. A task that ended after the other was submitted was
none of its parents.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.units import duration_s
from wattflow.model.workflow import Function, Machine, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables
from wattflow.traces.source import Probe, read_text, stem
from wattflow.traces.wfformat_parse import parse_time

# Nodes and edges of Graphviz's language as Nextflow writes it; anything else in the file is passed
# over.
_NODE = re.compile(r'^\s*"?([\w.:-]+)"?\s*\[[^\]]*?\blabel="([^"]*)"', re.M)
_EDGE = re.compile(r'^\s*"?([\w.:-]+)"?\s*->\s*"?([\w.:-]+)"?', re.M)


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task of the trace: the run it belongs to, its process and tag, when it was submitted and ended (or nan)."""

    run: int
    process: str
    tag: str
    submit_s: float
    end_s: float


def beside(path: Path) -> Path | None:
    """Return the DAG that lies beside a trace: ``trace.dot`` for ``trace.csv``, or ``dag.dot``."""
    for name in (f"{stem(path)}.dot", "dag.dot"):
        if (path.parent / name).is_file():
            return path.parent / name
    return None


def dag_edges(dag: Path, tasks: Sequence[TracedTask]) -> tuple[np.ndarray, np.ndarray]:
    """Return (parents, children) among the tasks, by their positions.

    Raises:
        InvalidInput: The file names no process of the trace, or its processes are in a cycle.
    """
    above = _process_parents(dag, {task.process for task in tasks})
    by_process: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, task in enumerate(tasks):
        by_process[task.run, task.process].append(i)
    pairs = [
        (parent, i)
        for i, task in enumerate(tasks)
        for process in above.get(task.process, ())
        for parent in _parents(tasks, i, by_process[task.run, process])
    ]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _parents(tasks: Sequence[TracedTask], child: int, before: Sequence[int]) -> list[int]:
    task = tasks[child]
    ended = [i for i in before if not tasks[i].end_s > task.submit_s]  # an unknown end is no reason
    alike = [i for i in ended if task.tag and tasks[i].tag == task.tag]
    # Nobody of the same tag: the step gathers, so all that had ended by then are its parents.
    return alike or ended


def _process_parents(dag: Path, known: Iterable[str]) -> dict[str, list[str]]:
    """Return processes right above each process; channels and operators between them are passed through."""
    text = read_text(dag)
    short: dict[str, list[str]] = defaultdict(list)
    for name in sorted(known):
        # Traces have full names ("NFCORE:RNASEQ:ALIGN"), drawings often the last part alone.
        short[name.rsplit(":", 1)[-1]].append(name)
    named = dict(_NODE.findall(text))
    full = {node: _match(label, short) for node, label in named.items()}
    ends: dict[str, list[str]] = defaultdict(list)
    for above, below in _EDGE.findall(text):
        ends[below].append(above)
    processes = {name: node for node, name in full.items() if name is not None}
    if not processes:
        raise InvalidInput(str(dag), f"draws no process of the trace, which has {', '.join(sorted(known)[:5])}")
    parents = {name: _reached(node, ends, full) for name, node in processes.items()}
    _refuse_cycles(dag, parents)
    return parents


def _match(label: str, short: Mapping[str, Sequence[str]]) -> str | None:
    """Return the process of the trace that a label means: its full name, or the only one that ends so."""
    likely = short.get(label.rsplit(":", 1)[-1], ())
    # Two processes that end alike: a drawing that names only the end says nothing.
    return label if label in likely else likely[0] if len(likely) == 1 else None


def _reached(node: str, ends: Mapping[str, Sequence[str]], full: Mapping[str, str | None]) -> list[str]:
    found, seen, open_nodes = [], {node}, list(ends.get(node, ()))
    while open_nodes:
        above = open_nodes.pop()
        if above in seen:
            continue
        seen.add(above)
        name = full.get(above)
        if name is None:
            open_nodes += ends.get(above, ())
        else:
            found.append(name)
    # Sorted: the walk's order depends on that of lines in the file.
    return sorted(found)


def _refuse_cycles(dag: Path, parents: Mapping[str, Sequence[str]]) -> None:
    # Only processes of the trace: others never ran and wait for nothing.
    left = {name: set(above) & set(parents) for name, above in parents.items()}
    while left:
        free = [name for name, above in left.items() if not above]
        if not free:
            raise InvalidInput(str(dag), f"its processes are in a cycle: {', '.join(sorted(left)[:8])}")
        left = {name: above - set(free) for name, above in left.items() if name not in free}


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
    dag = beside(path)
    edges = None
    if dag is None:
        notes.append("a Nextflow trace has no dependencies; tasks are released when they were submitted")
    else:
        times = (submit - origin) / 1000, (found["complete"] - origin) / 1000
        done = map(TracedTask, workflow.tolist(), processes, tags, times[0].tolist(), times[1].tolist())
        edges = dag_edges(dag, list(done))
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
