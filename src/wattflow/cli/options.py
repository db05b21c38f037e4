"""Options that several commands share, described once."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from wattflow.cli.completion import cluster_names, policy_names, workload_names
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from wattflow.generate.recipe import Recipe
    from wattflow.lab.run.points import Setup
    from wattflow.model.workload import Workload
    from wattflow.sim import SimOptions

T = TypeVar("T")


class OutputForm(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


class Queue(StrEnum):
    """Rules for when the first task of the queue fits nowhere."""

    skip = "skip"
    strict = "strict"
    easy_backfill = "easy-backfill"


_KINDS = "such as montage:tasks=200; `wattflow workload generate --list` shows what can be made"
Workflows = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKFLOW", help=f"Trace files, or generated workloads {_KINDS}.", autocompletion=workload_names
    ),
]
OneWorkflow = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW", help=f"A trace file, or a generated workload {_KINDS}.", autocompletion=workload_names
    ),
]
ClusterName = Annotated[
    list[str],
    typer.Option(
        "--cluster",
        "-c",
        metavar="NAME|FILE",
        help="Preset name or TOML file; `wattflow clusters` lists.",
        autocompletion=cluster_names,
    ),
]
Output = Annotated[
    OutputForm | None, typer.Option("--output", "-o", help="Form of the results; by default --out's ending.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the results to this file instead of the terminal.")
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write a self-contained HTML report here.")
]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Repeat with seeds 0 … N−1; intervals need two or more.")
]
Baseline = Annotated[
    str,
    typer.Option(
        "--baseline",
        "-b",
        metavar="NAME",
        help="Policy that the others are measured against.",
        autocompletion=policy_names,
    ),
]
Policies = Annotated[
    str,
    typer.Option(
        "--policies",
        "-p",
        metavar="NAMES",
        help="Names with commas between, or `all`; NAME:key=value sets a number, FILE.py:NAME is one of your own.",
        autocompletion=policy_names,
    ),
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="NAMES",
        help="Figures of the table: `headline`, `all`, or names as in -o json, with commas between.",
    ),
]
# The underscore: the plain name is Python's own exception.
RuntimeError_ = Annotated[
    float,
    typer.Option(
        "--runtime-error", metavar="SIGMA", min=0.0, help="Spread (σ of log) of runtime estimates; 0.3 is about 30 %."
    ),
]
PowerError = Annotated[
    float,
    typer.Option(
        "--power-error", metavar="SIGMA", min=0.0, help="Spread (σ of log) of true watts around what policies know."
    ),
]
Estimates = Annotated[
    Path | None,
    typer.Option(
        "--estimates",
        metavar="MODEL",
        help="Policies see the runtimes this model predicts (`wattflow model fit`), not the recorded ones.",
    ),
]
QueueRule = Annotated[
    Queue | None, typer.Option("--queue", help="When the first task fits nowhere; by default as the policy says.")
]
RoundS = Annotated[
    float,
    typer.Option("--round-s", metavar="SECONDS", min=0.0, help="Decide only every so many seconds; 0: at every event."),
]
SleepAfter = Annotated[
    float | None,
    typer.Option(
        "--sleep-after", metavar="SECONDS", min=0.0, help="Idle seconds before a node with a sleep state falls asleep."
    ),
]
CapW = Annotated[
    str | None,
    typer.Option(
        "--cap-w",
        metavar="WATTS|FILE",
        help="With -p power-cap: keep the cluster at or below so many watts; a FILE is a CSV of time,watts, times in "
        "seconds from 0 or ISO 8601; a row holds until the next, and after the last all begin anew.",
    ),
]
_WORKERS = "N|dask://HOST:PORT"
Workers = Annotated[
    str,
    typer.Option(
        "--workers", metavar=_WORKERS, help="Processes, or a Dask cluster; by default several only on long work."
    ),
]
ExploreWorkers = Annotated[
    str, typer.Option("--workers", metavar=_WORKERS, help="Processes, or a Dask cluster; all cores.")
]
Full = Annotated[bool, typer.Option("--full", help="Every policy in the table, not the best eight.")]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there already.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]


def seed(value: int) -> int:
    """Check that a seed fits 63 bits."""
    # Seeds become counters of a 64-bit generator with a sign.
    if value >= 1 << 63:
        raise typer.BadParameter("a seed is a whole number below 2^63")
    return value


def measured(option: str, text: str, read: Callable[[str], T]) -> T:
    """Read a time or a size as typed; what is wrong with it is told with the option's name."""
    try:
        return read(text)
    except ValueError as error:
        raise InvalidInput(option, str(error)) from None


def workers_of(text: str) -> int | str | None:
    """Read processes or the address of a Dask scheduler as typed; None where nothing was."""
    from wattflow.lab.run.work import DASK

    if not text:
        return None
    if any(text.startswith(scheme) and len(text) > len(scheme) for scheme in DASK):
        return text
    # `isdecimal`: "²" is a digit to Python and no number to `int`.
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput("--workers", f"must be a number of processes or dask://host:port, not {text!r}")
    return int(text)


def one_cluster(names: list[str]) -> str:
    """Return the cluster that was named; two would leave one of them out without a word."""
    # Two would leave one of them out without a word.
    if len(names) != 1:
        raise InvalidInput("--cluster", f"is given {len(names)} times ({', '.join(names)}); name one")
    return names[0]


def sim_options(
    queue: Queue | None, round_s: float, sleep_after_s: float | None, errors: tuple[float, float]
) -> SimOptions:
    """Return the simulator's options from what was typed; ``errors`` are those of runtime and power."""
    from wattflow.sim import SimOptions

    # Beyond a spread of 5 factors are larger than e**5: nobody means that.
    for name, value, most in (("--runtime-error", errors[0], 5.0), ("--power-error", errors[1], 5.0)):
        if not 0.0 <= value <= most:
            raise InvalidInput(name, f"is a spread (σ of log) of 0 … {most:g}, not {value:g}")
    for name, seconds in (("--round-s", round_s), ("--sleep-after", sleep_after_s or 0.0)):
        if not math.isfinite(seconds):
            raise InvalidInput(name, f"must be a finite number of seconds, not {seconds:g}")

    return SimOptions(
        queue=None if queue is None else queue.value,
        round_s=round_s,
        sleep_after_s=sleep_after_s,
        runtime_error=errors[0],
        power_error=errors[1],
    )


def names_of(text: str) -> list[str]:
    """Split policies as they were typed: ``a,b:key=value,my.py:name``."""
    from wattflow.policy import spec

    return spec.split(text)


def with_progress(setup: Setup, progress: Callable[[float, str], None] | None) -> Setup:
    """Return the same setup reporting to a progress bar."""
    from dataclasses import replace

    return replace(setup, progress=progress)


def estimated(source: Workload | Recipe, model: Path | None) -> Workload | Recipe:
    """Return the workload as policies may know it: with runtimes that a model predicts, where one was named."""
    if model is None:
        return source
    # Only where a model was named: predictions load numba and scipy.
    from wattflow.model.workload import Workload
    from wattflow.predict import modelfile, tasks
    from wattflow.predict.serving import with_predictions

    if not isinstance(source, Workload):
        raise InvalidInput("--estimates", "predictions need a recorded trace; a generated workload has no history")
    loaded, manifest = modelfile.load(model)
    if not isinstance(loaded, tasks.TaskModel):
        raise InvalidInput(str(model), f"a model of {manifest.kind}; --estimates needs a model of tasks")
    return with_predictions(source, loaded.runtime)
