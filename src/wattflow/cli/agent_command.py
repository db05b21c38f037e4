"""`wattflow server agent`: this machine joins a server."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from wattflow.cli.live import check_address, given_token, home_of
from wattflow.model import units
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.runtime.levelling import NodeLevels


def agent(
    server: Annotated[
        str, typer.Option("--server", metavar="URL,…", help="The server to join, and those that stand by.")
    ],
    token_file: Annotated[Path, typer.Option("--token-file", metavar="FILE", help="A token with the role agent.")],
    name: Annotated[str | None, typer.Option("--name", help="Of the node; else the host's.")] = None,
    cpus: Annotated[float | None, typer.Option("--cpus", help="What it offers; else all.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="What it offers; else nine tenths.")] = None,
    folder: Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where tasks run.")] = None,
    preload: Annotated[str, typer.Option("--preload", help="Modules held ready, with commas between.")] = "cloudpickle",
    gpu_sharing: Annotated[
        str, typer.Option("--gpu-sharing", help="exclusive, time-slice, mps or mig: how tasks share its GPUs.")
    ] = "exclusive",
    fpgas: Annotated[int, typer.Option("--fpgas", min=0, help="FPGAs to play with Verilator.")] = 0,
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
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of a TLS server.")] = None,
) -> None:
    """Run work of a server on this machine until stopped.

    Example: wattflow server agent --server https://head:8765 --token-file node7.token
    """
    place = home_of(None)
    # Imported within: options must be answered by --help without loading the runtime.
    from wattflow.runtime.executors.gpu import Sharing

    token = given_token(token_file)
    check_address(server)
    if cpus is not None and not 0 < cpus < math.inf:
        raise InvalidInput("--cpus", f"{cpus:g} is no number of processors to offer")
    # From the type itself, so that help, check and agent cannot differ.
    if gpu_sharing not in get_args(Sharing):
        raise InvalidInput("--gpu-sharing", f"{gpu_sharing!r} is not one of {', '.join(get_args(Sharing))}")
    try:
        keep_alive_s = units.duration_s(keep_alive)
    except ValueError as error:
        raise InvalidInput("--keep-alive", str(error)) from None
    memory_bytes = units.size_bytes(memory) if memory is not None else None
    from wattflow.runtime import json_logs
    from wattflow.runtime.executors import privileges

    json_logs.set_up(None, logging.WARNING)
    apart = privileges.choose(tasks_as or os.environ.get("WATTFLOW_TASKS_AS", "auto"), tuple(pass_env.split(",")))
    # Nothing separates tasks from the agent then: worth a warning.
    logging.getLogger("wattflow").log(logging.WARNING if apart.kind == "self" else logging.INFO, "%s", apart.about)
    where = folder or place.folder / "agent"
    where.mkdir(parents=True, exist_ok=True)
    from wattflow.runtime.lineage import Lineage

    # Before the agent: an identity that outlasts its process is how a restarted one is known to the
    # server.
    lineage = Lineage(where)
    sharing = cast(Sharing, gpu_sharing)

    import asyncio  # as the rest: it is not loaded for --help

    async def main() -> None:
        from wattflow.runtime.executors.found import device_executors
        from wattflow.runtime.node_agent import make_agent
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
        if levels:
            made.levels = _levels()
        running = asyncio.ensure_future(made.run())
        # Cancelled, not killed: attempts are told and children ended.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        try:
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


def _levels() -> NodeLevels:
    """Find what can be set here, and give back what an agent that was killed has left."""
    from wattflow.levels.actuators import find_actuators, notes_folder
    from wattflow.levels.holder import Holder
    from wattflow.runtime.levelling import NodeLevels

    return NodeLevels(Holder(find_actuators(), notes_folder()))
