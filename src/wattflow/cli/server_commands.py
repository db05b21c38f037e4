"""Looking at a server (`ps`, `logs`, `nodes`, `top`, `why`), stopping what it runs, joining it, compiling ahead."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from wattflow.cli import options as o
from wattflow.cli.live import (
    Cpus,
    Fpgas,
    GpuSharing,
    HomeFolder,
    Preload,
    Server,
    TokenFile,
    check_address,
    check_agent,
    connect,
    energy_of,
    find_task,
    home_of,
    pages,
    show,
    workflow_path,
)
from wattflow.cli.screen import chosen_form, console, remark
from wattflow.model import units
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.addresses import segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wattflow.runtime.levelling import AgentLevels
    from wattflow.runtime.messages import Node


TaskName = Annotated[str, typer.Argument(metavar="TASK", help="A task's number, or WORKFLOW/KEY.")]

MOST_BYTES = 1 << 60
"""Largest memory that a node may have."""
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
        named = ("id", "name", "state", "tasks", "energy", "policy")
        show(rows, named, form, out, "no workflows", {"tasks": _tasks, "energy": energy_of})
        return
    rows = pages(connection, f"{workflow_path(workflow)}/tasks", "id")
    columns = ("id", "key", "name", "state", "attempts", "energy", "reason")
    show(rows, columns, form, out, "no tasks", {"energy": energy_of})


def _tasks(row: dict[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(row["tasks"].items()))


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
    connection = connect(home, server, token_file)
    workflow, _, key = name.partition("/")
    path = f"{workflow_path(workflow)}/cancel" + (f"?key={segment(key)}" if key else "")
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
    shown = [_node(row) for row in rows] if form is o.OutputForm.table else rows
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
        show(rows, ("name", "state", "cpus", "running", "busy", "memory", "watts"), o.OutputForm.table, None, NO_NODES)
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
    if output is o.OutputForm.json:
        show([answer], (), o.OutputForm.json, None, "")
    else:
        # The state alone says it all where the reason repeats it.
        reason = f": {answer['why']}" if answer["why"] != answer["state"] else ""
        typer.echo(f"{answer['state']}{reason}")


def _node(row: dict[str, Any]) -> dict[str, Any]:
    # The last that a node said before it went down is no reading of now.
    load = (row["load"] if row["state"] != "down" else None) or {}
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


def agent(
    server: Annotated[
        str, typer.Option("--server", metavar="URL,…", help="The server to join, and those that stand by.")
    ],
    token_file: Annotated[Path, typer.Option("--token-file", metavar="FILE", help="A token with the role agent.")],
    name: Annotated[str | None, typer.Option("--name", help="Of the node; else the host's.")] = None,
    cpus: Cpus = None,
    memory: Annotated[str | None, typer.Option("--memory", help="What it offers; else nine tenths.")] = None,
    folder: Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where tasks run.")] = None,
    preload: Preload = "cloudpickle",
    gpu_sharing: GpuSharing = "exclusive",
    fpgas: Fpgas = 0,
    keep_alive: Annotated[
        str, typer.Option("--keep-alive", help="How long functions that start slowly are held warm; 0s holds none.")
    ] = "10min",
    tasks_as: Annotated[
        str | None, typer.Option("--tasks-as", metavar="WHO", help="auto, self, users, podman:IMAGE, apptainer:IMAGE.")
    ] = None,
    pass_env: Annotated[
        str, typer.Option("--pass-env", help="Further variables of this environment for tasks, with commas between.")
    ] = "",
    levels: Annotated[
        bool, typer.Option("--levels", help="Let the server set clocks and power limits here, as far as they can be.")
    ] = False,
    level_profile: Annotated[
        list[Path] | None,
        typer.Option("--level-profile", metavar="FILE", help="What `levels profile` measured on a GPU like these."),
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of a TLS server.")] = None,
) -> None:
    """Run work of a server on this machine until stopped.

    Example: wattflow server agent --server https://head:8765 --token-file node7.token
    """
    place = home_of(None)
    # Imported within: options must be answered by --help without loading the runtime.
    from wattflow.runtime.executors.gpu import Sharing
    from wattflow.runtime.home import read_token

    token = read_token(token_file)
    check_address(server)
    if level_profile and not levels:
        raise InvalidInput("--level-profile", "tells what clocks do, and without --levels none is set here")
    keep_alive_s = o.measured("--keep-alive", keep_alive, units.duration_s)
    memory_bytes = o.measured("--memory", memory, units.size_bytes) if memory is not None else None
    if memory_bytes is not None and not 0 < memory_bytes <= MOST_BYTES:
        raise InvalidInput("--memory", f"{memory} is no memory to offer: above 0, at most {MOST_BYTES >> 40} TiB")
    from wattflow.runtime import logs
    from wattflow.runtime.executors import privileges

    logs.set_up(None, logging.WARNING)
    apart = privileges.choose(tasks_as or os.environ.get("WATTFLOW_TASKS_AS", "auto"), tuple(pass_env.split(",")))
    check_agent(cpus, gpu_sharing, preload, apart.contained)
    # Nothing separates tasks from the agent then: worth a warning.
    logging.getLogger("wattflow").log(logging.WARNING if apart.kind == "self" else logging.INFO, "%s", apart.about)
    where = folder or place.folder / "agent"
    where.mkdir(parents=True, exist_ok=True)
    from wattflow.runtime.processes import Lineage

    # Before the agent: an identity that outlasts its process is how a restarted one is known to the
    # server.
    lineage = Lineage(where)
    sharing = cast(Sharing, gpu_sharing)

    import asyncio  # as the rest: it is not loaded for --help

    async def main() -> None:
        from wattflow.runtime.node_agent import device_executors, make_agent
        from wattflow.runtime.transport import HttpTransport

        transport = HttpTransport(server, token, str(ca) if ca else None)
        found = device_executors(where, sharing, fpgas)
        made = make_agent(
            transport,
            where,
            name=name,
            cpus=cpus,
            memory_bytes=memory_bytes,
            preload=tuple(preload.split(",")),
            executors=found,
            keep_alive_s=keep_alive_s,
            privileges=apart,
            lineage=lineage.id,
        )
        made.boot = lineage.boot()
        try:
            if levels:
                made.levels = _levels(level_profile or (), made.node)
            running = asyncio.ensure_future(made.run())
            # Cancelled, not killed: attempts are told and children ended.
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await running
        finally:
            await transport.close()

    # uvloop where it is installed; the usual loop does as well.
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())


def _levels(profiles: Sequence[Path], node: Node) -> AgentLevels:
    """Find what can be set here, and give back what an agent that was killed has left."""
    from wattflow.levels.actuators import find_actuators, notes_folder
    from wattflow.levels.holder import Holder
    from wattflow.runtime.level_profiles import read_profiles
    from wattflow.runtime.levelling import AgentLevels

    # Before anything is held: a profile of another model is one message.
    known = read_profiles(profiles, [device.model for device in node.devices if device.kind == "gpu"])
    return AgentLevels(Holder(find_actuators(), notes_folder()), profiles=known)


def warm(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the compiled code.")],
    policy: Annotated[list[str] | None, typer.Option("-p", "--policy", help="Only these; else every policy.")] = None,
    this_cpu: Annotated[bool, typer.Option(help="For this very processor instead of any of its kind.")] = False,
) -> None:
    """Compile the simulator, the live engine and all policies into DIR; use it with WATTFLOW_CACHE=DIR.

    The code runs on any processor of this architecture, so an image or a package can carry it. It holds for these
    very sources and this version of numba; anything else is compiled as usual.
    """
    from wattflow.policy import registry

    names = tuple(policy) if policy else tuple(registry.names())
    for name in names:
        registry.load(name)  # a name that is wrong is said before anything is compiled
    folder.mkdir(parents=True, exist_ok=True)
    # A process of its own: numba settles which processor it compiles for when it is loaded.
    # "generic" is any processor of this architecture.
    settings = {"WATTFLOW_CACHE": str(folder.resolve())} | ({} if this_cpu else {"NUMBA_CPU_NAME": "generic"})
    command = [sys.executable, "-P", "-m", "wattflow.live.warm", *names]
    done = subprocess.run(command, env=os.environ | settings, check=False)
    if done.returncode != 0:
        raise WattflowError(f"compiling ahead ended with status {done.returncode}")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    count = f"{len(names)} {'policy' if len(names) == 1 else 'policies'}"
    typer.echo(f"{count}, {size / 1e6:.0f} MB in {folder}; use it with WATTFLOW_CACHE={folder}")
