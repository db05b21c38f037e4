"""`wattflow clusters`: what work can run on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.completion import cluster_names
from wattflow.cli.screen import chosen_form, deliver, print_tables
from wattflow.model.errors import MissingData

if TYPE_CHECKING:
    from wattflow.lab.show.result_tables import Row
    from wattflow.model.cluster import Cluster


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
    from rich import box
    from rich.table import Table

    from wattflow.clusters import load_cluster, preset_names

    form = chosen_form(output, out, force)
    if name is not None:
        _show_one(load_cluster(name), form, out)
        return
    rows = [_preset_row(preset) for preset in preset_names()]
    if form is not o.Form.table:
        deliver(rows, form, out, {})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in rows[0]:
        table.add_column(
            column, no_wrap=column == "cluster", justify="right" if column in ("nodes", "cores") else "left"
        )
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    print_tables([table])


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


def _show_one(cluster: Cluster, output: o.Form, out: Path | None) -> None:
    from rich import box
    from rich.table import Table

    from wattflow.clusters import describe_cluster

    classes = describe_cluster(cluster)
    if output is not o.Form.table:
        deliver([row.as_dict() for row in classes], output, out, {"cluster": cluster.name, "about": cluster.about})
        return
    table = Table(
        title=cluster.name,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        caption=cluster.about,
        caption_justify="left",
    )
    for column in (
        "nodes",
        "cores",
        "threads",
        "GiB",
        "speed",
        "zone",
        "idle–full W",
        "devices",
        "power from",
        "sleep",
    ):
        table.add_column(column)
    for row in classes:
        watts = "–" if row.idle_w is None or row.full_w is None else f"{row.idle_w:.0f}–{row.full_w:.0f}"
        source = f"{row.provenance or 'unknown'}: {row.source or ''}".rstrip(": ")
        table.add_row(
            f"{row.count} × {row.label}",
            str(row.cores),
            str(row.threads),
            f"{row.memory_gib:g}",
            f"{row.speed:g}",
            row.zone,
            watts,
            row.devices,
            source,
            row.sleep,
        )
    print_tables([table])
