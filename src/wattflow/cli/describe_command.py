"""`wattflow workload describe`: what a trace or a generated workload holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import chosen_form, deliver, print_tables, remark

if TYPE_CHECKING:
    from wattflow.runtime.connection import Connection

MOST_SHOWN = 30


def describe(
    workflow: o.OneWorkflow,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Draw of a generated workload.")
    ] = 0,
) -> None:
    """Say what a workload or a finished run holds, or how a workflow or task on the server stands.

    Tasks, structure, runtimes, data, needs, and what its reader skipped or repaired.

    A run is the parquet file of `wattflow simulate --attempts` or `wattflow run --out`.

    Example: wattflow workload describe trace.json
    """
    from wattflow.generate.recipe import Recipe
    from wattflow.lab.run.run_file import is_run
    from wattflow.lab.show.workload_facts import describe_workload, description_table
    from wattflow.model.errors import InvalidInput
    from wattflow.sim.inputs import source_of

    form = chosen_form(output, out, force)
    # The server first: a workflow of its own is what a bare name usually means there.
    if _describe_running(workflow, form, out):
        return
    # A trace may be a parquet file as well.
    if Path(workflow).is_file() and is_run(workflow):
        _describe_run(workflow, form, out)
        return
    try:
        source = source_of(workflow)
    except InvalidInput as error:
        # A file that is there and cannot be read is the user's mistake; a name that nobody knows gets both
        # answers.
        if Path(workflow).exists() or not _server_here():
            raise
        what = f"{error.problems[0]}; and this machine's server knows no such workflow or task"
        raise InvalidInput(workflow, what) from None
    workload = source.draw(seed) if isinstance(source, Recipe) else source
    rows = describe_workload(workload)
    if form is o.Form.table:
        print_tables([description_table(rows, workload.name)])
        for note in workload.notes:
            remark(f"note: {note}")
    else:
        deliver(rows, form, out, {"workload": workload.name, "notes": list(workload.notes)})


def _describe_running(name: str, form: o.Form, out: Path | None) -> bool:
    """Describe a workflow or task of this machine's server, where it knows one of this name."""
    # Paths and recipes ("montage:tasks=60") are never names of workflows.
    if Path(name).exists() or ":" in name or not _server_here():
        return False
    from wattflow.cli.live import connect, show
    from wattflow.runtime.home import NotRunning
    from wattflow.runtime.transport import Denied, Unreachable

    try:
        connection = connect(None, None, None)
        about, attempts = _found(connection, name)
    # No server, or none that answers: then it is a file or a recipe, and is told as such.
    except (NotRunning, Denied, Unreachable):
        return False
    known = [row["energy_j"] for row in attempts if row["energy_j"] is not None]
    kinds = sorted({row["provenance"] for row in attempts if row["provenance"]})
    about |= {"energy_j": sum(known) if known else None, "provenance": ", ".join(kinds) or None}
    if form is not o.Form.table:
        show([about | {"attempts": attempts}], (), form, out, "")
        return True
    rows = [{"what": what, "value": value} for what, value in _readable(about | {"attempts": len(attempts)}).items()]
    show(rows, ("what", "value"), form, out, "")
    columns = ("key", "number", "node", "variant", "outcome", "lasted", "energy", "reason")
    show([_readable_attempt(row) for row in attempts[:MOST_SHOWN]], columns, form, out, "no attempt yet")
    if len(attempts) > MOST_SHOWN:
        remark(f"{len(attempts) - MOST_SHOWN} more attempts; `-o json` has all")
    return True


def _server_here() -> bool:
    """Tell whether a server was started in this user's folder; asking for more would load the runtime."""
    home = os.environ.get("WATTFLOW_HOME")
    # As `Home.of` finds it; this copy loads nothing.
    state = Path(home) if home else Path.home() / ".local" / "state" / "wattflow"
    return (state / "server.json").exists()


def _found(connection: Connection, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Find a workflow, or a task by number or as WORKFLOW/KEY, with its attempts."""
    from wattflow.cli.live import find_task, pages

    if name.isdigit() or "/" in name:
        number = find_task(connection, name)["id"]
        task: dict[str, Any] = connection.call("GET", f"/v1/tasks/{number}")
        attempts = [row | {"key": task["key"]} for row in task.pop("attempts")]
        return task | {"why": connection.call("GET", f"/v1/tasks/{number}/why")["why"]}, attempts
    about: dict[str, Any] = connection.call("GET", f"/v1/workflows/{name}")
    return about, pages(connection, f"/v1/workflows/{name}/attempts", "task")


def _readable(about: dict[str, Any]) -> dict[str, object]:
    """Rewrite for people: dates, durations, joules in words; what says nothing is left out."""
    from datetime import datetime

    from wattflow.model import units

    shown: dict[str, object] = {}
    for key, value in about.items():
        # Units are in the keys; people read them in the values.
        name = key.removesuffix("_s").removesuffix("_j").replace("_", " ")
        if value is None or key in ("sealed", "variants"):
            continue
        if key.endswith("_s"):
            value = datetime.fromtimestamp(value).astimezone().isoformat(" ", "seconds")
        elif key.endswith("_j"):
            value = units.human_energy(value)
        elif isinstance(value, dict):
            value = ", ".join(f"{count} {state}" for state, count in sorted(value.items()))
        shown[name] = value
    if about.get("ended_s") is not None:
        shown["lasted"] = units.human_time(about["ended_s"] - about["submitted_s"])
    return shown


def _readable_attempt(row: dict[str, Any]) -> dict[str, object]:
    from wattflow.model import units

    over = row["ended_s"] is not None and row["started_s"] is not None
    return row | {
        "variant": row["variant_name"],
        "outcome": row["outcome"] or "running",
        "lasted": units.human_time(row["ended_s"] - row["started_s"]) if over else None,
        "energy": None if row["energy_j"] is None else units.human_energy(row["energy_j"]),
    }


def _describe_run(path: str, form: o.Form, out: Path | None) -> None:
    from wattflow.lab.run.run_file import read_run
    from wattflow.lab.show.workload_facts import describe_run, description_table

    run = read_run(path)
    rows = describe_run(run)
    if form is o.Form.table:
        title = f"{run.about['workload']} on {run.about['cluster']} under {run.about['policy']}"
        print_tables([description_table(rows, title)])
    else:
        deliver(rows, form, out, dict(run.about))
