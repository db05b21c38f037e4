"""`wattflow lab`: explore a design of schedulers, and look at frames, the mechanisms that they are made of."""

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
    from wattflow.lab.explore.exploration import Store
    from wattflow.lab.explore.exploration import explore as run
    from wattflow.lab.explore.explore_page import write_exploration

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
    from wattflow.lab.explore.explore_page import summary_tables

    print_tables(summary_tables(found))


def _complain(found: Exploration) -> None:
    from wattflow.model.errors import WattflowError

    if found.failed:
        shown = "\n".join(f"  - {where}: {why}" for where, why in found.failed[:20])
        raise WattflowError(f"{len(found.failed)} points could not be run; all others are in the results\n{shown}")


def frames(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A frame's name or a .toml file; without it, all are listed.")
    ] = "",
    mechanisms: Annotated[bool, typer.Option("--mechanisms", help="Print the mechanism table.")] = False,
    source: Annotated[bool, typer.Option("--toml", help="Print the frame's file.")] = False,
) -> None:
    """List scheduler frames, print the table of mechanisms, or explain one frame."""
    from wattflow.cli.screen import console as clean_console
    from wattflow.frames import library

    console = clean_console()
    if name and source:
        typer.echo(library.frame_text(name), nl=False)
    elif name:
        _explain(console, name)
    elif mechanisms:
        _mechanisms(console)
    else:
        _list(console)


def _list(console: object) -> None:
    from rich.console import Console
    from rich.table import Table

    from wattflow.frames import library

    # For the type checker: rich is not imported at module level.
    assert isinstance(console, Console)
    table = Table("frame", "architecture", "about", box=None)
    for name in library.frame_names():
        frame = library.load_frame(name)
        table.add_row(name, frame.architecture, frame.about)
    console.print(table)
    console.print("`wattflow lab frames NAME` explains one; with --mechanisms it prints the mechanism table.")


def _mechanisms(console: object) -> None:
    from rich.console import Console
    from rich.table import Table

    from wattflow.frames import frame_rules

    assert isinstance(console, Console)
    table = Table("mechanism", "components", "form", "key", "what it does", box=None)
    for mechanism in frame_rules.MECHANISMS:
        first, components = mechanism.name, ", ".join(mechanism.components)
        for form in mechanism.forms:
            table.add_row(first, components, form.name, form.key, form.text)
            # A mechanism's name stands once, beside its first form.
            first = components = ""
    console.print(table)


def _explain(console: object, name: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from wattflow.frames import frame_rules, library

    assert isinstance(console, Console)
    frame = library.load_frame(name)
    # Frame files are the user's own: "[bold]" in a name is text.
    console.print(f"[bold]{escape(frame.name)}[/bold] ({frame.architecture}): {escape(frame.about)}")
    if frame.source:
        console.print(f"source: {escape(frame.source)}")
    placers = frame.placers
    age = "exact" if placers.refresh_s == 0 else f"up to {placers.refresh_s:g} s old"
    decision_ms, message_ms = placers.service.expected_s * 1e3, frame.messages.latency.expected_s * 1e3
    console.print(f"components: {', '.join(frame_rules.components_of(frame))}")
    console.print(
        f"{placers.count} placer(s) by {placers.rule}, {placers.binding} binding, view {age}, "
        f"decisions of {decision_ms:g} ms, messages of {message_ms:g} ms"
    )
    table = Table("mechanism", "form", "what it does", "needs", box=None)
    for mechanism, form in frame_rules.forms_of(frame):
        table.add_row(mechanism.name, form.name, form.text, ", ".join(form.needs))
    console.print(table)
