"""The user's own CSV tables that models are fitted on and asked about: tasks, usage counters."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat

import numpy as np

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.profile import Scope
from wattflow.predict import watts
from wattflow.predict.observations import Floats, Observations, Texts
from wattflow.traces import registry
from wattflow.traces.source import probe

TASKS, COUNTERS, TRACE = "tasks", "watts", "trace"
_TEXTS = ("machine", "run", "workflow", "source", "data")
_NUMBERS = ("runtime_s", "request_cores", "request_bytes", "used_cores", "peak_bytes", "energy_j")
_WATTS = {"platform_power": Scope.WALL, "power_w": Scope.WALL, "package_power": Scope.PACKAGE}
_MOST = 1e18
LAYOUTS = f"a table of tasks has the column task; usage counters have {', '.join(watts.COUNTERS)}"


class Table:
    """A CSV file as columns, with errors that name the file and every missing column."""

    def __init__(self, path: Path, needed: Sequence[str]) -> None:
        from pyarrow import ArrowInvalid, csv

        if not path.exists():
            raise InvalidInput(str(path), "there is no such file")
        try:
            # An open file, since a name with odd bytes is none to Arrow; Arrow then no longer unpacks by the name.
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                self._table = csv.read_csv(file, convert_options=csv.ConvertOptions(strings_can_be_null=True))
        except ArrowInvalid as error:
            raise InvalidInput(str(path), f"not a CSV table: {error}") from None
        self.path = path
        missing = [name for name in needed if name not in self._table.column_names]
        if missing:
            raise InvalidInput(str(path), [Problem(name, "this column is missing") for name in missing])
        if self._table.num_rows == 0:
            raise InvalidInput(str(path), "no rows")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._table.column_names)

    def has(self, name: str) -> bool:
        return name in self._table.column_names

    def texts(self, name: str) -> Texts:
        return np.array(["" if v is None else str(v) for v in self._table[name].to_pylist()], np.str_)

    def numbers(self, name: str) -> Floats:
        """Read numbers; what is no number (a dash) is NaN."""
        return np.array([_number(v) for v in self._table[name].to_pylist()], np.float64)


def _number(value: str | SupportsFloat | None) -> float:
    # pyarrow may read a column as booleans; 1 and 0 are no measurement.
    if value is None or isinstance(value, bool):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


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
