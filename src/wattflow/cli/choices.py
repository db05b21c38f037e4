"""`wattflow policies` and `clusters`: what can decide, and what work can run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.completion import cluster_names, policy_name
from wattflow.cli.screen import chosen_form, deliver, plain_table, print_tables
from wattflow.model.errors import MissingData

if TYPE_CHECKING:
    from rich.table import Table

    from wattflow.lab.show.result_tables import Row
    from wattflow.model.cluster import Cluster


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Explain one policy.", autocompletion=policy_name)
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
    if name is not None and form is o.OutputForm.table:
        typer.echo(policy_page(registry.load(name)), nl=False)
        return
    groups = {one: group for group, some in registry.GROUPS.items() for one in some}
    if form is not o.OutputForm.table:
        chosen = [registry.load(known) for known in (registry.names() if name is None else [name])]
        rows: list[dict[str, object]] = [
            {"policy": p.name, "group": groups.get(p.name, ""), "summary": p.summary, "paper": p.paper,
             "fields": str(dict(p.fields))}
            for p in chosen
        ]  # fmt: skip
        deliver(rows, form, out, {})
        return
    # Those that can be loaded; a broken package must not end the list.
    contributed = tuple(registry.usable())
    more = {"of other packages": contributed} if contributed else {}
    listed = {"to start with": registry.START, **registry.GROUPS, **more}
    print_tables([_listed(title, some) for title, some in listed.items()])


def _listed(title: str, some: Sequence[str]) -> Table:
    """Show policies with what each does and its numbers; the five to start with without their numbers."""
    from wattflow.policy import registry

    rows = [
        {"policy": policy.name, "what it does": policy.summary, "paper": policy.paper,
         "fields": ", ".join(f"{key}={value}" for key, value in policy.fields.items())}
        for policy in map(registry.load, some)
    ]  # fmt: skip
    return plain_table(rows, ("policy", "what it does") if some is registry.START else (), title=title)


def clusters(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE", help="Show one preset or cluster file in full.", autocompletion=cluster_names
        ),
    ] = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the cluster presets, or show one.

    One preset or file comes with its nodes, devices, power profiles, and what in it is assumed.
    """
    from wattflow.clusters import load_cluster, preset_names

    form = chosen_form(output, out, force)
    if name is not None:
        _show_one(load_cluster(name), form, out)
        return
    rows = [_preset_row(preset) for preset in preset_names()]
    if form is not o.OutputForm.table:
        deliver(rows, form, out, {})
        return
    print_tables([plain_table(rows)])


def _preset_row(preset: str) -> Row:
    from wattflow.clusters import load_cluster

    try:
        cluster = load_cluster(preset)
    # One preset needs the folder of real data; the others are listed all the same.
    except MissingData as error:
        return {"cluster": preset, "nodes": None, "cores": None, "devices": "", "about": f"not here: {error}"}
    kinds: dict[str, int] = {}
    for node in cluster.nodes:
        for device in node.devices:
            kinds[device.kind] = kinds.get(device.kind, 0) + 1
    devices = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    sizes = {"nodes": len(cluster.nodes), "cores": cluster.total_cores}
    return {"cluster": preset, **sizes, "devices": devices, "about": cluster.about}


def _show_one(cluster: Cluster, output: o.OutputForm, out: Path | None) -> None:
    from wattflow.clusters import describe_cluster

    classes = describe_cluster(cluster)
    if output is not o.OutputForm.table:
        deliver([row.as_dict() for row in classes], output, out, {"cluster": cluster.name, "about": cluster.about})
        return
    rows = [
        {
            "nodes": f"{row.count} × {row.label}",
            "cores": row.cores,
            "threads": row.threads,
            "GiB": f"{row.memory_gib:g}",
            "speed": f"{row.speed:g}",
            "zone": row.zone,
            "idle–full W": None if row.idle_w is None or row.full_w is None else f"{row.idle_w:.0f}–{row.full_w:.0f}",
            "devices": row.devices,
            "power from": f"{row.provenance or 'unknown'}: {row.source or ''}".rstrip(": "),
            "sleep": row.sleep,
        }
        for row in classes
    ]
    print_tables([plain_table(rows, title=cluster.name, caption=cluster.about, caption_justify="left")])
