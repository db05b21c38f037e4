"""`wattflow policies`: what can decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.completion import policy_names
from wattflow.cli.screen import chosen_form, deliver, print_tables

if TYPE_CHECKING:
    from rich.table import Table


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Explain one policy.", autocompletion=policy_names)
    ] = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the policies, or explain one.

    Five to start with, then all of them by group: ours, plain rules, published ones and planners. NAME alone explains
    its rule, its numbers and the settings that every policy takes (sleep, queue, order, levels, shield).

    Example: wattflow policies carbon-delay
    """
    from wattflow.lab.show.policy_page import policy_page
    from wattflow.policy import registry

    form = chosen_form(output, out, force)
    # For programs a policy is a row like the others.
    if name is not None and form is o.Form.table:
        typer.echo(policy_page(registry.load(name)), nl=False)
        return
    groups = {one: group for group, some in registry.GROUPS.items() for one in some}
    if form is not o.Form.table:
        chosen = [registry.load(known) for known in (registry.names() if name is None else [name])]
        rows: list[dict[str, object]] = [
            {
                "policy": p.name,
                "group": groups.get(p.name, ""),
                "summary": p.summary,
                "paper": p.paper,
                "fields": str(dict(p.fields)),
            }
            for p in chosen
        ]
        deliver(rows, form, out, {})
        return
    # Those that can be loaded; a broken package must not end the list.
    contributed = tuple(registry.usable())
    more = {"of other packages": contributed} if contributed else {}
    listed = {"to start with": registry.START, **registry.GROUPS, **more}
    print_tables([_listed(title, some) for title, some in listed.items()])


def _listed(title: str, some: Sequence[str]) -> Table:
    """Show policies with what each does and its numbers; the five to start with without their numbers."""
    from rich import box
    from rich.table import Table

    from wattflow.policy import registry

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns = ("policy", "what it does") if some is registry.START else ("policy", "what it does", "paper", "fields")
    for column in columns:
        table.add_column(column, no_wrap=column == "policy")
    for policy in map(registry.load, some):
        fields = ", ".join(f"{key}={value}" for key, value in policy.fields.items())
        table.add_row(*(policy.name, policy.summary, policy.paper, fields)[: len(columns)])
    return table
