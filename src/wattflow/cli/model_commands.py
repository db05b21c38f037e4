"""`wattflow model`: train a model of runtimes, needs, watts or energy; predict with it; tune the learned policy."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_outputs, console, never_onto

if TYPE_CHECKING:
    from wattflow.learn.recorded import Recorded
    from wattflow.predict.observations import Floats, Observations
    from wattflow.predict.tasks import TaskPrediction


def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A trace, or a CSV table of tasks or of usage counters.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file to write.")],
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further trace or table of tasks to learn from; repeatable.")
    ] = None,
    force: o.Force = False,
) -> None:
    """Train a model on finished tasks and write it with its data's manifest and its left-out errors.

    What a file holds is told by its content. Runtime, memory, cores and watts are learned apart. Members and their
    weights are chosen on runs, machines or blocks of time left out of the training rows.

    Example: wattflow model fit run1.csv runtimes.model --also run2.csv
    """
    from rich.table import Table

    from wattflow.predict import modelfile, sources

    # Before training, which may take minutes.
    never_onto([source, *(also or ())], out)
    check_outputs(force, out)
    model, manifest = sources.train(source, also or ())
    digest = modelfile.save(out, model, manifest)
    table = Table("metric", "value")
    for name, value in manifest.metrics.items():
        table.add_row(name.replace("_", " "), f"{value:.4g}")
    console().print(table)
    for entry in manifest.data:
        typer.echo(f"trained on {entry['path']} ({entry['licence']})", err=True)
    if manifest.note:
        typer.echo(f"note: {manifest.note}", err=True)
    typer.echo(f"wrote {out}, {manifest.kind} model {digest[:12]}", err=True)


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
        typer.Argument(metavar="MODEL", help="Model file that `wattflow model fit` wrote."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A trace or a CSV table of tasks; usage counters for a model of watts.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="CSV to write; stdout without it.")] = None,
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.99, help="Coverage of the intervals.")] = 0.9,
    force: o.Force = False,
) -> None:
    """Predict every task or interval of usage of a file.

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
    # Before predicting: a table of counters asked of a model of tasks would give nonsense.
    sources.need_kind(source, manifest.kind, model)
    answers: dict[str, Callable[..., _Answer]] = {"tasks": _tasks, "watts": _watts}
    answer = answers[manifest.kind](loaded, source, level)
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


def _tasks(model: object, source: str, level: float) -> _Answer:
    from wattflow.predict import sources, tasks

    assert isinstance(model, tasks.TaskModel)
    rows = sources.rows_of(source)
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


def _watts(model: object, source: str, level: float) -> _Answer:
    from wattflow.predict import sources, watts

    assert isinstance(model, watts.WattsModel)
    usage = sources.counter_table(Path(source))
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


def learn(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE...]",
            help="Folders with the journal of an engine, or workloads that were run, oldest first.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="FOLDER|URL", help="The store of a server, its own folder or postgresql://…; only read."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Candidate weights to write (.npz).")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Train nothing: are these weights worse than --from by now?"),
    ] = None,
    attempts: Annotated[
        list[Path] | None,
        typer.Option(
            "--attempts", metavar="FILE", help="The run of each workload (parquet of `simulate --attempts`, `run`)."
        ),
    ] = None,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    weights_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Weights to go on from; those in use by default.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.0, help="How long to train, without setting up.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Fixes directions.")] = 1,
    force: o.Force = False,
) -> None:
    """Fine-tune the learned policy on recorded runs, and put the candidate to a shadow test beside the weights in use.

    Two thirds of the record, the older, are trained on; the last third is the test. The candidate is written with its
    card and the verdict in any case; WATTFLOW_WEIGHTS=FILE uses it, deleting that setting goes back. With --check a
    later record is replayed under promoted weights and under those before: exit code 1 means that they should go.

    With --store the finished workflows of a server are the record; it may be running. `wattflow up -p learned --learn`
    does all of this by itself.

    Example: wattflow model learn trace.json --attempts run.parquet -c mixed --out candidate.npz
    """
    from dataclasses import replace

    from wattflow.learn import evolve
    from wattflow.model.errors import InvalidInput
    from wattflow.policy import weights

    sources = sources or []
    if not sources and store is None:
        raise InvalidInput("SOURCE", "name what was recorded: folders with journals, workloads, or --store")
    # Exactly one of the two.
    if (out is None) == (check is None):
        raise InvalidInput("--out", "give either the file to write, or --check with the weights to try")
    present = weights.load(weights_file)[0] if weights_file else weights.current()
    if check is not None:
        # Both are loaded before anything is replayed.
        tried = weights.load(check)[0]
        verdict = evolve.shadow(present, tried, evolve.tested(_blocks(sources, attempts or [], cluster, store)))
        typer.echo(f"{'alarm, go back' if verdict.alarm else 'no alarm'}: {verdict}")
        # For scripts: the exit code is the verdict.
        raise typer.Exit(1 if verdict.alarm else 0)
    assert out is not None
    never_onto([*sources, *map(str, attempts or ())], out)
    check_outputs(force, out)
    recent, held = evolve.parted(_blocks(sources, attempts or [], cluster, store))
    settings = replace(evolve.USUAL, seed=seed)
    tuner = evolve.FineTuner(present, recent, settings=settings)
    candidate = tuner.run(seconds)
    verdict = evolve.shadow(present, candidate, held)
    base = str(weights_file) if weights_file else "weights in use"
    # Also where it was not promoted: the card says so, and the user decides.
    weights.save(out, candidate, evolve.card(tuner, verdict, [*sources, *(["a store"] if store else [])], base))
    typer.echo(f"{tuner.progress.generation} generations on {len(recent)} recorded trials")
    typer.echo(f"shadow test, {'promoted' if verdict.promoted else 'not promoted'}: {verdict}")
    typer.echo(f"wrote {out}", err=True)


def _blocks(sources: list[str], attempts: list[Path], clusters: list[str], store: str | None) -> list[Recorded]:
    from wattflow.clusters import load_cluster
    from wattflow.lab.run.run_file import read_run
    from wattflow.learn import recorded
    from wattflow.model.errors import InvalidInput
    from wattflow.model.workload import Workload
    from wattflow.sim.inputs import source_of

    made: list[Recorded] = []
    traces = [one for one in sources if not Path(one).is_dir()]
    # Only workloads have runs; journals hold their own.
    if attempts and len(attempts) != len(traces):
        raise InvalidInput("--attempts", f"{len(attempts)} runs for {len(traces)} workloads: give one for each")
    runs = iter(attempts)
    for one in sources:
        if Path(one).is_dir():
            workload, there = recorded.from_journal(one)
        else:
            there, source = load_cluster(o.one_cluster(clusters)), source_of(one)
            workload = source if isinstance(source, Workload) else source.draw(0)
            if attempts:
                run = read_run(next(runs))
                workload = recorded.with_attempts(workload, run.attempts, there, run.names)
        made += recorded.blocks(Path(one).name, workload, there)
    return made + (_stored(store) if store is not None else [])


def _stored(store: str) -> list[Recorded]:
    """Return blocks of a server's finished workflows."""
    from wattflow.runtime.home import Home
    from wattflow.server.history import read_history
    from wattflow.store.schema import read_store

    place = Path(store)
    # A folder is a server's home; anything else is a database's URL.
    return read_history(read_store(Home(place).store if place.is_dir() else store)).blocks("store")
