"""`wattflow up` and `wattflow down`: the server, its store and one local agent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.live import Cpus, Fpgas, GpuSharing, HomeFolder, Preload, check_agent, home_of
from wattflow.cli.screen import remark
from wattflow.model import units
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.runtime.home import Home

POLICY = "least-energy"
START_S = 600.0
"""Longest wait for the server: the first one on a machine compiles the engine, which a busy machine stretches."""
CLEAR_TEXT = "WATTFLOW_CLEAR_TEXT"
LOCK, CAP = "up.lock", "cap.json"
AGENT, LEARNER = "agent.pid", "learner.pid"
"""Marks of the processes beside the server (`wattflow.runtime.processes`)."""
PATIENCE_S, END_S = 10.0, 25.0
"""How long processes that were asked to end are waited for; the server, which may have much to write, longer."""
_LEARNER = "wattflow.server.learning"
LEAST_LOST_S = 1.0
LEAST_FREE = 1 << 20
"""Bytes that a store and a log take at their smallest."""


def up(
    home: HomeFolder = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; other machines reach only what is not loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8765,
    policy: Annotated[str, typer.Option("--policy", "-p", help="What decides; `wattflow policies` lists.")] = POLICY,
    cap_w: Annotated[
        str | None,
        typer.Option(
            "--cap-w", metavar="W|FILE", help="Keep all nodes below W watts, or a CSV's over time: power-cap."
        ),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Go on learning from what ends here; for the policy `learned`.")
    ] = False,
    learn_every: Annotated[
        int, typer.Option("--learn-every", metavar="N", min=4, help="Finished workflows between two rounds of it.")
    ] = 50,
    learn_seconds: Annotated[
        float, typer.Option("--learn-seconds", metavar="S", min=0.0, help="Training in each round, at low priority.")
    ] = 60.0,
    driver: Annotated[
        str, typer.Option("--driver", help="agents, local, slurm, dask, simulated, or one of another package.")
    ] = "agents",
    driver_option: Annotated[
        list[str] | None, typer.Option("--driver-option", metavar="KEY=VALUE", help="For a driver of another package.")
    ] = None,
    scheduler: Annotated[str | None, typer.Option("--scheduler", metavar="URL", help="Of the Dask cluster.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="NAME|FILE", help="What --driver simulated plays.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="Of Slurm.")] = None,
    clocks_mhz: Annotated[
        str | None, typer.Option("--clocks-mhz", metavar="MHZ,…", help="Clocks of Slurm's nodes, full one first.")
    ] = None,
    watts: Annotated[
        str | None, typer.Option("--watts", metavar="IDLE,FULL", help="Watts of each of Slurm's nodes.")
    ] = None,
    gpu_clocks_mhz: Annotated[
        str | None, typer.Option("--gpu-clocks-mhz", metavar="MHZ,…", help="Clocks of their GPUs, full one first.")
    ] = None,
    gpu_watts: Annotated[
        str | None, typer.Option("--gpu-watts", metavar="IDLE,FULL", help="Watts of each of their GPUs.")
    ] = None,
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
    keep_journal: Annotated[
        str, typer.Option("--keep-journal", metavar="SIZE", help="What past decisions may take to be explained by.")
    ] = "256MiB",
    lost_after: Annotated[
        str, typer.Option("--lost-after", help="An agent that is silent for so long is lost and its work moves on.")
    ] = "3s",
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Bring an older store up to date.")] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait beside the server of this store, and take over when it is gone.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS by this certificate.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the certificate.")] = None,
    clear_text: Annotated[
        bool, typer.Option("--clear-text", help="Let tokens come over plain HTTP; the network itself is private.")
    ] = False,
    carbon: Annotated[
        float | None, typer.Option("--carbon", metavar="G", min=0.0, max=5000.0, help="Grams of CO2 for a kWh here.")
    ] = None,
    log_form: Annotated[str, typer.Option("--log", metavar="FORM", help="Of server.log: text or json.")] = "text",
    agent: Annotated[bool, typer.Option("--agent/--no-agent", help="Also start an agent for this machine.")] = True,
    cpus: Cpus = None,
    gpu_sharing: GpuSharing = "exclusive",
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
    preload: Preload = "cloudpickle",
    tasks_as: Annotated[
        str, typer.Option("--tasks-as", metavar="WHO", help="auto, self, users, podman:IMAGE or apptainer:IMAGE.")
    ] = os.environ.get("WATTFLOW_TASKS_AS", "auto"),
    fpgas: Fpgas = 0,
    quiet: o.Quiet = False,
) -> None:
    """Start the server and an agent on this machine.

    Everything lies in one folder; `wattflow down` ends both, and what was open goes on at the next `up`.
    """
    from wattflow.runtime import processes
    from wattflow.runtime.drivers import registry as drivers
    from wattflow.server.settings import ServerSettings, listen

    place, cap = home_of(home), None
    if cap_w is not None:
        from wattflow.cli import cap_option

        policy, cap = cap_option.held_live(cap_w, policy, POLICY)
    # The default is known to be there; loading policies takes longer than the rest of this command.
    if policy != POLICY:
        policy = _served(policy)
    if learn and policy.split(":")[0] != "learned":
        raise InvalidInput("--learn", f"it is the policy `learned` that goes on learning, not {policy!r}: -p learned")
    # The learner goes on from what was typed; the server starts with what was learned since.
    typed_policy = policy
    drivers.check(driver)
    odd = next((one for one in driver_option or [] if "=" not in one), None)
    if odd is not None:
        raise InvalidInput("--driver-option", f"{odd!r} is not KEY=VALUE")
    from wattflow.runtime.executors import privileges

    apart = privileges.choose(tasks_as)
    check_agent(cpus, gpu_sharing, preload, apart.contained)
    _check_driver(driver, {
        "dask": {"--scheduler": scheduler}, "simulated": {"--cluster": cluster},
        "slurm": {"--partition": partition, "--clocks-mhz": clocks_mhz, "--watts": watts,
                  "--gpu-clocks-mhz": gpu_clocks_mhz, "--gpu-watts": gpu_watts},
        "agents": {"--suspend-command": suspend_command, "--resume-command": resume_command,
                   "--wake-on-lan": wake_on_lan, "--watts-command": watts_command, "--redfish": redfish,
                   "--redfish-login": redfish_login, "--redfish-ca": redfish_ca},
    })  # fmt: skip
    stated = {"clocks_mhz": clocks_mhz, "watts": watts, "gpu_clocks_mhz": gpu_clocks_mhz, "gpu_watts": gpu_watts}
    for name, text in stated.items():
        if text is not None:
            drivers.STATED[name](text)
    if not agent or driver != "agents":
        _check_no_agent({"--cpus": cpus is not None, "--gpu-sharing": gpu_sharing != "exclusive",
                         "--fpgas": fpgas > 0, "--preload": preload != "cloudpickle"})  # fmt: skip
    for_agent = ["--gpu-sharing", gpu_sharing, "--fpgas", str(fpgas), "--preload", preload, "--tasks-as", tasks_as]
    if place.server() is not None:
        with _starting(place):
            if agent and driver == "agents" and _lacks_agent(place):
                _start_agent(place, cpus, tls_cert, for_agent)
                began = "was running without its agent, which is started; its own settings are those it began with"
                remark(f"the server at {place.url()} {began}", quiet)
                return
        raise _already(place)
    # One without the other is a mistake in every case.
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert", "a certificate and its key belong together")
    if log_form not in ("text", "json"):
        raise InvalidInput("--log", f"{log_form!r} is neither text nor json")
    os.environ["WATTFLOW_LOG"] = log_form  # the agent's, too
    keep_s, lost_after_s = (
        o.measured(option, text, units.duration_s) for option, text in (("--keep", keep), ("--lost-after", lost_after))
    )
    if lost_after_s < LEAST_LOST_S:
        raise InvalidInput("--lost-after", f"{lost_after} is too short to tell silence by: at least {LEAST_LOST_S:g} s")
    place.make()
    _check_room(place.folder)
    if cap is not None:
        cap_option.write_live(cap, place.folder / CAP, time.time())
    with _starting(place):
        # Another `up` may have come and gone since we looked.
        if place.server() is not None:
            raise _already(place)
        processes.end(place.folder / LEARNER, PATIENCE_S, command=_LEARNER)  # of a server that was killed
        if learn:
            from wattflow.server.learning import present_policy

            policy = present_policy(place, policy)
        settings = ServerSettings(
            home=place, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, clear_text=clear_text, standby=standby
        )
        # Bound here and handed over: a port that is taken is told at once, and no second server can come
        # between.
        listener = listen(settings)
        journal_bytes = o.measured("--keep-journal", keep_journal, units.size_bytes)
        options = {"--home": str(place.folder), "--policy": policy, "--driver": driver, "--keep-s": str(keep_s),
                   "--keep-journal-bytes": journal_bytes, "--objects": objects, "--tls-cert": tls_cert,
                   "--tls-key": tls_key, "--carbon": carbon, "--cap": cap and place.folder / CAP}  # fmt: skip
        command = [sys.executable, "-P", "-m", "wattflow.server", "--fd", str(listener.fileno())]
        command += ["--upgrade"] if upgrade else []
        command += ["--standby"] if standby else []
        command += ["--log", log_form]
        command += ["--clear-text"] if clear_text else []
        for name, value in options.items():
            command += [f"{name}={value}"] if value is not None else []
        for name, value in (("scheduler", scheduler), ("partition", partition), ("cluster", cluster),
                            *stated.items(),
                            ("suspend_command", suspend_command), ("resume_command", resume_command),
                            ("wake_on_lan", wake_on_lan), ("redfish", redfish), ("redfish_login", redfish_login),
                            ("redfish_ca", redfish_ca), ("watts_command", watts_command),
                            ("lost_after_s", str(lost_after_s) if driver == "agents" else None)):  # fmt: skip
            command += [f"--driver-option={name}={value}"] if value is not None else []
        for one in driver_option or []:
            command += [f"--driver-option={one}"]
        secret = {"WATTFLOW_STORE": store} if store is not None else {}  # a URL may hold a password: no argument
        log = place.folder / "server.log"
        # What earlier servers logged is not this one's.
        begun = log.stat().st_size if log.exists() else 0
        with _ended_with_us(place) as ours:
            ours.append(process := _spawn(command, log, (listener.fileno(),), secret))
            # The server has its own copy by now; ours would keep the port after its end.
            listener.close()
            _wait_for_server(place, process, quiet, begun)
            if standby:
                remark(f"wattflow stands by at {place.url()}; its folder is {place.folder}", quiet)
                return
            # Other drivers bring their nodes themselves.
            if agent and driver == "agents":
                _start_agent(place, cpus, tls_cert, for_agent)
            if learn:
                _spawn_learner(place, typed_policy, learn_every, learn_seconds, secret)
    if agent and driver == "agents":
        remark(apart.about, quiet)
    remark(f"wattflow serves at {place.url()} (policy {policy}, driver {driver}); its folder is {place.folder}", quiet)
    if cap is not None:
        for line in cap_option.live_floor(min(cap.series.values), driver, agent, cluster):
            remark(line, quiet)
    remark(f"its page is {place.url()}/ (`wattflow view` opens it and logs you in)", quiet)


def _check_driver(driver: str, options: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse an option that only another driver takes; what one of another package reads is its own affair."""
    for other, some in options.items() if driver in (*options, "local") else ():
        given = next((name for name, value in some.items() if value is not None), None)
        if other != driver and given is not None:
            raise InvalidInput(given, f"is of --driver {other}; the driver here is {driver}")


def _check_no_agent(given: Mapping[str, bool]) -> None:
    """Refuse options of an agent where none is started."""
    for name, is_given in given.items():
        if is_given:
            raise InvalidInput(name, "is of the agent that `up` starts; here it starts none")


def down(home: HomeFolder = None, quiet: o.Quiet = False) -> None:
    """End the server and the agent that `up` started, by force where they hang; nothing that was submitted is lost."""
    from wattflow.runtime import processes

    place = home_of(home)
    ended = _end_agent(place)
    ended = processes.end(place.folder / LEARNER, PATIENCE_S, command=_LEARNER) or ended
    if place.server() is None and not ended:
        raise InvalidInput(str(place.folder), "no server is running here")
    _end_server(place)
    remark("stopped", quiet)


@contextlib.contextmanager
def _starting(place: Home) -> Iterator[None]:
    """Be the only `up` of this folder until its server is known and its agent marked: two servers would share them."""
    # flock goes with the process however that ends. What we start does not inherit it.
    file = os.open(place.folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(str(place.folder), "another `wattflow up` is starting a server here") from None
        yield
    finally:
        os.close(file)


def _already(place: Home) -> InvalidInput:
    return InvalidInput(str(place.folder), f"a server is running already at {place.url()}; `wattflow down` ends it")


@contextlib.contextmanager
def _ended_with_us(place: Home) -> Iterator[list[subprocess.Popen[bytes]]]:
    """End what this command started when it is interrupted: a server without its agent takes work and never runs it."""
    started: list[subprocess.Popen[bytes]] = []
    # A closed terminal or a supervisor interrupts like Ctrl-C, but for who asked for no such signals (nohup).
    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in heard:
        signal.signal(one, signal.default_int_handler)
    try:
        yield started
    except KeyboardInterrupt:
        _end_agent(place)
        for server in started:
            server.terminate()
            try:
                server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()  # the store is right whenever it ends
                server.wait()
        raise
    finally:
        for one in heard:
            signal.signal(one, signal.SIG_DFL)


def _lacks_agent(place: Home) -> bool:
    """Tell whether a server that works by agents is up without the one of this folder: `up` or the agent was killed."""
    from wattflow.runtime import processes
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.processes import lock_file
    from wattflow.runtime.transport import Denied, Unreachable

    if any(processes.marked(mark) for mark in (place.folder / AGENT, lock_file(place.folder / "agent"))):
        return False
    try:
        asked = Connection(place.url(), place.token("operator"), place.ca(), timeout_s=PATIENCE_S / 4)
        return bool(asked.call("GET", "/v1/status")["driver"] == "agents")
    except (Unreachable, Denied, InvalidInput):
        return False


def _end_server(place: Home) -> None:
    """Ask the server to end; one that cannot be asked is told, one that does not end is killed: the store is right."""
    from wattflow.runtime import processes
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.home import NotRunning
    from wattflow.runtime.transport import Denied, Unreachable

    about = place.server()
    if about is None:
        return
    with contextlib.suppress(Unreachable, Denied, NotRunning, InvalidInput):  # its token may be damaged
        # A short limit: a server that hangs is ended by its process below.
        asked = Connection(str(about["url"]), place.token("operator"), place.ca(), timeout_s=PATIENCE_S / 4)
        asked.call("POST", "/v1/shutdown")
        if processes.wait(about, END_S):
            return
    # The store is written in transactions, so a killed server loses nothing that it had confirmed.
    processes.end(place.server_file, PATIENCE_S / 2)


def _spawn(
    command: list[str], log: Path, fds: tuple[int, ...] = (), more: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    # Private: logs name users and paths.
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        return subprocess.Popen(
            # A session of its own: Ctrl-C in this terminal must not end the server.
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            pass_fds=fds,
            start_new_session=True,
            env={**os.environ, **(more or {})},
        )


def _wait_for_server(place: Home, process: subprocess.Popen[bytes], quiet: bool, begun: int) -> None:
    from wattflow.runtime.compile_notice import SERVER_COMPILES

    began_s, told, log = time.monotonic(), quiet, place.folder / "server.log"
    # The server writes the file when it listens.
    while (about := place.server()) is None:
        # Before its log is read: what it wrote before it ended is in there then.
        is_over = process.poll() is not None or time.monotonic() - began_s > START_S
        with log.open("rb") as file:
            file.seek(begun)
            if not told and SERVER_COMPILES.encode() in file.read():
                remark(SERVER_COMPILES)
                told = True
        if is_over:
            process.terminate()  # a server that comes up later would hold the port and belong to nobody
            # The last line of its log is its own error message.
            lines = log.read_text(errors="replace").strip().splitlines()
            said = lines[-1].removeprefix("error: ") if lines else _why_silent(place.folder)
            raise InvalidInput("the server did not start", said)
        time.sleep(0.02)
    # One that an `up` left behind which was killed before it was known: ours could only wait for its end.
    if about["pid"] != process.pid:
        process.terminate()
        process.wait()
        raise _already(place)


def _check_room(folder: Path) -> None:
    """Refuse a folder on a full disk now: the server would say so only after compiling for a minute."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise InvalidInput(
            str(folder),
            f"its disk is full: {free} bytes are free, a store and a log need {LEAST_FREE} at least; make room, or "
            "name another folder with --home",
        )


def _why_silent(folder: Path) -> str:
    """Say what kept a server from saying anything: its log lies in its folder, too."""
    free = shutil.disk_usage(folder).free
    return (
        f"the disk of {folder} is full ({free} bytes are free); nothing was lost"
        if free < LEAST_FREE
        else "it said nothing"
    )


def _start_agent(place: Home, cpus: float | None, ca: Path | None, more: list[str]) -> None:
    """An agent below a keeper. One that a server left behind, and that would be started alike, is kept: what it runs
    goes on; any other is ended first."""
    from wattflow.runtime import processes

    command = [sys.executable, "-P", "-m", "wattflow.cli", "agent", "--server", place.url(), "--token-file",
               str(place.token_file("agent")), "--folder", str(place.folder / "agent")]  # fmt: skip
    command += more
    command += ["--cpus", str(cpus)] if cpus is not None else []
    command += ["--ca", str(ca)] if ca is not None else []
    there = processes.marked(place.folder / AGENT)
    # Started alike, so it can be kept, with what it runs.
    if there is not None and there.get("command") == command:
        return
    _end_agent(place)
    mark = place.folder / AGENT
    kept = [sys.executable, "-P", "-m", "wattflow.runtime.keeper", str(mark), *command]
    _spawn(kept, place.folder / "agent.log", more={CLEAR_TEXT: "1"})  # it stays on this machine
    end_s = time.monotonic() + PATIENCE_S
    while processes.marked(mark) is None and time.monotonic() < end_s:  # else a `down` at once would not see it
        time.sleep(0.02)


def _end_agent(place: Home) -> bool:
    """End the agent of this folder and its keeper; one whose keeper was killed has a mark of its own."""
    from wattflow.runtime import processes
    from wattflow.runtime.processes import lock_file

    kept = processes.end(place.folder / AGENT, 2 * PATIENCE_S)
    return processes.end(lock_file(place.folder / "agent"), PATIENCE_S, forget=False) or kept


def _spawn_learner(place: Home, policy: str, every: int, seconds: float, secret: dict[str, str]) -> None:
    command = [sys.executable, "-P", "-m", _LEARNER, f"--home={place.folder}", "--policy", policy,
               "--every", str(every), "--seconds", str(seconds)]  # fmt: skip
    from wattflow.runtime import processes

    process = _spawn(command, place.folder / "learner.log", more=secret)
    processes.mark(place.folder / LEARNER, process.pid)


def _served(name: str) -> str:
    """Return what a server makes of a policy's name; refuse one that is not there."""
    from wattflow.policy import registry

    # Contributed ones are loaded: only that tells whether they work.
    if not registry.is_known(name) or name in registry.contributed():
        registry.load(name)
    return registry.served(name)
