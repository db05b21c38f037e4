"""Training data: the user's tables, or traces."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat

import numpy as np

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.profile import Scope
from wattflow.predict import tasks, watts
from wattflow.predict.core import INPUTS
from wattflow.predict.modelfile import ModelManifest
from wattflow.predict.observations import Floats, Observations, Texts, concatenate, of_workload
from wattflow.predict.runtime import RuntimeModel
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


def kind_of_file(path: Path) -> str:
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
class CounterUsage:
    """Usage counters of a node as the file has them; ``power_w`` is NaN, ``scope`` None, where no watts stand there."""

    counters: dict[str, Floats]
    power_w: Floats
    scope: Scope | None
    time: Texts


def counter_table(path: Path) -> CounterUsage:
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
    return CounterUsage(counters, power, _WATTS[label] if label else None, time)


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


_ASKED = {
    TASKS: "tasks or a trace",
    COUNTERS: "usage counters",
}


def kind_of(source: str) -> str:
    """Return ``tasks`` or ``watts``: the kind of model that a source teaches, and can be asked about."""
    if not Path(source).exists():
        raise InvalidInput(source, "there is no such file")
    found = kind_of_file(Path(source))
    return TASKS if found == TRACE else found


def need_kind(source: str, kind: str, model: str) -> None:
    """Refuse a source that a model of this kind cannot be asked about."""
    if (found := kind_of(source)) != kind:
        raise InvalidInput(source, f"holds {_ASKED[found]}; {model} is a model of {kind} and needs {_ASKED[kind]}")


def rows_of(source: str) -> Observations:
    """Read task rows of a CSV table, or of any trace wattflow reads."""
    if kind_of(source) != TASKS:
        raise InvalidInput(source, f"holds {_ASKED[kind_of(source)]}, not tasks")
    path = Path(source)
    if kind_of_file(path) == TASKS:
        return task_table(path)
    return of_workload(registry.load(path))


def train(source: str, also: Sequence[str] = ()) -> tuple[object, ModelManifest]:
    """Fit the model of one or several sources of one kind and describe it."""
    kind = kind_of(source)
    for other in also:
        need_kind(other, kind, source)
    files = tuple(_described(name) for name in (source, *also))
    if kind != TASKS and also:
        raise InvalidInput(also[0], f"several sources are learned together for tasks only, not for {kind}")
    if kind == COUNTERS:
        return _train_watts(source, files)
    rows = concatenate([rows_of(name) for name in (source, *also)])
    fitted = tasks.fit(rows)
    metrics = metrics_of(fitted.runtime) | {"rows": float(len(rows))}
    return fitted, ModelManifest("tasks", files, metrics, "; ".join(tasks.not_learned(rows)))


def _train_watts(source: str, files: tuple[Mapping[str, object], ...]) -> tuple[object, ModelManifest]:
    usage = counter_table(Path(source))
    if usage.scope is None:
        raise InvalidInput(source, "no watts: the column power_w, platform_power or package_power is needed to fit")
    good = np.flatnonzero(usage.power_w > 0)
    # Texts that are no numbers keep the order of the file, which is stable.
    good = good[np.argsort(np.array([_moment(text) for text in usage.time[good].tolist()]), kind="stable")]
    counters = {name: values[good] for name, values in usage.counters.items()}
    found = watts.fit(counters, usage.power_w[good], usage.scope)
    metrics = {f"left_out_mean_error_{kind.replace(' ', '_')}": cost for kind, cost in found.costs.items()}
    scope = {Scope.WALL: "wall", Scope.PACKAGE: "package"}.get(usage.scope, str(usage.scope))
    return found, ModelManifest("watts", files, metrics, f"{scope} watts; most weight: {found.kind}")


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def metrics_of(model: RuntimeModel) -> dict[str, float]:
    """Return errors on inner left-out rows by novelty; what could not be measured is left out."""
    found: dict[str, float] = {}
    for kind, parts in model.calibrations.items():
        for known, calibration in zip(INPUTS, parts, strict=True):
            for name, value in (("median", calibration.median_error), ("mean", calibration.mean_error)):
                if np.isfinite(value):
                    found[f"left_out_{name}_error_{kind}_{known}".replace(" ", "_")] = value
    return found


def _described(source: str) -> Mapping[str, object]:
    """Describe a file by name and hash; without its folders, for a model file may be shared."""
    path = Path(source)
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return {"path": path.name, "sha256": content, "licence": "the user's own"}
