"""`wattflow kube`: the scheduler on a cluster, its explanations, CPU times of pods, finished workflows as WfFormat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import kube_operator
from wattflow.cli.kube_operator import Kubeconfig, Release, find_access
from wattflow.cli.live import check_address
from wattflow.cli.screen import check_places, guarded, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from wattflow.kube.frame.part import Part
    from wattflow.kube.settings import SchedulerSettings
    from wattflow.runtime.agent import Agent

app = typer.Typer(help="Kubernetes and Argo.", no_args_is_help=True, rich_markup_mode=None)
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Default: the kubeconfig's.")]


def scheduler(
    config: Annotated[Path | None, typer.Option("--config", help="TOML file; docs/kube.md describes its keys.")] = None,
    kubeconfig: Kubeconfig = None,
    policy: Annotated[str, typer.Option("--policy", help="Instead of the file's.")] = "",
    check: Annotated[bool, typer.Option("--check", help="Check configuration and permissions, then leave.")] = False,
    frame: Annotated[
        str, typer.Option("--frame", help="Several placers: a frame's name or file; `wattflow lab frames` lists them.")
    ] = "",
    placer: Annotated[
        int,
        typer.Option(
            "--placer", help="Be only this placer of the frame (0 …); without it all are started.", show_default=False
        ),
    ] = -1,
    broker: Annotated[bool, typer.Option("--broker", help="Be only the frame's broker.")] = False,
    port: Annotated[
        int, typer.Option("--port", help="Of metrics and health, instead of the file's.", show_default=False)
    ] = -1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every decision.")] = False,
) -> None:
    """Schedule pods that name this scheduler (schedulerName), beside kube-scheduler.

    Example: wattflow kube scheduler --config scheduler.toml
    """
    import asyncio
    import dataclasses
    import logging

    where = find_access(kubeconfig)
    from wattflow.kube import scheduler_process, settings
    from wattflow.policy import registry

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(message)s")
    chosen: SchedulerSettings = settings.read(config) if config is not None else settings.SchedulerSettings()
    # Loaded once to be refused here, where the user sees it, and not in the scheduler's log.
    if policy:
        registry.load(policy)
        chosen = dataclasses.replace(chosen, policy=policy)
    if port >= 0:
        chosen = dataclasses.replace(chosen, port=port)
    if frame:
        # A frame's processes are started with the same words, so all of them are repeated here.
        words = ["kube", "scheduler", "--frame", frame, *(["-v"] if verbose else [])]
        words += ["--config", str(config)] if config is not None else []
        words += ["--kubeconfig", str(kubeconfig)] if kubeconfig is not None else []
        words += ["--policy", policy] if policy else []
        # The broker is no placer, whatever number was given.
        part = _part(frame, chosen, -1 if broker else placer, broker)
        if placer < 0 and not broker and not check:
            return part.start_all(words)
        job = part.job(where, config, check)
    elif placer >= 0 or broker:
        raise InvalidInput("--placer and --broker", "are parts of a frame: name it by --frame")
    else:
        job = scheduler_process.check(where, chosen) if check else scheduler_process.run(where, chosen, config)
    # A runner of its own, since `asyncio.run` takes no loop factory in Python 3.11.
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(job)


def _part(frame: str, chosen: SchedulerSettings, placer: int, broker: bool) -> Part:
    """Return the part that one process has in a frame."""
    from wattflow.frames.library import load_frame
    from wattflow.kube.frame.part import Part

    return Part.of(load_frame(frame), chosen, placer, broker)


def _loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return uvloop's event loop where it is installed (half the cost for sockets and TLS), else None."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return factory


def explain(
    pod: Annotated[str, typer.Argument(help="Name of a pod, or NAMESPACE/NAME.")],
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    scheduler_url: Annotated[
        str, typer.Option("--scheduler", help="Where the scheduler serves HTTP; else the API server is asked.")
    ] = "",
    release: Release = "wattflow/wattflow",
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help="The scheduler's folder of decisions: also the candidates that there were."),
    ] = None,
) -> None:
    """Say where a pod was put and why, or what keeps it waiting.

    Example: wattflow kube explain -n work my-pod
    """
    import asyncio

    where = find_access(kubeconfig)
    from wattflow.kube import explaining

    # The last slash: a name has none.
    space, _, name = pod.rpartition("/")
    space = space or namespace or where.namespace
    typer.echo(asyncio.run(explaining.explain(where, (space, name), scheduler_url, journal, release)))


def status(
    name: Annotated[str, typer.Option("--name", help="The schedulerName.")] = "wattflow",
    lease: Annotated[
        str, typer.Option("--lease", help="NAMESPACE/NAME of its lease; looked for in wattflow and kube-system.")
    ] = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say who leads, what waits and why, and the modelled watts of the nodes.

    Example: wattflow kube status
    """
    import asyncio

    where = find_access(kubeconfig)
    from wattflow.kube import explaining

    typer.echo(asyncio.run(explaining.status(where, name, lease)))


def meter(
    out: Annotated[Path, typer.Argument(help="JSON file: CPU seconds by pod uid.")],
    group: Annotated[str, typer.Option("--cgroup", help="Group above kubepods, where it is not the root.")] = "",
    every_s: Annotated[float, typer.Option("--every", help="Seconds between readings.")] = 0.2,
    for_s: Annotated[float, typer.Option("--for", help="Seconds until it ends; 0: until Ctrl-C.")] = 0.0,
) -> None:
    """Follow the CPU time of this node's pods; `wattflow kube collect --cpu FILE` uses it.

    Example: wattflow kube meter cpu.json
    """
    import json
    import time

    from wattflow.files.whole import write_text
    from wattflow.kube.pod_cpu import PodCpu

    if not 0.01 <= every_s <= 3600.0:
        raise InvalidInput("--every", f"{every_s:g} is not within 0.01 and 3600 seconds")
    if not for_s >= 0.0:
        raise InvalidInput("--for", f"{for_s:g} is no number of seconds")
    check_places(out)
    pods = PodCpu(group)
    began_s = time.monotonic()
    # One reading before the loop: with --for shorter than --every there is still one.
    try:
        pods.scan()
        while not for_s or time.monotonic() - began_s < for_s:
            time.sleep(every_s)
            pods.scan()
    # Ctrl-C is the usual end.
    except KeyboardInterrupt:
        pass
    finally:
        # Also after an error: what was read is not lost.
        write_text(out, json.dumps(pods.seconds, indent=1) + "\n")
    remark(f"wrote {out}: {len(pods.seconds)} pods", False)


def collect(
    workflow: Annotated[str, typer.Argument(help="Name of a finished Argo workflow.")],
    out: Annotated[Path, typer.Argument(help="WfFormat file to write (.json).")],
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    cpu: Annotated[
        list[Path] | None, typer.Option("--cpu", help="CPU seconds by pod, from `wattflow kube meter`; one per node.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", help="Power profile of nodes that name none.")] = "",
    prometheus: Annotated[
        str, typer.Option("--prometheus", help="Address of a Prometheus with Kepler's metrics: its joules are used.")
    ] = "",
) -> None:
    """Turn a finished workflow into WfFormat with runtimes, machines and energy of each task.

    Example: wattflow kube collect my-workflow out.json --cpu cpu.json
    """
    import asyncio
    import json

    where = find_access(kubeconfig)
    from wattflow import traces
    from wattflow.kube.argo import fetch
    from wattflow.kube.client import Client
    from wattflow.model.workflow import Workflow
    from wattflow.traces import documents

    check_places(out)
    seconds: dict[str, float] = {}
    # One file per node; a pod is on one node, so they cannot contradict each other.
    for path in cpu or []:
        seconds |= json.loads(path.read_text())

    async def read() -> Workflow:
        async with Client(where) as client:
            watts = await fetch.watts_of(client, profile)
            space = namespace or where.namespace
            return await fetch.finished(client, space, workflow, watts.profile_of, seconds, prometheus)

    found = asyncio.run(read())
    traces.save(documents.to_workload([found], found.name), out, "wfformat")
    known = [task.energy_j for task in found.tasks if task.energy_j is not None]
    source = "attributed by Kepler" if prometheus else "modelled above idle"
    energy = f"{sum(known):.1f} J {source}" if known else "energy unknown (no power profile)"
    remark(f"wrote {out}: {len(found.tasks)} tasks, {found.makespan_s:.0f} s, {energy}", False)


def register(
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The wattflow server to join.")],
    token_file: Annotated[Path, typer.Option("--token-file", metavar="FILE", help="A token with the role agent.")],
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Seen here and by all pods under the same path.")
    ],
    name: Annotated[str, typer.Option("--name", help="Of the cluster, as the server shows it.")] = "kubernetes",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    scheduler_name: Annotated[
        str, typer.Option("--scheduler", help="Who places the pods: wattflow, default-scheduler, …")
    ] = "wattflow",
    image: Annotated[str, typer.Option("--image", help="With Python and wattflow of this version.")] = "wattflow",
    python: Annotated[str, typer.Option("--python", help="The interpreter inside the image.")] = "python",
    prefix: Annotated[str, typer.Option("--prefix", help="Words before every command in a pod.")] = "",
    claim: Annotated[
        list[str] | None, typer.Option("--claim", metavar="NAME:PATH", help="A volume claim, mounted in all pods.")
    ] = None,
    host_path: Annotated[
        list[str] | None, typer.Option("--host-path", metavar="DIR:PATH", help="A folder of the nodes, mounted.")
    ] = None,
    host_network: Annotated[bool, typer.Option("--host-network", help="Pods use their node's network.")] = False,
    node_selector: Annotated[
        list[str] | None, typer.Option("--node-selector", metavar="LABEL=VALUE", help="Only nodes with this label.")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of a TLS server.")] = None,
) -> None:
    """Add this cluster to a server: what is submitted there may run here, as pods.

    Example: wattflow kube register --server https://head:8765 --token-file cluster.token --folder /shared/wattflow
    """
    import asyncio
    import contextlib
    import shlex
    import signal

    where = find_access(kubeconfig)
    from wattflow.cli.kube_driver import make_agent
    from wattflow.kube.client import Client
    from wattflow.kube.jobs import Template
    from wattflow.model.errors import InvalidInput
    from wattflow.runtime.home import read_token
    from wattflow.runtime.transport import HttpTransport

    token = read_token(token_file)
    check_address(server)
    try:
        words = shlex.split(prefix)
    except ValueError as error:
        raise InvalidInput("--prefix", f"{prefix[:100]!r}: {error}") from None
    template = Template(
        namespace=namespace or where.namespace,
        image=image,
        scheduler=scheduler_name,
        prefix=words,
        claims=_mounts("--claim", claim),
        mounts=_mounts("--host-path", host_path),
        host_network=host_network,
        node_selector=dict(_pair("--node-selector", text) for text in node_selector or []),
    )
    folder.mkdir(parents=True, exist_ok=True)

    async def main() -> None:
        agent: Agent | None = None
        async with Client(where) as client:
            transport = HttpTransport(server, token, str(ca) if ca else None)
            try:
                agent = await make_agent(transport, client, template, folder, name, python=python)
            except OSError as error:
                raise InvalidInput(where.server, f"the cluster does not answer: {error}") from None
            finally:
                # Without an agent nobody else would close it.
                if agent is None:
                    await transport.close()
            running = asyncio.ensure_future(agent.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            remark(f"{name}: {agent.node.cpus:g} CPUs at {server}, pods placed by {scheduler_name}", False)
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(main())


def _mounts(option: str, texts: list[str] | None) -> dict[str, str]:
    """Return ``SOURCE:PATH`` as the path in pods and what lies there."""
    found = {}
    for text in texts or []:
        # The last colon: paths have none, S3-like sources may.
        source, _, path = text.rpartition(":")
        if not source or not path.startswith("/"):
            raise InvalidInput(option, f"{text!r} is not SOURCE:PATH with a path from the root")
        found[path] = source
    return found


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(option, f"{text!r} is not LABEL=VALUE")
    return key, value


COMMANDS: tuple[Callable[..., None], ...] = (
    scheduler, explain, status, kube_operator.sleep, kube_operator.power, kube_operator.claims, kube_operator.savings,
    kube_operator.enable, kube_operator.disable, kube_operator.profiles, meter, collect, register,
)  # fmt: skip
# In a loop, so that no command can forget its guard.
for _command in COMMANDS:
    app.command(_command.__name__)(guarded(_command))
