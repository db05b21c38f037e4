"""`wattflow predict`: runtime, needs, watts and joules of tasks, each with its interval and provenance."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wattflow.predict.observations import Observations
    from wattflow.predict.tasks import TaskPrediction

_DATA = Path(os.environ.get("WATTFLOW_DATA", "../shared/data"))
_COLUMNS = (
    "task", "machine", "runtime_s", "runtime_low_s", "runtime_high_s", "request_bytes", "request_cores",
    "power_w", "energy_j", "energy_low_j", "energy_high_j", "provenance", "novelty",
)  # fmt: skip


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file that `wattflow fit` wrote.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A trace, a CSV table of tasks, or lotaru, sizey.")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV to write; stdout without it.")] = None,
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.99, help="Coverage of the intervals.")] = 0.9,
    data: Annotated[Path, typer.Option("--data", help="Folder of the named data sets.")] = _DATA,
) -> None:
    """Predict every task of a trace or table.

    Unknown stays empty: a task that was never profiled has no runtime, only a wide interval. Where the source holds
    true runtimes, the errors are printed on stderr.

    Example: wattflow predict runtimes.model tasks.csv --out predicted.csv
    """
    from wattflow.model.errors import InvalidInput
    from wattflow.predict import modelfile, sources, tasks

    loaded, manifest = modelfile.load(model)
    if not isinstance(loaded, tasks.TaskModel):
        raise InvalidInput(str(model), f"a model of {manifest.kind}; `wattflow predict` needs a model of tasks")
    rows, _ = sources.rows_of(source, data)
    found = tasks.predict(loaded, rows, level)
    if out is None:
        _write(sys.stdout, _rows(rows, found))
    else:
        with out.open("w", newline="") as file:
            _write(file, _rows(rows, found))
    _remarks(rows, found)


def _write(file: object, rows: Iterator[Sequence[object]]) -> None:
    writer = csv.writer(file)  # type: ignore[arg-type]
    writer.writerow(_COLUMNS)
    writer.writerows(rows)


def _rows(rows: Observations, found: TaskPrediction) -> Iterator[Sequence[object]]:
    kinds = found.runtime.provenance()
    energy = found.energy_j
    for i in range(len(rows)):
        watts = found.power.power_w[i] if found.power is not None else float("nan")
        values = (
            found.runtime.runtime_s[i], found.runtime.low_s[i], found.runtime.high_s[i], found.request_bytes[i],
            found.request_cores[i], watts, energy[0][i], energy[1][i], energy[2][i],
        )  # fmt: skip
        shown = ["" if value != value else f"{value:.6g}" for value in map(float, values)]
        yield [rows.task[i], rows.machine[i], *shown, kinds[i].value, found.runtime.novelty[i]]


def _remarks(rows: Observations, found: TaskPrediction) -> None:
    import numpy as np

    from wattflow.predict.evaluate import HeldOut

    true = rows.runtime_s
    known = np.isfinite(true) & (true > 0) & np.isfinite(found.runtime.runtime_s)
    if known.any():
        part = HeldOut(*(values[known] for values in (
            found.runtime.runtime_s, found.runtime.low_s, found.runtime.high_s, true)))  # fmt: skip
        typer.echo(
            f"{int(known.sum())} rows with a true runtime: error {part.median_pct:.1f} % median, "
            f"{part.mean_pct:.1f} % mean, {part.coverage_pct:.1f} % inside their interval",
            err=True,
        )
    for line in found.runtime.advice():
        typer.echo(f"note: {line}", err=True)
