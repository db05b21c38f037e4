"""`wattflow describe`: what a trace or a generated workload holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import chosen_form, deliver, print_tables, remark


def describe(
    workflow: o.OneWorkflow,
    output: o.Output = None,
    out: o.Out = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Draw of a generated workload.")] = 0,
) -> None:
    """Say what a workload or a finished run holds.

    Tasks, structure, runtimes, data, needs, and what its reader skipped or repaired.

    A run is the parquet file of `wattflow simulate --attempts` or `wattflow run --out`.

    Example: wattflow describe trace.json
    """
    from wattflow.cli.inputs import workload_of
    from wattflow.generate.recipe import Recipe
    from wattflow.lab.run.run_file import is_run
    from wattflow.lab.show.describe import describe_workload, description_table

    form = chosen_form(output, out)
    if Path(workflow).is_file() and is_run(workflow):
        _describe_run(workflow, form, out)
        return
    source = workload_of(workflow)
    workload = source.draw(seed) if isinstance(source, Recipe) else source
    rows = describe_workload(workload)
    if form is o.Form.table:
        print_tables([description_table(rows, workload.name)])
        for note in workload.notes:
            remark(f"note: {note}")
    else:
        deliver(rows, form, out, {"workload": workload.name, "notes": list(workload.notes)})


def _describe_run(path: str, form: o.Form, out: Path | None) -> None:
    from wattflow.lab.run.run_file import read_run
    from wattflow.lab.show.describe import describe_run, description_table

    run = read_run(path)
    rows = describe_run(run)
    if form is o.Form.table:
        title = f"{run.about['workload']} on {run.about['cluster']} under {run.about['policy']}"
        print_tables([description_table(rows, title)])
    else:
        deliver(rows, form, out, dict(run.about))
