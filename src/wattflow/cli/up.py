"""`wattflow up` and `wattflow down`: the server, its store and one local agent."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.live import HomeFolder, home_of
from wattflow.cli.screen import remark
from wattflow.model import units
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.runtime.home import Home

POLICY = "least-energy"
DRIVERS = ("agents", "local", "slurm", "dask", "simulated")
START_S = 600.0
"""Longest wait for the server: the first one on a machine compiles the engine, which a busy machine stretches."""
AGENT, LEARNER = "agent.pid", "learner.pid"
"""Files with the numbers of the processes beside the server."""
_LEARNER = "wattflow.server.learning"
LEAST_FREE = 64 * 1024
COMPILING_S = 4.0
"""A server that takes longer than this is compiling."""


def up(
    home: HomeFolder = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; other machines reach only what is not loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8765,
    policy: Annotated[str, typer.Option("--policy", "-p", help="What decides; `wattflow policies` lists.")] = POLICY,
    learn: Annotated[
        bool, typer.Option("--learn", help="Go on learning from what ends here; for the policy `learned`.")
    ] = False,
    learn_every: Annotated[
        int, typer.Option("--learn-every", metavar="N", min=4, help="Finished workflows between two rounds of it.")
    ] = 50,
    learn_seconds: Annotated[
        float, typer.Option("--learn-seconds", metavar="S", min=0.0, help="Training in each round, at low priority.")
    ] = 60.0,
    driver: Annotated[str, typer.Option("--driver", help="agents, local, slurm, dask or simulated.")] = "agents",
    scheduler: Annotated[str | None, typer.Option("--scheduler", metavar="URL", help="Of the Dask cluster.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="NAME|FILE", help="What --driver simulated plays.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="Of Slurm.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="postgresql://… instead of a file.")
    ] = None,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects", metavar="DIR|s3://…", help="Where large data are kept: a folder, or an S3-compatible store."
        ),
    ] = None,
    keep: Annotated[str, typer.Option("--keep", help="How long ended runs and their logs are kept.")] = "30d",
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Bring an older store up to date.")] = False,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE")] = None,
    agent: Annotated[bool, typer.Option("--agent/--no-agent", help="Also start an agent for this machine.")] = True,
    cpus: Annotated[float | None, typer.Option("--cpus", help="What the local agent offers.")] = None,
    gpu_sharing: Annotated[str, typer.Option("--gpu-sharing", help="exclusive, time-slice, mps or mig.")] = "exclusive",
    suspend_command: Annotated[
        str | None, typer.Option("--suspend-command", metavar="CMD", help="Puts {node} to sleep.")
    ] = None,
    resume_command: Annotated[str | None, typer.Option("--resume-command", metavar="CMD", help="Wakes {node}.")] = None,
    wake_on_lan: Annotated[
        str | None, typer.Option("--wake-on-lan", metavar="NODE=MAC,…", help="Wakes by packet instead.")
    ] = None,
    watts_command: Annotated[
        str | None, typer.Option("--watts-command", metavar="CMD", help="Prints what {node} draws, while it wakes.")
    ] = None,
    redfish: Annotated[
        str | None,
        typer.Option("--redfish", metavar="URL", help="Controllers that power {node} off and on: https://{node}-bmc."),
    ] = None,
    redfish_login: Annotated[
        Path | None, typer.Option("--redfish-login", metavar="FILE", help="A private file with USER:PASSWORD.")
    ] = None,
    redfish_ca: Annotated[
        Path | None, typer.Option("--redfish-ca", metavar="FILE", help="Certificates of the controllers.")
    ] = None,
    preload: Annotated[
        str, typer.Option("--preload", help="Modules that the local agent holds ready, with commas between.")
    ] = "cloudpickle",
    fpgas: Annotated[int, typer.Option("--fpgas", min=0, help="FPGAs to play with Verilator.")] = 0,
    quiet: o.Quiet = False,
) -> None:
    """Start the server and an agent on this machine.

    Everything lies in one folder; `wattflow down` ends both, and what was open goes on at the next `up`.
    """
    from wattflow.server.settings import ServerSettings, listen

    place = home_of(home)
    if policy != POLICY:
        _check_policy(policy)
    if learn and policy.split(":")[0] != "learned":
        raise InvalidInput("--learn", f"it is the policy `learned` that goes on learning, not {policy!r}: -p learned")
    typed_policy = policy
    if driver not in DRIVERS:
        raise InvalidInput("--driver", f"no driver named {driver!r}; there are {', '.join(DRIVERS)}")
    if cpus is not None and not 0 < cpus < math.inf:
        raise InvalidInput("--cpus", f"{cpus:g} is no number of processors to offer")
    if place.server() is not None:
        raise InvalidInput(str(place.folder), f"a server is running already at {place.url()}; `wattflow down` ends it")
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert", "a certificate and its key belong together")
    keep_s = _duration(keep)
    place.make()
    _end(place, LEARNER, _LEARNER)  # of a server that was killed
    if learn:
        from wattflow.server.learning import present_policy

        policy = present_policy(place, policy)
    settings = ServerSettings(home=place, host=host, port=port)
    listener = listen(settings)
    options = {"--home": str(place.folder), "--policy": policy, "--driver": driver, "--keep-s": str(keep_s),
               "--objects": objects, "--tls-cert": tls_cert, "--tls-key": tls_key}  # fmt: skip
    command = [sys.executable, "-m", "wattflow.server", "--fd", str(listener.fileno())]
    command += ["--upgrade"] if upgrade else []
    for name, value in options.items():
        command += [name, str(value)] if value is not None else []
    for name, value in (("scheduler", scheduler), ("partition", partition), ("cluster", cluster),
                        ("suspend_command", suspend_command), ("resume_command", resume_command),
                        ("wake_on_lan", wake_on_lan), ("redfish", redfish), ("redfish_login", redfish_login),
                        ("redfish_ca", redfish_ca), ("watts_command", watts_command)):  # fmt: skip
        command += ["--driver-option", f"{name}={value}"] if value is not None else []
    secret = {"WATTFLOW_STORE": store} if store is not None else {}  # a URL may hold a password: no argument
    process = _spawn(command, place.folder / "server.log", (listener.fileno(),), secret)
    listener.close()
    _wait_for_server(place, process, quiet)
    if agent and driver == "agents":
        _spawn_agent(place, cpus, tls_cert, ["--gpu-sharing", gpu_sharing, "--fpgas", str(fpgas),
                                             "--preload", preload])  # fmt: skip
    if learn:
        _spawn_learner(place, typed_policy, learn_every, learn_seconds, secret)
    remark(f"wattflow serves at {place.url()} (policy {policy}, driver {driver}); its folder is {place.folder}", quiet)


def down(home: HomeFolder = None, quiet: o.Quiet = False) -> None:
    """End the server and the agent that `up` started; nothing that was submitted is lost."""
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.transport import Unreachable

    place = home_of(home)
    about = place.server()
    _end(place, AGENT)
    _end(place, LEARNER, _LEARNER)
    if about is None:
        raise InvalidInput(str(place.folder), "no server is running here")
    try:
        Connection(str(about["url"]), place.token("operator"), place.ca()).call("POST", "/v1/shutdown")
    except Unreachable:
        os.kill(int(str(about["pid"])), signal.SIGTERM)
    end_s = time.monotonic() + 20
    while place.server() is not None:
        if time.monotonic() > end_s:
            raise InvalidInput(str(about["url"]), f"does not end; its process is {about['pid']}")
        time.sleep(0.05)
    remark("stopped", quiet)


def _spawn(
    command: list[str], log: Path, fds: tuple[int, ...] = (), more: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, pass_fds=fds, start_new_session=True,
            env={**os.environ, **(more or {})},
        )  # fmt: skip


def _wait_for_server(place: Home, process: subprocess.Popen[bytes], quiet: bool) -> None:
    began_s, told = time.monotonic(), quiet
    while place.server() is None:
        waited_s = time.monotonic() - began_s
        if not told and waited_s > COMPILING_S:
            remark("compiling the engine for this machine, once; the next start takes two seconds")
            told = True
        if process.poll() is not None or waited_s > START_S:
            process.terminate()  # a server that comes up later would hold the port and belong to nobody
            lines = (place.folder / "server.log").read_text(errors="replace").strip().splitlines()
            said = lines[-1].removeprefix("error: ") if lines else _why_silent(place.folder)
            raise InvalidInput("the server did not start", said)
        time.sleep(0.02)


def _why_silent(folder: Path) -> str:
    """Say what kept a server from saying anything: its log lies in its folder, too."""
    free = shutil.disk_usage(folder).free
    return (
        f"the disk of {folder} is full ({free} bytes are free); nothing was lost"
        if free < LEAST_FREE
        else "it said nothing"
    )


def _spawn_agent(place: Home, cpus: float | None, ca: Path | None, more: list[str]) -> None:
    command = [sys.executable, "-m", "wattflow.cli", "agent", "--server", place.url(), "--token-file",
               str(place.token_file("agent")), "--folder", str(place.folder / "agent")]  # fmt: skip
    command += more
    command += ["--cpus", str(cpus)] if cpus is not None else []
    command += ["--ca", str(ca)] if ca is not None else []
    process = _spawn(command, place.folder / "agent.log")
    (place.folder / AGENT).write_text(str(process.pid))


def _spawn_learner(place: Home, policy: str, every: int, seconds: float, secret: dict[str, str]) -> None:
    command = [sys.executable, "-m", _LEARNER, "--home", str(place.folder), "--policy", policy,
               "--every", str(every), "--seconds", str(seconds)]  # fmt: skip
    process = _spawn(command, place.folder / "learner.log", more=secret)
    (place.folder / LEARNER).write_text(str(process.pid))


def _end(place: Home, file: str, named: str = "wattflow") -> None:
    """End a process that `up` started, if that process is still it."""
    path = place.folder / file
    try:
        pid = int(path.read_text())
        if named.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ValueError, ProcessLookupError, PermissionError):
        pass
    path.unlink(missing_ok=True)


def _check_policy(name: str) -> None:
    """Refuse a policy that is not there; a known one need not be loaded for that."""
    from wattflow.policy import registry

    if name not in registry.POLICIES:
        registry.load(name)


def _duration(text: str) -> float:
    try:
        return units.duration_s(text)
    except ValueError as error:
        raise InvalidInput("--keep", str(error)) from None
