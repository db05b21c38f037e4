"""`wattflow fit`: train a model of runtimes, needs, watts or energy and write it to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

_DATA = Path(os.environ.get("WATTFLOW_DATA", "../shared/data"))


def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A trace, a CSV table of tasks, or lotaru, sizey, greenfaas, kepler-platform, kepler-package.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file to write.")],
    data: Annotated[Path, typer.Option("--data", help="Folder of the named data sets.")] = _DATA,
) -> None:
    """Train a model on finished tasks and write it with its data's manifest and its left-out errors.

    Runtime, memory, cores and watts are learned apart. Settings are chosen on rows left out of the training rows.

    Example: wattflow fit lotaru runtimes.model
    """
    from rich.console import Console
    from rich.table import Table

    from wattflow.predict import modelfile, sources

    model, manifest = sources.train(source, data)
    digest = modelfile.save(out, model, manifest)
    table = Table("metric", "value")
    for name, value in manifest.metrics.items():
        table.add_row(name.replace("_", " "), f"{value:.4g}")
    Console().print(table)
    for entry in manifest.data:
        typer.echo(f"trained on {entry['path']} ({entry['licence']})", err=True)
    typer.echo(f"wrote {out}, {manifest.kind} model {digest[:12]}", err=True)
