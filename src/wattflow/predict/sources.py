"""Training data by name: the evaluation sets, the user's tables, or traces."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Scope
from wattflow.predict import datasets, serverless, tasks, user_tables, watts
from wattflow.predict.core import INPUTS
from wattflow.predict.modelfile import Manifest
from wattflow.predict.observations import Benchmarks, Observations, concatenate, of_workload
from wattflow.predict.runtime import RuntimeModel
from wattflow.traces import registry

FILES = {
    "lotaru": (f"{datasets.LOTARU}/execution_reports.csv.gz", f"{datasets.LOTARU}/microbenchmarks.csv"),
    "sizey": tuple(f"{datasets.SIZEY}/{name}.csv.gz" for name in ("eager", "iwd", "rnaseq")),
    "greenfaas": (datasets.GREENFAAS,),
    "kepler-platform": (f"{datasets.KEPLER}/acpi_basic.csv.gz",),
    "kepler-package": (f"{datasets.KEPLER}/rapl_basic.csv.gz",),
}
_KINDS = {
    "lotaru": user_tables.TASKS,
    "sizey": user_tables.TASKS,
    "greenfaas": user_tables.CALLS,
    "kepler-platform": user_tables.COUNTERS,
    "kepler-package": user_tables.COUNTERS,
}
_ASKED = {
    user_tables.TASKS: "tasks or a trace",
    user_tables.COUNTERS: "usage counters",
    user_tables.CALLS: "function calls",
}


def kind_of(source: str) -> str:
    """Return ``tasks``, ``watts`` or ``calls``: the kind of model that a source teaches, and can be asked about."""
    if source in _KINDS:
        return _KINDS[source]
    if not Path(source).exists():
        raise InvalidInput(source, f"neither a file nor one of {', '.join(FILES)}")
    found = user_tables.kind_of(Path(source))
    return user_tables.TASKS if found == user_tables.TRACE else found


def need_kind(source: str, kind: str, model: str) -> None:
    """Refuse a source that a model of this kind cannot be asked about."""
    if (found := kind_of(source)) != kind:
        raise InvalidInput(source, f"holds {_ASKED[found]}; {model} is a model of {kind} and needs {_ASKED[kind]}")


def rows_of(source: str, data: Path) -> tuple[Observations, Benchmarks]:
    """Read task rows of an evaluation set (``lotaru``, ``sizey``), a CSV table, or any trace wattflow reads."""
    if source == "lotaru":
        return datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    if source == "sizey":
        return datasets.sizey(data), {}
    if kind_of(source) != user_tables.TASKS:
        raise InvalidInput(source, f"holds {_ASKED[kind_of(source)]}, not tasks")
    path = Path(source)
    if user_tables.kind_of(path) == user_tables.TASKS:
        return user_tables.task_table(path), {}
    return of_workload(registry.load(path)), {}


def usage_of(source: str, data: Path) -> user_tables.Usage:
    """Read usage counters of an evaluation set (``kepler-platform``, ``kepler-package``) or of a CSV."""
    if source in FILES:
        return user_tables.counter_table(data / FILES[source][0])
    return user_tables.counter_table(Path(source))


def calls_of(source: str, data: Path) -> serverless.Calls:
    """Read function calls of ``greenfaas`` or of a CSV."""
    return user_tables.call_table(data / FILES[source][0] if source in FILES else Path(source))


def train(source: str, data: Path, also: Sequence[str] = ()) -> tuple[object, Manifest]:
    """Fit the model of one or several sources of one kind and describe it."""
    kind = kind_of(source)
    for other in also:
        need_kind(other, kind, source)
    files = tuple(entry for name in (source, *also) for entry in describe_files(name, data))
    if kind != user_tables.TASKS and also:
        raise InvalidInput(also[0], f"several sources are learned together for tasks only, not for {kind}")
    if kind == user_tables.CALLS:
        return _train_calls(source, data, files)
    if kind == user_tables.COUNTERS:
        return _train_watts(source, data, files)
    parts = [rows_of(name, data) for name in (source, *also)]
    rows = concatenate([part for part, _ in parts])
    fitted = tasks.fit(rows, {machine: row for _, found in parts for machine, row in found.items()})
    metrics = metrics_of(fitted.runtime) | {"rows": float(len(rows))}
    return fitted, Manifest("tasks", files, metrics, "; ".join(tasks.not_learned(rows)))


def _train_calls(source: str, data: Path, files: tuple[Mapping[str, object], ...]) -> tuple[object, Manifest]:
    calls = calls_of(source, data)
    done = np.flatnonzero(np.isfinite(calls.duration_s) & np.isfinite(calls.power_w))
    # In order of start: what was seen before a call is read from it.
    done = done[np.argsort(calls.start_s[done], kind="stable")]
    if len(done) < 20:
        raise InvalidInput(source, f"{len(done)} calls with duration and watts; at least 20 are needed")
    left_out = len(calls) - len(done)
    calls = calls.take(done)
    model = serverless.fit(calls, serverless.observe(calls), calls.wave)
    metrics = {
        "left_out_median_error": model.calibration.median_error,
        "calls": float(len(calls)),
        "calls_without_energy": float(left_out),
    }
    return model, Manifest("calls", files, metrics)


def _train_watts(source: str, data: Path, files: tuple[Mapping[str, object], ...]) -> tuple[object, Manifest]:
    usage = usage_of(source, data)
    if usage.scope is None:
        raise InvalidInput(source, "no watts: the column power_w, platform_power or package_power is needed to fit")
    good = np.flatnonzero(usage.power_w > 0)
    # Texts that are no numbers keep the order of the file, which is stable.
    good = good[np.argsort(np.array([_moment(text) for text in usage.time[good].tolist()]), kind="stable")]
    counters = {name: values[good] for name, values in usage.counters.items()}
    found = watts.fit(counters, usage.power_w[good], usage.scope)
    metrics = {f"left_out_mean_error_{kind.replace(' ', '_')}": cost for kind, cost in found.costs.items()}
    scope = {Scope.WALL: "wall", Scope.PACKAGE: "package"}.get(usage.scope, str(usage.scope))
    return found, Manifest("watts", files, metrics, f"{scope} watts; most weight: {found.kind}")


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


def describe_files(source: str, data: Path) -> tuple[Mapping[str, object], ...]:
    """Describe every file of a source: path, hash, and the licence that the data folder's manifest states."""
    names = FILES.get(source)
    if names is None:
        # The user's own files are named without their folders: a model file may be shared.
        path = Path(source)
        content = datasets.file_sha256(path) if path.is_file() else ""
        return ({"path": path.name, "sha256": content, "licence": "the user's own"},)
    licences = _licences(data / "MANIFEST.csv")
    return tuple(
        {"path": name, "sha256": datasets.file_sha256(data / name), "licence": licences.get(name, "not stated")}
        for name in names
        if (data / name).exists()
    )


def _licences(manifest: Path) -> dict[str, str]:
    if not manifest.exists():
        return {}
    with manifest.open(newline="") as file:
        rows = list(csv.DictReader(file))
    key = next((k for k in ("file", "path") if rows and k in rows[0]), None)
    return {row[key]: row.get("licence") or row.get("license") or "not stated" for row in rows} if key else {}
