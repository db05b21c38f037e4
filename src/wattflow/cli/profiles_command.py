"""`wattflow machine profiles`: power profiles by name, with provenance and age."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_outputs, chosen_form, deliver, print_tables

if TYPE_CHECKING:
    from wattflow.clusters.profiles import NamedProfile
    from wattflow.lab.show.result_tables import Row


def profiles(
    search: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only those with this in their name or description.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Those of the data folder too, more than a thousand.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw those listed over one another into this file.")
    ] = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the power profiles that cluster files can name: watts, scope, provenance, age and licence.

    Example: wattflow machine profiles epyc --plot epyc.svg
    """
    from rich import box
    from rich.table import Table

    from wattflow.clusters.profiles import list_profiles
    from wattflow.model.errors import InvalidInput

    form = chosen_form(output, out, force)
    check_outputs(force, plot)
    if plot is not None and plot.suffix not in PICTURES:
        raise InvalidInput(str(plot), f"ends in none of {', '.join(PICTURES)}, the pictures that can be drawn")
    wanted = search.lower()
    found = [
        profile
        for profile in list_profiles()
        # A search looks everywhere; without one only what is shipped is listed.
        if (every or profile.shipped or wanted) and wanted in f"{profile.name} {profile.about}".lower()
    ]
    rows = [_row(profile) for profile in found] + _gpu_rows(wanted)
    if not rows:
        raise InvalidInput("profiles", f"none has {search!r} in its name or description")
    if plot is not None:
        _plot(found, plot)
    if form is not o.Form.table:
        deliver(rows, form, out, {})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in rows[0]:
        table.add_column(column, no_wrap=column == "profile", justify="right" if column in _NUMBERS else "left")
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    print_tables([table])


PICTURES = (".svg", ".png", ".pdf")
_NUMBERS = ("threads", "idle W", "full W", "points", "age")


def _age(year: int | None) -> str | None:
    from datetime import UTC, datetime

    return None if year is None else f"{datetime.now(UTC).year - year} y"


def _row(profile: NamedProfile) -> Row:
    return {
        "profile": profile.name,
        "machine": profile.about,
        "threads": profile.threads,
        "idle W": round(profile.idle_w, 1),
        "full W": round(profile.full_w, 1),
        "points": len(profile.load),
        "scope": profile.scope.value,
        "provenance": profile.provenance.value,
        "age": _age(profile.year),
        "licence": profile.licence,
    }


def _gpu_rows(wanted: str) -> list[Row]:
    """Return the measured GPU profiles, whose points are shares of the device."""
    from wattflow.energy import gpu_profile

    rows: list[Row] = []
    for name, document in gpu_profile.shipped().items():
        device = document["device"]
        model = str(device.get("model")) if isinstance(device, dict) else ""
        year = int(str(document["measured_at"])[:4]) if "measured_at" in document else None
        kernels = [kernel for kernel in ("gemm", "fma", "mem") if gpu_profile.by_share(document, kernel)[0]]
        for kernel in kernels:
            profile = gpu_profile.device_profile(document, kernel)
            if wanted in f"gpu:{name}/{kernel} {model}".lower():
                rows.append(
                    {
                        "profile": f"gpu:{name}/{kernel}",
                        "machine": f"{model}, {kernel} by {document['sharing']} share",
                        "threads": None,
                        "idle W": round(profile.idle_w, 1),
                        "full W": round(profile.watts[-1], 1),
                        "points": len(profile.share),
                        "scope": "device",
                        "provenance": profile.provenance.value,
                        "age": _age(year),
                        "licence": "Apache-2.0",
                    }
                )
    return rows


def _plot(found: list[NamedProfile], path: Path) -> None:
    from wattflow.energy.plots import plot_profiles

    # Half of the threads as cores: nearly all of these machines have two threads each, and the table
    # does not say.
    plot_profiles({profile.name: profile.for_node(max(1, profile.threads // 2), 2) for profile in found[:12]}, path)
