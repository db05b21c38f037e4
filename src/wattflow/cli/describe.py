"""`wattflow describe`: what a trace or a generated workload holds."""

from __future__ import annotations

from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_output, deliver, print_tables, remark


def describe(
    file: Annotated[str, typer.Argument(metavar="FILE", help=o.WORKFLOWS)],
    output: o.Output = o.Form.table,
    out: o.Out = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draw of a generated workload.")] = 0,
) -> None:
    """Say what a workload holds: tasks, structure, runtimes, data, needs, and what its reader skipped or repaired."""
    from wattflow.cli.inputs import workload_of
    from wattflow.generate.recipe import Recipe
    from wattflow.lab.describe import describe_workload, description_table

    check_output(output, out)
    source = workload_of(file)
    workload = source.draw(seed) if isinstance(source, Recipe) else source
    rows = describe_workload(workload)
    if output is o.Form.table:
        print_tables([description_table(rows, workload.name)])
        for note in workload.notes:
            remark(f"note: {note}")
    else:
        deliver(rows, output, out, {"workload": workload.name, "notes": list(workload.notes)})
