"""FlowBench: repeated Pegasus runs of one DAG, with injected anomalies.

Jin et al., "Workflow Anomaly Detection with Graph Neural Networks", doi:10.1109/WORKS56498.2022.00010. A CSV has one
row per task and run; the DAG lies beside it, in ``dags``, as adjacency lists (task → children). Each run becomes a
workflow. A task's runtime includes its stage-in and stage-out, so their bytes are recorded but not transferred again.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Task, Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents, log_tables
from wattflow.traces.source import Probe, read_json, stem
from wattflow.traces.wfformat_parse import function_of
from wattflow.traces.wfformat_schema import Check, check_graph

_NEEDED = ("run", "task", "runtime", "ready")
_DAG = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*\[\s*("|\])')


def claims(probe: Probe) -> bool:
    """Recognise a table of runs, by its header."""
    return not probe.folder and set(_NEEDED) <= set(probe.header())


def claims_dag(probe: Probe) -> bool:
    """Recognise a JSON object whose first value is a list of names, or empty."""
    # A WfFormat document may begin alike; it names its workflow early.
    return not probe.folder and _DAG.match(probe.text()) is not None and '"workflow"' not in probe.text()[:2000]


def read_dag(path: Path) -> Workload:
    """Read the structure alone. Runtimes are unknown: 1 s stands in, estimates are unknown."""
    name = stem(path)
    parents = _parents(path)
    tasks = tuple(Task(id, id, function_of(id), None, parents=tuple(above)) for id, above in parents.items())
    return documents.to_workload([Workflow(name, tasks)], name)


def _parents(path: Path) -> dict[str, list[str]]:
    """Return parents of each task, from the lists of children."""
    raw = read_json(path)
    check = Check()
    if not isinstance(raw, dict) or not raw:
        raise InvalidInput(str(path), "must be an object of tasks, each with a list of its children")
    parents: dict[str, list[str]] = {id: [] for id in raw}
    for id in raw:
        for child in check.texts(raw, id, "$"):
            parents.setdefault(child, []).append(id)
    ids = list(parents)
    check_graph(check, [f"task {id!r}" for id in ids], ids, [parents[id] for id in ids])
    if check.problems:
        raise InvalidInput(str(path), check.problems)
    # Repeats in a list of children are one edge.
    return {id: list(dict.fromkeys(above)) for id, above in parents.items()}


def _dag_beside(path: Path) -> Path | None:
    # The published archive has DAGs in "dags"; copies may lie beside the table.
    for folder in (path.parent / "dags", path.parent):
        for ending in (".json", ".json.gz"):
            candidate = folder / f"{stem(path)}{ending}"
            if candidate.is_file():
                return candidate
    return None


def read(path: Path) -> Workload:
    """Read all runs, one workflow each, all submitted at 0: when the runs took place is not in the data."""
    table = log_tables.read_csv(path, *_NEEDED)
    skips = log_tables.Skips(len(table), "rows", table.bad_rows)
    names = ("runtime", "execute_start", "stage_in_bytes", "stage_out_bytes", "kickstart_executables_cpu_time")
    numbers = {}
    for name in names:
        numbers[name], bad = table.numbers(name)
        if name == "runtime":
            skips.drop(bad, "whose runtime is not a number")
    runtime = numbers["runtime"]
    # -1 is the data's own "unknown", apart from times that are plainly wrong.
    skips.drop(~np.isfinite(runtime) | (runtime == -1), "of unknown runtime")
    skips.drop((runtime < 0) | (runtime > 1e15), "with a negative runtime")
    runs, ids = table.texts("run"), table.texts("task")
    # The separator cannot be in either text, so pairs stay apart.
    _, first = np.unique([f"{run}\0{id}" for run, id in zip(runs, ids, strict=True)], return_index=True)
    again = np.ones(len(table), np.bool_)
    again[first] = False
    skips.drop(again, "that repeat a task of their run")
    skips.none_left(path)
    dag = _dag_beside(path)
    notes = [*skips.notes, "the runs are separate executions; all are submitted at 0"]
    if dag is None:
        notes.append("no DAG lies beside the runs; tasks are released when they were ready and have no parents")
    return _workload(_Rows(table, numbers, skips.keep), _parents(dag) if dag else None, (stem(path), notes))


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    table: log_tables.TraceTable
    numbers: dict[str, log_tables.Floats]
    keep: log_tables.Mask


def _workload(rows: _Rows, parents: dict[str, list[str]] | None, about: tuple[str, list[str]]) -> Workload:
    name, notes = about
    texts = {c: rows.table.texts(c) for c in ("run", "task", "anomaly_type", "type", "kickstart_hostname")}
    ready, _ = rows.table.numbers("ready")
    members: dict[str, list[Task]] = {}
    kept: dict[str, list[int]] = {}
    for i in np.flatnonzero(rows.keep).tolist():
        run, id = texts["run"][i], texts["task"][i]
        # With a DAG its edges say when a task is ready; without one only the recorded time can.
        released = float(ready[i]) if parents is None and ready[i] > 0 else 0.0
        task = _task(id, rows.numbers, i, texts["kickstart_hostname"][i])
        members.setdefault(run, []).append(dataclasses.replace(task, submit_s=released))
        kept.setdefault(run, []).append(i)
    found, order = [], []
    lost = 0
    for run, tasks in members.items():
        here = {task.id for task in tasks}
        # Runs may lack tasks that failed: edges to those are dropped and counted.
        above = {} if parents is None else {id: [p for p in parents.get(id, ()) if p in here] for id in here}
        lost += sum(len(parents.get(id, ())) - len(above[id]) for id in here) if parents else 0
        tasks = [dataclasses.replace(task, parents=tuple(above.get(task.id, ()))) for task in tasks]
        kinds = sorted({texts["anomaly_type"][i] for i in kept[run]} - {""})
        found.append(Workflow(f"{name}-{run}", tuple(tasks), attributes={"anomalies": kinds} if kinds else {}))
        order += kept[run]
    if lost:
        notes.append(f"{lost} dependencies on tasks that a run does not have were left out")
    workload = documents.to_workload(found, name, notes)
    columns = dict(workload.columns)
    columns["anomaly"] = np.array([texts["anomaly_type"][i] for i in order], np.str_)
    columns["kind"] = np.array([texts["type"][i] for i in order], np.str_)
    return dataclasses.replace(workload, name=name, columns=columns)


def _task(id: str, numbers: dict[str, log_tables.Floats], i: int, host: str) -> Task:
    runtime = float(numbers["runtime"][i])
    cpu = float(numbers["kickstart_executables_cpu_time"][i])

    def whole(name: str) -> int | None:
        value = float(numbers[name][i])
        # Within what a signed 64-bit column holds; NaN compares false.
        return int(value) if 0 <= value < 2**63 else None

    start = float(numbers["execute_start"][i])
    return Task(
        id=id,
        name=id,
        function=function_of(id),
        runtime_s=runtime,
        machine=host or None,
        start_s=start if start >= 0 else None,
        avg_cpu_pct=100 * cpu / runtime if runtime > 0 and cpu >= 0 else None,
        read_bytes=whole("stage_in_bytes"),
        written_bytes=whole("stage_out_bytes"),
    )
