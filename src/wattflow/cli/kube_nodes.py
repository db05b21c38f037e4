"""`wattflow kube sleep`, `power` and `claims`: what the scheduler does to nodes, for an operator."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.kube.access import Access

LeaseNamespace = Annotated[
    str, typer.Option("--lease-namespace", help="Namespace of the scheduler's lease, as its configuration says.")
]


def sleep(where: Access, what: str, namespace: str) -> str:
    """Switch sleep on or off, or say which nodes sleep by our order."""
    if what not in ("on", "off", "status"):
        raise InvalidInput("sleep", f"{what!r} is not on, off or status")
    import asyncio  # not loaded for --help

    return asyncio.run(_sleep(where, what, namespace))


async def _sleep(where: Access, what: str, namespace: str) -> str:
    from wattflow.kube import objects
    from wattflow.kube.allowance import SWITCH
    from wattflow.kube.client import MERGE, ApiError, Client
    from wattflow.kube.sleeping import ASLEEP

    async with Client(where) as client:
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
    named = ", ".join(asleep) if asleep else "none"
    switched = "off: the scheduler wakes what sleeps and keeps all nodes on" if off else "on"
    return f"sleep is {switched}\nasleep by our order, or on their way: {named}"


def power(where: Access, what: str, node: str, config: Path) -> str:
    """Switch one node as the scheduler would, or read what it draws."""
    if what not in ("sleep", "wake", "watts"):
        raise InvalidInput("power", f"{what!r} is not sleep, wake or watts")
    import asyncio  # not loaded for --help

    return asyncio.run(_power(where, what, node, config))


async def _power(where: Access, what: str, node: str, config: Path) -> str:
    from wattflow.kube import actuators, settings
    from wattflow.kube.client import Client

    async with Client(where) as client:
        hook = actuators.make(settings.read(config), client)
        if hook is None:
            raise InvalidInput(str(config), "says nothing under [sleep] of how nodes are switched")
        if not hook.covers(node):
            raise InvalidInput(node, f"is none of the nodes that {config} can switch")
        if what == "watts":
            drawn_w = await hook.watts(node)
            return f"{node}: {'nobody measures it' if drawn_w is None else f'{drawn_w:g} W'}"
        await (hook.suspend(node) if what == "sleep" else hook.resume(node))
    return f"{node}: the order to {what} was taken"


def claims(where: Access, namespace: str, release_expired: bool, silent_s: float) -> str:
    """Say which claims have lost their owner, and take them off where asked."""
    import asyncio  # not loaded for --help

    return asyncio.run(_claims(where, namespace, release_expired, silent_s))


async def _claims(where: Access, namespace: str, release: bool, silent_s: float) -> str:
    from wattflow.kube.claims import expired, write_claim
    from wattflow.kube.client import Client

    async with Client(where) as client:
        names = await expired(client, namespace, silent_s, datetime.datetime.now(datetime.UTC))
        if not names:
            return "every claim has an owner that lives"
        if not release:
            return f"claims whose owner has been silent for {silent_s:g} s: {', '.join(names)}"
        done = [name for name in names if await write_claim(client, name, "")]
    return f"released: {', '.join(done) or 'none'}"
