"""What models are trained on by name: the evaluation sets, a table of finished tasks, or a trace."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput, Problem
from wattflow.predict import datasets, serverless, tasks, watts
from wattflow.predict.modelfile import Manifest
from wattflow.predict.observations import Benchmarks, Observations, of_workload
from wattflow.predict.runtime import RuntimeModel

FILES = {
    "lotaru": (f"{datasets.LOTARU}/execution_reports.csv.gz", f"{datasets.LOTARU}/microbenchmarks.csv"),
    "sizey": tuple(f"{datasets.SIZEY}/{name}.csv.gz" for name in ("eager", "iwd", "rnaseq")),
    "greenfaas": (datasets.GREENFAAS,),
    "kepler-platform": (f"{datasets.KEPLER}/acpi_basic.csv.gz",),
    "kepler-package": (f"{datasets.KEPLER}/rapl_basic.csv.gz",),
}
_TEXTS = ("machine", "run", "workflow", "source", "data")
_NUMBERS = ("runtime_s", "request_cores", "request_bytes", "used_cores", "peak_bytes", "energy_j")


def rows_of(source: str, data: Path) -> tuple[Observations, Benchmarks]:
    """Task rows of an evaluation set (``lotaru``, ``sizey``), a CSV table of tasks, or any trace wattflow reads."""
    if source == "lotaru":
        return datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    if source == "sizey":
        return datasets.sizey(data), {}
    path = Path(source)
    if path.suffix == ".csv" or path.name.endswith(".csv.gz"):
        return task_table(path), {}
    if not path.exists():
        raise InvalidInput(source, f"neither a file nor one of {', '.join(FILES)}")
    import wattflow.traces.registry as registry

    return of_workload(registry.load(path)), {}


def task_table(path: Path) -> Observations:
    """A CSV of tasks: ``task`` is needed; columns that start with ``size`` are input sizes; the rest is optional.

    Known columns: workflow, machine, run, source, data, runtime_s, request_cores, request_bytes, used_cores,
    peak_bytes, energy_j. With a ``workflow`` column the task is named ``workflow/task``.
    """
    table = datasets.Table(path, ("task",))
    sizes = [name for name in table.names if name.startswith("size")]
    unknown = [name for name in table.names if name not in ("task", *_TEXTS, *_NUMBERS, *sizes)]
    if unknown:
        known = ", ".join(("task", *_TEXTS, *_NUMBERS, "size…"))
        raise InvalidInput(str(path), [Problem(name, f"no such column; known: {known}") for name in unknown])
    columns: dict[str, object] = {name: table.texts(name) for name in _TEXTS if table.has(name)}
    columns |= {name: table.numbers(name) for name in _NUMBERS if table.has(name)}
    task = table.texts("task")
    empty = np.flatnonzero(task == "")
    if len(empty):
        raise InvalidInput(str(path), [Problem(f"row {row + 2}", "the task has no name") for row in empty.tolist()])
    if table.has("workflow"):
        task = np.array([f"{w}/{t}" for w, t in zip(table.texts("workflow"), task, strict=True)])
    values = np.column_stack([table.numbers(name) for name in sizes]) if sizes else np.zeros((len(table), 0))
    return Observations.of(task=task, sizes=values, size_names=tuple(sizes), **columns)


def train(source: str, data: Path) -> tuple[object, Manifest]:
    """Fit the model of a source and describe it."""
    model: object
    if source == "greenfaas":
        calls, left_out = datasets.greenfaas(data)
        each = np.array([str(i) for i in range(len(calls))])
        model = serverless.fit(calls, serverless.observe(calls), each)
        metrics = {"left_out_median_error": model.calibration.median_error, "calls": float(len(calls)),
                   "calls_without_energy": float(left_out)}  # fmt: skip
        return model, Manifest("calls", describe_files(source, data), metrics)
    if source in ("kepler-platform", "kepler-package"):
        scope = datasets.KEPLER_SCOPES[source.removeprefix("kepler-")]
        counters, measured = datasets.kepler(data, scope.value)
        found = watts.fit(counters, measured, scope)
        metrics = {f"left_out_mean_error_{kind.replace(' ', '_')}": cost for kind, cost in found.costs.items()}
        return found, Manifest("watts", describe_files(source, data), metrics, f"learner: {found.kind}")
    rows, benchmarks = rows_of(source, data)
    fitted = tasks.fit(rows, benchmarks)
    return fitted, Manifest(
        "tasks", describe_files(source, data), metrics_of(fitted.runtime) | {"rows": float(len(rows))}
    )


def metrics_of(model: RuntimeModel) -> dict[str, float]:
    """Errors on inner left-out rows by novelty; what could not be measured is left out."""
    found: dict[str, float] = {}
    for kind, calibration in model.calibrations.items():
        for name, value in (("median", calibration.median_error), ("mean", calibration.mean_error)):
            if np.isfinite(value):
                found[f"left_out_{name}_error_{kind.replace(' ', '_')}"] = value
    return found


def describe_files(source: str, data: Path) -> tuple[Mapping[str, object], ...]:
    """Path, hash, and the licence that the data folder's manifest states, of every file a source is read from."""
    names = FILES.get(source)
    if names is None:
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
