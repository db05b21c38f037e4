"""`wattflow model fit`: train a model of runtimes, needs, watts or energy and write it to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.clean import console
from wattflow.cli.screen import check_outputs, never_onto

_DATA = Path(os.environ.get("WATTFLOW_DATA", "../shared/data"))


def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A trace, a CSV table of tasks, usage counters or function calls, or lotaru, sizey, greenfaas, "
            "kepler-platform, kepler-package.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file to write.")],
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further trace or table of tasks to learn from; repeatable.")
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder of the named data sets.")] = _DATA,
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
    model, manifest = sources.train(source, data, also or ())
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
