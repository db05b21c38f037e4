"""`wattflow machine meters`: what can read energy here, and why the rest cannot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import chosen_form, deliver, print_tables

if TYPE_CHECKING:
    from wattflow.energy.meters.probe import Finding
    from wattflow.lab.show.result_tables import Row


def meters(
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.0, max=3600.0, help="Also read each meter twice, so far apart, and show the watts."
        ),
    ] = 0.0,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """Show every meter of this machine: its domains, whether they count or only sample, or why it is not here.

    Where to look is set by WATTFLOW_SYSFS, WATTFLOW_PMPROXY, WATTFLOW_PMCD, WATTFLOW_KEPLER, WATTFLOW_REDFISH,
    WATTFLOW_REDFISH_USER and WATTFLOW_REDFISH_CA.
    """
    from rich import box
    from rich.table import Table

    from wattflow.energy.meters.probe import try_all

    form = chosen_form(output, out, force)
    rows = [row for finding in try_all() for row in _rows(finding, seconds)]
    if form is not o.Form.table:
        deliver(rows, form, out, {})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in rows[0]:
        # Reasons may be long; everything else stays on one line.
        table.add_column(column, no_wrap=column != "why not")
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    print_tables([table])


def _rows(finding: Finding, seconds: float) -> list[Row]:
    from wattflow.energy.meters.port import Tally

    if finding.meter is None:
        return [
            {"meter": finding.name, "domain": None, "covers": None, "by": None, "W": None, "why not": finding.reason}
        ]
    try:
        tally = Tally(finding.meter)
        if seconds > 0:
            time.sleep(seconds)
            tally.update()
        energy = tally.energy()
        watts = {domain.name: energy.watts(domain.name) for domain in finding.meter.domains}
        return [
            {
                "meter": finding.meter.name,
                "domain": domain.name,
                "covers": domain.kind,
                "by": "counter" if domain.counter else "sampled watts",
                # Rounding None would fail, and 0 is a reading.
                "W": None if watts[domain.name] is None else round(float(watts[domain.name] or 0.0), 2),
                "why not": None,
            }
            for domain in finding.meter.domains
        ]
    finally:
        finding.meter.close()
