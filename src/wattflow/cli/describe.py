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
    force: o.Force = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Draw of a generated workload.")
    ] = 0,
) -> None:
    """Say what a workload or a finished run holds, or how a workflow on the server stands.

    Tasks, structure, runtimes, data, needs, and what its reader skipped or repaired.

    A run is the parquet file of `wattflow simulate --attempts` or `wattflow run --out`.

    Example: wattflow describe trace.json
    """
    from wattflow.generate.recipe import Recipe
    from wattflow.lab.run.run_file import is_run
    from wattflow.lab.show.describe import describe_workload, description_table
    from wattflow.sim.inputs import source_of

    form = chosen_form(output, out, force)
    if _describe_running(workflow, form, out):
        return
    if Path(workflow).is_file() and is_run(workflow):
        _describe_run(workflow, form, out)
        return
    source = source_of(workflow)
    workload = source.draw(seed) if isinstance(source, Recipe) else source
    rows = describe_workload(workload)
    if form is o.Form.table:
        print_tables([description_table(rows, workload.name)])
        for note in workload.notes:
            remark(f"note: {note}")
    else:
        deliver(rows, form, out, {"workload": workload.name, "notes": list(workload.notes)})


def _describe_running(name: str, form: o.Form, out: Path | None) -> bool:
    """A workflow of this machine's server, where it knows one of this name."""
    import os

    home = os.environ.get("WATTFLOW_HOME")
    state = Path(home) if home else Path.home() / ".local" / "state" / "wattflow"
    if Path(name).exists() or ":" in name or not (state / "server.json").exists():
        return False
    from wattflow.cli.live import connect, show
    from wattflow.runtime.home import NotRunning
    from wattflow.runtime.transport import Denied, Unreachable

    try:
        connection = connect(None, None, None)
        about = connection.call("GET", f"/v1/workflows/{name}")
        attempts = connection.call("GET", f"/v1/workflows/{name}/attempts")
    except (NotRunning, Denied, Unreachable):
        return False
    known = [row["energy_j"] for row in attempts if row["energy_j"] is not None]
    kinds = sorted({row["provenance"] for row in attempts if row["provenance"]})
    about |= {"attempts": len(attempts), "energy_j": sum(known) if known else None, "provenance": ", ".join(kinds)}
    rows = [{"what": key, "value": value} for key, value in about.items()]
    show(rows if form is o.Form.table else [about], ("what", "value"), form, out, "")
    return True


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
