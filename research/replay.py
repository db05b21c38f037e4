"""Replays a published claim and prints it beside ours."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from research.papers import experiment as lab
from wattflow.cli import options as o
from wattflow.cli.screen import print_tables, progress_bar, remark

PARTS = "parts-kept"
"""Folder of parts that are done, beside the results; removed with its end."""

if TYPE_CHECKING:
    from rich.table import Table

    from research.papers.findings import Sheet


def replay(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE", help="A file of `experiments/`, by name or path.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Results go here; by default out/experiments/NAME.")
    ] = None,
    workflows: Annotated[
        Path | None,
        typer.Option("--workflows", metavar="FOLDER", help="Other workflows than the file's, where it has a folder."),
    ] = None,
    quiet: o.Quiet = False,
) -> None:
    """Replay a published claim, or list what can be replayed.

    Prints our table beside the published one, writes pictures and results.json, and ends with one line per figure.

    Example: python -m research hpe_table1
    """
    if name is None:
        for known in lab.files():
            typer.echo(f"{known:16s} {lab.load(known).about}")
        return
    chosen = lab.load(name, workflows)
    place = out or Path("out") / "experiments" / chosen.name
    # Some take hours; said before they begin.
    if told := lab.expected(chosen):
        remark(told, quiet)
    with progress_bar(quiet, lines=True) as progress:
        # Parts that are done are kept: an experiment that was stopped goes on from there.
        outcome = lab.run(chosen, progress, place / PARTS)
    typer.echo(f"{chosen.name}: {chosen.about}\nsource: {chosen.source}\n")
    print_tables([_table(sheet) for sheet in outcome.sheets])
    for note in outcome.notes:
        typer.echo(f"- {note}")
    for path in lab.write(chosen, outcome, place):
        remark(f"written: {path}", quiet)
    # After the results are written: until then they are the only copy.
    shutil.rmtree(place / PARTS, ignore_errors=True)
    for figure in outcome.figures:
        typer.echo(str(figure))


def _table(sheet: Sheet) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=sheet.title, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, column in enumerate(sheet.columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in sheet.rows:
        table.add_row(*row)
    return table
