"""The user's own CSV tables that models are fitted on and asked about: tasks, usage counters, function calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.profile import Scope
from wattflow.predict import serverless, watts
from wattflow.predict.datasets import Table
from wattflow.predict.observations import Floats, Observations, Texts
from wattflow.traces import registry
from wattflow.traces.source import probe

TASKS, COUNTERS, CALLS, TRACE = "tasks", "watts", "calls", "trace"
_TEXTS = ("machine", "run", "workflow", "source", "data")
_NUMBERS = ("runtime_s", "request_cores", "request_bytes", "used_cores", "peak_bytes", "energy_j")
_WATTS = {"platform_power": Scope.WALL, "power_w": Scope.WALL, "package_power": Scope.PACKAGE}
_CALLS = {
    "function": ("function", "func_name"),
    "machine": ("machine",),
    "start": ("start_s", "start"),
    "duration_s": ("duration_s",),
    "power": ("power_w", "avg_power_W"),
}
_MOST = 1e18
LAYOUTS = f"""a table of tasks has the column task; usage counters have {", ".join(watts.COUNTERS)}; \
function calls have function, machine, start_s, duration_s, power_w"""


def kind_of(path: Path) -> str:
    """Tell what a file is, by its content: a trace, or one of the tables by its header."""
    found = probe(path)
    # Traces first: some have a column named task.
    if registry.claimed(found) is not None:
        return TRACE
    header = set(found.header()) if not found.folder else set()
    # The most special header first.
    if set(watts.COUNTERS) <= header:
        return COUNTERS
    if "task" in header:
        return TASKS
    if all(header & set(names) for names in _CALLS.values()):
        return CALLS
    if path.suffix == ".csv" or path.name.endswith(".csv.gz"):
        raise InvalidInput(str(path), f"neither a trace that wattflow reads nor a table it can learn from: {LAYOUTS}")
    return TRACE  # whose readers then say what is wrong


def task_table(path: Path) -> Observations:
    """Read a CSV of tasks: ``task`` is needed; columns that start with ``size`` are input sizes; the rest is optional.

    Known columns: workflow, machine, run, source, data, runtime_s, request_cores, request_bytes, used_cores,
    peak_bytes, energy_j, finished_s (else rows count in the order they stand). With a ``workflow`` column the task is
    named ``workflow/task``.
    """
    table = Table(path, ("task",))
    sizes = [name for name in table.names if name.startswith("size")]
    unknown = [name for name in table.names if name not in ("task", *_TEXTS, *_NUMBERS, "finished_s", *sizes)]
    if unknown:
        known = ", ".join(("task", *_TEXTS, *_NUMBERS, "finished_s", "size…"))
        raise InvalidInput(str(path), [Problem(name, f"no such column; known: {known}") for name in unknown])
    _check(table, [name for name in (*_NUMBERS, *sizes) if table.has(name)])
    columns: dict[str, object] = {name: table.texts(name) for name in _TEXTS if table.has(name)}
    columns |= {name: table.numbers(name) for name in _NUMBERS if table.has(name)}
    if table.has("finished_s"):
        columns["columns"] = {"finished_s": table.numbers("finished_s")}
    task = table.texts("task")
    empty = np.flatnonzero(task == "")
    if len(empty):
        # Rows as a spreadsheet counts them: the header is the first.
        raise InvalidInput(str(path), [Problem(f"row {row + 2}", "the task has no name") for row in empty.tolist()])
    if table.has("workflow"):
        task = np.array([f"{w}/{t}" for w, t in zip(table.texts("workflow"), task, strict=True)])
    values = np.column_stack([table.numbers(name) for name in sizes]) if sizes else np.zeros((len(table), 0))
    return Observations.of(task=task, sizes=values, size_names=tuple(sizes), **columns)


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage counters of a node as the file has them; ``power_w`` is NaN, ``scope`` None, where no watts stand there."""

    counters: dict[str, Floats]
    power_w: Floats
    scope: Scope | None
    time: Texts


def counter_table(path: Path) -> Usage:
    """Read a CSV of usage counters; watts are ``power_w`` or ``platform_power`` (wall) or ``package_power``."""
    table = Table(path, watts.COUNTERS)
    counters = {name: table.numbers(name) for name in watts.COUNTERS}
    # `~(x >= 0)`: NaN must be refused as well.
    bad = [
        Problem(f"row {row + 2}", f"{name} is no number ≥ 0")
        for name, values in counters.items()
        for row in np.flatnonzero(~(values >= 0)).tolist()
    ]
    if bad:
        raise InvalidInput(str(path), bad)
    label = next((name for name in _WATTS if table.has(name)), None)
    _check(table, [*watts.COUNTERS, *([label] if label else [])])
    power = table.numbers(label) if label else np.full(len(table), np.nan)
    time = table.texts("timestamp") if table.has("timestamp") else np.arange(len(table)).astype(np.str_)
    return Usage(counters, power, _WATTS[label] if label else None, time)


def call_table(path: Path) -> serverless.Calls:
    """Read a CSV of function calls; a call whose duration and watts are empty has not finished and is asked about.

    Columns: function, machine, start_s, duration_s, power_w; block (one endpoint allocation) and warm (1 or 0) may be
    left out. The names of the GreenFaaS set are read too.
    """
    table = Table(path, ("machine", "duration_s"))
    name = {key: next((n for n in names if table.has(n)), "") for key, names in _CALLS.items()}
    missing = [Problem(_CALLS[key][0], "this column is missing") for key, found in name.items() if not found]
    if missing:
        raise InvalidInput(str(path), missing)
    _check(table, ["duration_s", name["power"]])
    start = _seconds(table, name["start"], path)
    function, machine = table.texts(name["function"]), table.texts("machine")
    # Without blocks, a machine is one endpoint.
    block = next((table.texts(n) for n in ("block", "block_id") if table.has(n)), machine)
    warm = np.ones(len(table))
    if table.has("warm"):
        warm = table.numbers("warm")
    elif table.has("endpoint_status"):
        warm = (table.texts("endpoint_status") == "WARM").astype(np.float64)
    begin = start - start.min()
    return serverless.Calls(
        function=function,
        machine=machine,
        block=block,
        wave=serverless.waves(block, begin),
        warm=warm,
        start_s=begin,
        duration_s=_positive(table.numbers("duration_s")),
        power_w=_positive(table.numbers(name["power"])),
    )


def _check(table: Table, names: Sequence[str]) -> None:
    """Refuse numbers below 0 or beyond reason, all of them named; unknown ones may stay."""
    wrong = []
    for name in names:
        values = table.numbers(name)
        bad = np.flatnonzero((values < 0) | (values > _MOST))
        wrong += [
            Problem(f"row {row + 2}", f"{name} is {values[row]:g}; allowed: 0 to {_MOST:g}") for row in bad.tolist()
        ]
    if wrong:
        raise InvalidInput(str(table.path), wrong)


def _positive(values: Floats) -> Floats:
    # 0 seconds or watts are what some meters say for "unknown".
    with np.errstate(invalid="ignore"):
        return np.where(values > 0, values, np.nan)


def _seconds(table: Table, name: str, path: Path) -> Floats:
    values = table.numbers(name)
    # All of them: one bad cell in a column of seconds is told as such below.
    if np.isnan(values).all():  # not numbers: dates
        try:
            values = np.array([np.datetime64(text, "us").astype(np.int64) / 1e6 for text in table.texts(name)])
        except ValueError:
            raise InvalidInput(
                str(path), [Problem(name, "neither seconds nor dates like 2023-09-14 14:45:35")]
            ) from None
    unknown = np.flatnonzero(~np.isfinite(values))
    if len(unknown):
        raise InvalidInput(str(path), [Problem(f"row {row + 2}", f"{name} is missing") for row in unknown.tolist()])
    return values
