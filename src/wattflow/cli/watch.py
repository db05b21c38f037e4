"""`wattflow ps`, `logs`, `cancel`, `nodes`, `top` and `why`: looking at a server and stopping what it runs."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.clean import console
from wattflow.cli.live import HomeFolder, Server, TokenFile, connect, find_task, pages, show
from wattflow.cli.screen import chosen_form, remark
from wattflow.model import units

TaskName = Annotated[str, typer.Argument(metavar="TASK", help="A task's number, or WORKFLOW/KEY.")]

NO_NODES = (
    "no nodes yet; an agent that was just started takes a second or two (its log: agent.log in the folder of `up`)"
)


def ps(
    workflow: Annotated[str | None, typer.Argument(metavar="WORKFLOW", help="Show its tasks.")] = None,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List workflows, or one workflow's tasks."""
    form = chosen_form(output, out, force)
    connection = connect(home, server, token_file)
    if workflow is None:
        rows = connection.call("GET", "/v1/workflows")
        shown = [
            row
            | {"tasks": ", ".join(f"{n} {state}" for state, n in sorted(row["tasks"].items())), "energy": _energy(row)}
            for row in rows
        ]
        show(
            shown if form is o.Form.table else rows,
            ("id", "name", "state", "tasks", "energy", "policy"),
            form,
            out,
            "no workflows",
        )
        return
    rows = pages(connection, f"/v1/workflows/{workflow}/tasks", "id")
    shown = [row | {"energy": _energy(row)} for row in rows] if form is o.Form.table else rows
    show(shown, ("id", "key", "name", "state", "attempts", "energy", "reason"), form, out, "no tasks")


def logs(
    task: TaskName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task ends.")] = False,
    attempt: Annotated[int, typer.Option("--attempt", min=0, help="Which attempt; 0 is the latest.")] = 0,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Print what a task wrote."""
    connection = connect(home, server, token_file)
    number, offset = find_task(connection, task)["id"], 0
    while True:
        data, headers = connection.raw("GET", f"/v1/tasks/{number}/log?number={attempt}&offset={offset}")
        # Bytes as they came: a task's output is its own, and need not be text.
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        offset += len(data)
        # Only with nothing left to read: the end may be told before the last bytes.
        if not data and (not follow or headers["wattflow-over"] == "1"):
            return
        if not data:
            time.sleep(0.2)


def cancel(
    name: Annotated[str, typer.Argument(metavar="WORKFLOW|WORKFLOW/KEY", help="What to cancel.")],
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    quiet: o.Quiet = False,
) -> None:
    """Cancel a workflow, or one task of it."""
    from urllib.parse import quote

    connection = connect(home, server, token_file)
    workflow, _, key = name.partition("/")
    path = f"/v1/workflows/{workflow}/cancel" + (f"?key={quote(key)}" if key else "")
    count = connection.call("POST", path, b"")["cancelled"]
    remark(f"{count} open tasks cancelled", quiet)


def nodes(
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the nodes that work can run on."""
    form = chosen_form(output, out, force)
    rows = connect(home, server, token_file).call("GET", "/v1/nodes")
    shown = [_node(row) for row in rows] if form is o.Form.table else rows
    show(shown, ("name", "state", "cpus", "memory", "devices", "running", "busy", "watts"), form, out, NO_NODES)


def top(
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
) -> None:
    """Watch the server: counts, nodes, watts."""
    connection = connect(home, server, token_file)
    while True:
        status = connection.call("GET", "/v1/status")
        rows = [_node(row) for row in connection.call("GET", "/v1/nodes")]
        # A terminal is redrawn; a file gets one look after the other.
        if sys.stdout.isatty() and not once:
            console().clear()
        trouble = f"; TROUBLE: {status['trouble']}" if status["trouble"] else ""
        typer.echo(f"{status['running']} running, {status['waiting']} waiting, policy {status['policy']}{trouble}")
        show(rows, ("name", "state", "cpus", "running", "busy", "memory", "watts"), o.Form.table, None, NO_NODES)
        if once:
            return
        time.sleep(every)


def why(
    task: TaskName,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    output: o.Output = None,
) -> None:
    """Say why a task is not running."""
    connection = connect(home, server, token_file)
    answer = connection.call("GET", f"/v1/tasks/{find_task(connection, task)['id']}/why")
    if output is o.Form.json:
        show([answer], (), o.Form.json, None, "")
    else:
        # The state alone says it all where the reason repeats it.
        reason = f": {answer['why']}" if answer["why"] != answer["state"] else ""
        typer.echo(f"{answer['state']}{reason}")


def _energy(row: dict[str, Any]) -> str | None:
    """Write the joules of a workflow or a task, or that it was too short for its meter."""
    from wattflow.runtime.future import human_joules

    # Unknown is a dash, never 0.
    if row.get("energy_j") is None:
        return None
    return human_joules(row["energy_j"], row["low_j"] or 0.0, row["high_j"] or 0.0)


def _node(row: dict[str, Any]) -> dict[str, Any]:
    load = row["load"] or {}
    kinds = [device["kind"] for device in row["devices"]]
    watts = load.get("watts")
    return {
        "name": row["name"],
        "state": row["state"],
        "cpus": f"{row['cpus']:g}",
        "memory": f"{row['memory_bytes'] / units.GIB:.1f} GiB",
        "running": row["running"],
        "devices": ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or None,
        "busy": f"{load.get('cpu_busy', 0.0):.0%}" if load else None,
        "watts": f"{watts:.0f}" if watts is not None else None,
    }
