"""Nodes that sleep by being given back to a cloud: what was there is kept until another node comes in its place.

A node without a machine draws nothing, and waking it takes as long as the provider needs for a new one. The node that
comes has another name, so the node's facts and what is needed to ask for it again are kept in a ConfigMap of ours that
outlives the scheduler. Whoever deletes that ConfigMap gives the node up for good.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from wattflow.kube import objects
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.tenant import PREFIX
from wattflow.levels.power_hooks import HookFailed

log = logging.getLogger(__name__)
KEPT = f"{PREFIX}asleep"
"""Label of the ConfigMaps that hold nodes which were given back; its value is the scheduler's name."""
POLL_S = 1.0
_GONE_S = 900.0


class GivenBack:
    """Keeps nodes that are given back. What fulfils `PowerHook` by it adds `suspend`, `resume` and `awaited`.

    Attributes:
        successors: Names of the nodes that came back, by the names they had before.
        coming: What was asked for, by the nodes that it replaces, until the pods which wait for those can go.
    """

    def __init__(self, client: Client, owner: str, namespace: str) -> None:
        self.client, self._owner = client, owner
        self._kept = f"/api/v1/namespaces/{namespace}/configmaps"
        self.successors: dict[str, str] = {}
        self.coming: dict[str, str] = {}

    def awaited(self, node: objects.Node) -> bool:
        """Tell whether pods are still meant for the node that this one replaces: it is idle, but not unwanted."""
        raise NotImplementedError

    def covers(self, node: str) -> bool:
        """Every node; one that the cloud does not know is told so when it shall sleep."""
        return True

    def arrived(self, node: str, known: Mapping[str, objects.Node]) -> str | None:
        """Return the name of the node that came in the place of this one; None while it is not known."""
        new = self.successors.get(node)
        return new if new in known else None

    async def watts(self, node: str) -> float | None:
        """A machine that was given back is nobody's to read."""
        return None

    async def remembered(self) -> list[objects.Node]:
        """Return the nodes that sleep since before this scheduler started, as they were."""
        query = {"labelSelector": f"{KEPT}={self._owner}"}
        found = await self.client.get(self._kept, dict, query=query)
        nodes = [msgspec.json.decode(one["data"]["node"], type=objects.Node) for one in found.get("items", [])]
        return sorted(nodes, key=lambda one: one.metadata.name)

    async def forget(self, node: str) -> None:
        """The node is back, or given up: nothing is kept of it."""
        try:
            await self.client.call("DELETE", self._path(node))
        except ApiError as error:
            if error.code != 404:
                log.error("what was kept of node %s could not be deleted: %s", node, error)

    # for those who build on it

    async def keep(self, node: str, facts: Any, taints: list[Any], data: Mapping[str, str]) -> None:
        """Write down a node as it comes back (these taints, not those of its leaving) and what asks for it again."""
        facts["metadata"].pop("managedFields", None)
        facts["spec"]["taints"] = taints
        # A long list that nobody reads; a ConfigMap holds 1 MiB at most.
        facts["status"].pop("images", None)
        body = {
            "metadata": {"name": self._path(node).rpartition("/")[2], "labels": {KEPT: self._owner}},
            "data": {**data, "node": msgspec.json.encode(facts).decode()},
        }
        # What an earlier sleep left behind; a name can be made once only.
        await self.forget(node)
        await self.client.call("POST", self._kept, body)

    async def kept(self, node: str, key: str) -> dict[str, str]:
        """Return what was kept of a node. Raises HookFailed where nothing is, or not by who calls."""
        try:
            data: dict[str, str] = (await self.client.get(self._path(node), dict))["data"]
        except ApiError as error:
            if error.code == 404:
                raise HookFailed(f"nothing is kept of {node}: its ConfigMap was deleted") from None
            raise HookFailed(f"what was kept of {node} cannot be read: {error}") from None
        if key not in data:
            raise HookFailed(f"{node} was given back in another way ([sleep] said something else then)")
        return data

    async def note(self, node: str, data: Mapping[str, str | None]) -> None:
        """Change what is kept of a node; None takes a key away. Raises HookFailed."""
        try:
            await self.client.call("PATCH", self._path(node), {"data": dict(data)}, content=MERGE)
        except ApiError as error:
            raise HookFailed(f"what was kept of {node} cannot be changed: {error}") from None

    async def until_gone(self, path: str) -> None:
        """Wait until an object is no more. Raises ApiError, TimeoutError."""
        async with asyncio.timeout(_GONE_S):
            while True:
                try:
                    await self.client.get(path, dict)
                except ApiError as error:
                    if error.code == 404:
                        return
                    raise
                await asyncio.sleep(POLL_S)

    def _path(self, node: str) -> str:
        """A ConfigMap's: node names may be as long as names may get, so by their hash."""
        return f"{self._kept}/{self._owner}-asleep-{hashlib.sha256(node.encode()).hexdigest()[:16]}"
