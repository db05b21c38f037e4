"""`wattflow clusters`: what work can run on."""

from __future__ import annotations

from typing import Annotated

import typer

from wattflow.cli.screen import print_tables


def clusters(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="Show one preset or cluster file in full.")
    ] = None,
) -> None:
    """List the cluster presets, or show one: its nodes, devices, power profiles, and what in it is assumed."""
    from rich import box
    from rich.table import Table

    from wattflow.clusters import describe_cluster, load_cluster, preset_names

    if name is not None:
        typer.echo(describe_cluster(load_cluster(name)))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("cluster", "nodes", "cores", "devices", "about"):
        table.add_column(
            column, no_wrap=column == "cluster", justify="right" if column in ("nodes", "cores") else "left"
        )
    for preset in preset_names():
        cluster = load_cluster(preset)
        kinds: dict[str, int] = {}
        for node in cluster.nodes:
            for device in node.devices:
                kinds[device.kind] = kinds.get(device.kind, 0) + 1
        devices = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        table.add_row(preset, str(len(cluster.nodes)), str(cluster.total_cores), devices, cluster.about)
    print_tables([table])
