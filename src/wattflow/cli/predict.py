"""`wattflow model predict`: runtime, needs, watts and joules, each with its interval and provenance."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_outputs, never_onto

if TYPE_CHECKING:
    from wattflow.predict.observations import Floats, Observations
    from wattflow.predict.tasks import TaskPrediction

_DATA = Path(os.environ.get("WATTFLOW_DATA", "../shared/data"))
_TASK_COLUMNS = (
    "task", "machine", "runtime_s", "runtime_low_s", "runtime_high_s", "request_bytes", "request_cores",
    "power_w", "energy_j", "energy_low_j", "energy_high_j", "provenance", "novelty",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Answer:
    """A table to write and remarks to print."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    remarks: Sequence[str]


def predict(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model file that `wattflow model fit` wrote, or a packaged one by name."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A trace or a CSV table of tasks; usage counters for a model of watts; calls for one of calls.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="CSV to write; stdout without it.")] = None,
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.99, help="Coverage of the intervals.")] = 0.9,
    data: Annotated[Path, typer.Option("--data", help="Folder of the named data sets.")] = _DATA,
    force: o.Force = False,
) -> None:
    """Predict every task, interval of usage or function call of a file.

    Unknown stays empty: a task that was never profiled has no runtime, only a wide interval. Where the source holds
    the truth, the errors are printed on stderr.

    Example: wattflow model predict runtimes.model tasks.csv --out predicted.csv
    Example: wattflow model predict my.model counters.csv
    """
    from wattflow.files.whole import whole_file
    from wattflow.predict import modelfile, sources

    path = modelfile.find(model)
    loaded, manifest = modelfile.load(path)
    never_onto([path, source], out)
    check_outputs(force, out)
    # Before predicting: a table of calls asked of a model of tasks would give nonsense.
    sources.need_kind(source, manifest.kind, model)
    answers: dict[str, Callable[..., _Answer]] = {"tasks": _tasks, "watts": _watts, "calls": _calls}
    answer = answers[manifest.kind](loaded, source, data, level)
    if out is None:
        _write(sys.stdout, answer)
    else:
        with whole_file(out) as draft, draft.open("w", newline="") as file:
            _write(file, answer)
    for line in answer.remarks:
        typer.echo(line, err=True)


def _write(file: TextIO, answer: _Answer) -> None:
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def _shown(values: Iterable[float]) -> list[str]:
    # NaN is not equal to itself: unknown is an empty cell.
    return ["" if value != value else f"{value:.6g}" for value in map(float, values)]


def _errors(what: str, found: tuple[Floats, Floats, Floats], true: Floats) -> list[str]:
    """Return one sentence on how far the predictions are from the truth, where there is any."""
    import numpy as np

    from wattflow.predict.evaluate import HeldOut

    # Errors of rows that have a prediction and a truth.
    known = np.isfinite(true) & (true > 0) & np.isfinite(found[0])
    if not known.any():
        return []
    part = HeldOut(*(values[known] for values in (*found, true)))
    return [
        f"{int(known.sum())} rows with {what}: error {part.median_pct:.1f} % median, {part.mean_pct:.1f} % mean, "
        f"{part.coverage_pct:.1f} % inside their interval"
    ]


def _tasks(model: object, source: str, data: Path, level: float) -> _Answer:
    from wattflow.predict import sources, tasks

    assert isinstance(model, tasks.TaskModel)
    rows, _ = sources.rows_of(source, data)
    found = tasks.predict(model, rows, level)
    times = (found.runtime.runtime_s, found.runtime.low_s, found.runtime.high_s)
    remarks = _errors("a true runtime", times, rows.runtime_s) + _errors("true joules", found.energy_j, rows.energy_j)
    return _Answer(_TASK_COLUMNS, _task_rows(rows, found), [*remarks, *(f"note: {n}" for n in found.runtime.advice())])


def _task_rows(rows: Observations, found: TaskPrediction) -> Iterator[Sequence[object]]:
    kinds = found.runtime.provenance()
    energy = found.energy_j
    for i in range(len(rows)):
        watts = found.power.power_w[i] if found.power is not None else float("nan")
        values = (
            found.runtime.runtime_s[i], found.runtime.low_s[i], found.runtime.high_s[i], found.request_bytes[i],
            found.request_cores[i], watts, energy[0][i], energy[1][i], energy[2][i],
        )  # fmt: skip
        yield [rows.task[i], rows.machine[i], *_shown(values), kinds[i].value, found.runtime.novelty[i]]


def _watts(model: object, source: str, data: Path, level: float) -> _Answer:
    from wattflow.predict import sources, watts

    assert isinstance(model, watts.WattsModel)
    usage = sources.usage_of(source, data)
    found = model.predict(usage.counters, level)
    far = model.familiar.regime(watts.features(usage.counters)) == watts.FAR
    rows = (
        # Row by row, as a generator: tables may be large.
        [usage.time[i], *_shown(part[i] for part in found), "unlike the rows seen" if far[i] else "like the rows seen"]
        for i in range(len(far))
    )
    remarks = _errors("measured watts", found, usage.power_w)
    if usage.scope not in (None, model.scope):
        remarks.append(f"note: the file's watts are of the {usage.scope}, the model's of the {model.scope}")
    if far.any():
        remarks.append(f"note: {int(far.sum())} rows are unlike those the model was fitted on; lines go on there")
    return _Answer(("timestamp", "power_w", "power_low_w", "power_high_w", "novelty"), rows, remarks)


def _calls(model: object, source: str, data: Path, level: float) -> _Answer:
    import numpy as np

    from wattflow.predict import serverless, sources

    assert isinstance(model, serverless.CallModel)
    calls = sources.calls_of(source, data)
    seen = serverless.observe(calls)
    found = model.predict(calls, seen, level)
    parts = [np.exp(part) for part in model.parts(calls, seen)]
    known = np.isfinite(seen.log_s[:, 0])
    rows = (
        [
            calls.function[i],
            calls.machine[i],
            *_shown([calls.start_s[i], parts[0][i], parts[1][i]]),
            *_shown(part[i] for part in found),
            "" if known[i] else "no finished call here yet",
        ]
        for i in range(len(calls))
    )
    columns = ("function", "machine", "start_s", "duration_s", "power_w", "energy_j", "energy_low_j", "energy_high_j",
               "novelty")  # fmt: skip
    return _Answer(columns, rows, _errors("measured joules", found, calls.energy_j))
