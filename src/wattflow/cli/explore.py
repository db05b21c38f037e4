"""`wattflow lab explore`: every point of a design, wherever it was left; one parquet and one report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import print_tables, progress_bar, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.lab.explore.exploration import Exploration


def explore(
    design: Annotated[
        Path, typer.Argument(metavar="DESIGN", help="A file, or the name of ours: explore_small, explore_exde.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where results go; out/NAME by default.")
    ] = None,
    workers: o.ExploreWorkers = "",
    plan: Annotated[bool, typer.Option("--plan", help="Only check the design and count its points.")] = False,
    quiet: o.Quiet = False,
) -> None:
    """Explore a design space of schedulers: frames × policies × clusters × workloads × seeds.

    Finished points are kept in the folder, so a second call runs only what is missing. Writes results.parquet and
    report.html there.

    Example: wattflow lab explore explore_small --workers 2
    """
    from wattflow.lab.explore.design import bundled, read_design
    from wattflow.lab.explore.exploration import explore as run
    from wattflow.lab.explore.explore_page import write_exploration
    from wattflow.lab.explore.store import Store

    chosen = o.workers_of(workers)
    wanted = read_design(bundled(design))
    folder = out if out is not None else Path("out") / wanted.name
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"--out {folder}", "is a file; name a folder")
    for note in wanted.skipped:
        remark(f"left out, cannot work: {note}", quiet)
    if plan:
        # A folder that is not there has no finished point.
        left = len(Store(folder).left(wanted.points)) if folder.exists() else len(wanted.points)
        typer.echo(f"{wanted.name}: {len(wanted.points)} points, {left} to run")
        return
    try:
        with progress_bar(quiet) as progress:
            found = run(wanted, folder, chosen, progress)
    # The store has everything that was finished; only the message is wanted here.
    except KeyboardInterrupt:
        remark(f"finished points are kept in {folder}; the same command goes on from there")
        raise
    report = folder / "report.html"
    write_exploration(report, found)
    _show(found)
    remark(f"results: {found.parquet} ({len(found.rows)} points, {found.reused} from before)", quiet)
    remark(f"report: {report}", quiet)
    # Last, so that the results of all other points are shown and written before the exit code says 2.
    _complain(found)


def _show(found: Exploration) -> None:
    from wattflow.lab.explore.explore_tables import summary_tables

    print_tables(summary_tables(found))


def _complain(found: Exploration) -> None:
    from wattflow.model.errors import WattflowError

    if found.failed:
        shown = "\n".join(f"  - {where}: {why}" for where, why in found.failed[:20])
        raise WattflowError(f"{len(found.failed)} points could not be run; all others are in the results\n{shown}")
