"""`wattflow lab frames`: list the frames, print the mechanism table, explain one."""

from __future__ import annotations

from typing import Annotated

import typer


def frames(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A frame's name or a .toml file; without it, all are listed.")
    ] = "",
    mechanisms: Annotated[bool, typer.Option("--mechanisms", help="Print the mechanism table.")] = False,
    source: Annotated[bool, typer.Option("--toml", help="Print the frame's file.")] = False,
) -> None:
    """List scheduler frames, print the table of mechanisms, or explain one frame."""
    from wattflow.cli.clean import console as clean_console
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

    from wattflow.frames import mechanism_table

    assert isinstance(console, Console)
    table = Table("mechanism", "components", "form", "key", "what it does", box=None)
    for mechanism in mechanism_table.MECHANISMS:
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

    from wattflow.frames import library, mechanism_table

    assert isinstance(console, Console)
    frame = library.load_frame(name)
    # Frame files are the user's own: "[bold]" in a name is text.
    console.print(f"[bold]{escape(frame.name)}[/bold] ({frame.architecture}): {escape(frame.about)}")
    if frame.source:
        console.print(f"source: {escape(frame.source)}")
    placers = frame.placers
    age = "exact" if placers.refresh_s == 0 else f"up to {placers.refresh_s:g} s old"
    decision_ms, message_ms = placers.service.expected_s * 1e3, frame.messages.latency.expected_s * 1e3
    console.print(f"components: {', '.join(mechanism_table.components_of(frame))}")
    console.print(
        f"{placers.count} placer(s) by {placers.rule}, {placers.binding} binding, view {age}, "
        f"decisions of {decision_ms:g} ms, messages of {message_ms:g} ms"
    )
    table = Table("mechanism", "form", "what it does", "needs", box=None)
    for mechanism, form in mechanism_table.forms_of(frame):
        table.add_row(mechanism.name, form.name, form.text, ", ".join(form.needs))
    console.print(table)
