"""`wattflow kube` for an operator: what the scheduler does to nodes (`sleep`, `power`, `claims`), and the way in."""

from __future__ import annotations

import datetime
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from wattflow.cli.live import check_address
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.kube.access import Access
    from wattflow.kube.client import Client

T = TypeVar("T")
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, the pod's own account, ~/.kube/config.")
]
Release = Annotated[str, typer.Option("--release", help="NAMESPACE/NAME of the installation, asked by the API server.")]
LeaseNamespace = Annotated[
    str, typer.Option("--lease-namespace", help="Namespace of the scheduler's lease, as its configuration says.")
]
Given = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose pods.")]
Selector = Annotated[
    str, typer.Option("--selector", "-l", metavar="LABEL=VALUE,…", help="Only pods with these labels.")
]
SchedulerName = Annotated[str, typer.Option("--name", help="The schedulerName.")]
# As the API server would refuse it; here the option can be named.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_VALUE = re.compile(r"([a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?")


def find_access(kubeconfig: Path | None) -> Access:
    """Find the cluster; says which extra is missing where it is not installed."""
    try:
        from wattflow.kube import access
    except ImportError as error:
        from wattflow.model.errors import MissingExtra

        raise MissingExtra(f"{error.name} is needed: pip install 'wattflow[kube]'") from None
    return access.find(kubeconfig)


def within(kubeconfig: Path | None, job: Callable[[Client], Awaitable[T]]) -> T:
    """Do something over a connection to the cluster."""
    import asyncio  # not loaded for --help

    where = find_access(kubeconfig)
    from wattflow.kube.client import Client

    async def run() -> T:
        async with Client(where) as client:
            return await job(client)

    return asyncio.run(run())


def sleep(
    what: Annotated[str, typer.Argument(metavar="on|off|status", help="Whether nodes may sleep.")] = "status",
    namespace: LeaseNamespace = "wattflow",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say which nodes sleep; switch sleep off for all (what sleeps is woken and stays on), or on again.

    Example: wattflow kube sleep off
    """
    if what not in ("on", "off", "status"):
        raise InvalidInput("sleep", f"{what!r} is not on, off or status")

    async def job(client: Client) -> str:
        from wattflow.kube import objects
        from wattflow.kube.allowance import SWITCH
        from wattflow.kube.client import MERGE, ApiError
        from wattflow.kube.sleeping import ASLEEP

        path = f"/api/v1/namespaces/{namespace}"
        try:
            if what != "status":
                # None takes the annotation off.
                body = {"metadata": {"annotations": {SWITCH: "off" if what == "off" else None}}}
                await client.call("PATCH", path, body, content=MERGE)
            off = (await client.get(path, objects.Namespace)).metadata.annotations.get(SWITCH) == "off"
        except ApiError as error:
            if error.code == 404:
                raise InvalidInput("--lease-namespace", f"there is no namespace {namespace!r}") from None
            raise
        # Fresh: the scheduler may have marked a node a moment ago.
        nodes = (await client.list_all("/api/v1/nodes", objects.Node, fresh=True)).items
        asleep = sorted(one.metadata.name for one in nodes if ASLEEP in one.metadata.annotations)
        switched = "off: the scheduler wakes what sleeps and keeps all nodes on" if off else "on"
        return f"sleep is {switched}\nasleep by our order, or on their way: {', '.join(asleep) or 'none'}"

    typer.echo(within(kubeconfig, job))


def power(
    what: Annotated[str, typer.Argument(metavar="sleep|wake|watts", help="What to do with it.")],
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    config: Annotated[Path, typer.Option("--config", help="The scheduler's file; its [sleep] says how.")],
    kubeconfig: Kubeconfig = None,
) -> None:
    """Switch one node by hand, to try what [sleep] says before the scheduler does. Taints and pods are not looked at.

    Example: wattflow kube power watts node-7 --config scheduler.toml
    """
    if what not in ("sleep", "wake", "watts"):
        raise InvalidInput("power", f"{what!r} is not sleep, wake or watts")

    async def job(client: Client) -> str:
        from wattflow.kube import node_switches, settings

        hook = node_switches.make(settings.read(config), client)
        if hook is None:
            raise InvalidInput(str(config), "says nothing under [sleep] of how nodes are switched")
        if not hook.covers(node):
            raise InvalidInput(node, f"is none of the nodes that {config} can switch")
        if what == "watts":
            drawn_w = await hook.watts(node)
            return f"{node}: {'nobody measures it' if drawn_w is None else f'{drawn_w:g} W'}"
        await (hook.suspend(node) if what == "sleep" else hook.resume(node))
        return f"{node}: the order to {what} was taken"

    typer.echo(within(kubeconfig, job))


def claims(
    namespace: LeaseNamespace = "wattflow",
    release_expired: Annotated[
        bool, typer.Option("--release-expired", help="Take off claims whose scheduler is gone; deploy/claims runs it.")
    ] = False,
    silent_s: Annotated[
        float, typer.Option("--silent", min=30, help="Seconds without renewal after which a lease's owner is gone.")
    ] = 120.0,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say which claims on nodes have lost their owner, and release them.

    Example: wattflow kube claims --release-expired
    """

    async def job(client: Client) -> str:
        from wattflow.kube.claims import CLAIM, expired
        from wattflow.kube.taint_writer import drop_taint

        found = await expired(client, namespace, silent_s, datetime.datetime.now(datetime.UTC))
        if not found:
            return "every claim has an owner that lives"
        if not release_expired:
            return f"claims whose owner has been silent for {silent_s:g} s: {', '.join(found)}"
        # by its owner: a node may have been claimed by another one meanwhile
        done = [name for name, owner in found.items() if await drop_taint(client, name, CLAIM, owner)]
        return f"released: {', '.join(done) or 'none'}"

    typer.echo(within(kubeconfig, job))


def enable(
    namespace: Given, selector: Selector = "", name: SchedulerName = "wattflow", kubeconfig: Kubeconfig = None
) -> None:
    """Give new pods of a namespace to this scheduler, those that would have gone to the default one.

    Example: wattflow kube enable team-a --selector class=batch
    """
    _switch(True, namespace, selector, name, kubeconfig)


def disable(
    namespace: Given, selector: Selector = "", name: SchedulerName = "wattflow", kubeconfig: Kubeconfig = None
) -> None:
    """End what enable with the same words began: new pods go to the default scheduler.

    Example: wattflow kube disable team-a --selector class=batch
    """
    _switch(False, namespace, selector, name, kubeconfig)


def _switch(on: bool, namespace: str, selector: str, scheduler: str, kubeconfig: Path | None) -> None:
    for option, text in (("NAMESPACE", namespace), ("--name", scheduler)):
        if not _NAME.fullmatch(text):
            raise InvalidInput(option, f"{text[:80]!r} is no name: small letters, digits and dashes")
    labels = {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            raise InvalidInput("--selector", f"{part[:80]!r} is not LABEL=VALUE; several are separated by commas")
        labels[key] = value

    async def job(client: Client) -> str:
        from wattflow.kube import opt_in

        return await (opt_in.enable if on else opt_in.disable)(client, namespace, labels, scheduler)

    typer.echo(within(kubeconfig, job))


def savings(
    scheduler_url: Annotated[str, typer.Option("--scheduler", help="Where the scheduler serves HTTP.")] = "",
    release: Release = "wattflow/wattflow",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what a scheduler in shadow mode would have saved.

    Example: wattflow kube savings
    """
    if scheduler_url:
        check_address(scheduler_url)
    if not re.fullmatch(r"[-a-z0-9]+/[-a-z0-9]+", release):
        raise InvalidInput("--release", f"{release[:80]!r} is not NAMESPACE/NAME")

    async def job(client: Client) -> str:
        from wattflow.kube import opt_in

        return await opt_in.savings(client, scheduler_url, release)

    typer.echo(within(kubeconfig, job))


def profiles(
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="URL", help="Fit curves to Kepler's and DCGM's metrics there.")
    ] = "",
    days: Annotated[float, typer.Option("--days", help="Of so many days.")] = 7.0,
    write: Annotated[bool, typer.Option("--write", help="Write the fitted curves as NodePowerProfiles.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List the power curves of all nodes and where they come from; fit them to recorded metrics.

    Example: wattflow kube profiles --prometheus http://prometheus:9090
    """
    import time

    if not 0.04 <= days <= 60:
        raise InvalidInput("--days", f"{days:g} is not within 0.04 (an hour) and 60")
    if write and not prometheus:
        raise InvalidInput("--write", "needs --prometheus: there is nothing else to write")
    if prometheus:
        check_address(prometheus)

    async def job(client: Client) -> list[str]:
        from wattflow.kube import curves
        from wattflow.kube.curves import write_profile

        if not prometheus:
            return list(await curves.listed(client)) or ["there are no nodes"]
        found = await curves.fitted(client, prometheus, days)
        for one in found:
            if write and one.found is not None:
                await write_profile(client.access, one.node, one.found.curve)
        return [curves.told(one, time.time()) for one in found]

    typer.echo("\n".join(within(kubeconfig, job)))
