"""`wattflow policies`: what can decide."""

from __future__ import annotations

from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.completion import policy_names
from wattflow.cli.screen import chosen_form, deliver, print_tables


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Explain one policy.", autocompletion=policy_names)
    ] = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the policies, or explain one.

    The list has what each does, its paper, and its tunable fields; NAME alone explains its rule and its numbers.

    Example: wattflow policies carbon-delay
    """
    from rich import box
    from rich.table import Table

    from wattflow.lab.show.policy_page import policy_page
    from wattflow.policy import registry

    form = chosen_form(output, out, force)
    chosen = [registry.load(known) for known in (registry.names() if name is None else [name])]
    rows = [{"policy": p.name, "summary": p.summary, "paper": p.paper, "fields": dict(p.fields)} for p in chosen]
    if form is not o.Form.table:
        deliver([{**row, "fields": str(row["fields"])} for row in rows], form, out, {})
        return
    if name is not None:
        typer.echo(policy_page(chosen[0]), nl=False)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("policy", "what it does", "paper", "fields"):
        table.add_column(column, no_wrap=column == "policy")
    for row in rows:
        fields = row["fields"]
        shown = ", ".join(f"{key}={value}" for key, value in fields.items()) if isinstance(fields, dict) else ""
        table.add_row(str(row["policy"]), str(row["summary"]), str(row["paper"]), shown)
    print_tables([table])
