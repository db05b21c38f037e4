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


CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
RIGHTS = tuple(("karpenter.sh", "nodeclaims", verb) for verb in ("list", "create", "delete"))
_KEEP_OFF = "karpenter.sh/do-not-disrupt"
_ENDS = "karpenter.sh/nodeclaim-termination-timestamp"


class NodeClaims(GivenBack):
    """Gives nodes back to Karpenter and asks for them again. Fulfils `PowerHook`; `coming` holds names of claims."""

    def awaited(self, node: objects.Node) -> bool:
        """Tell by its owner, which Karpenter writes when it takes off the taint of an unregistered node.

        So there is no moment at which the node could be ours to switch and not be known.
        """
        owners = node.metadata.owner_references
        return any(one.kind == "NodeClaim" and one.name in self.coming.values() for one in owners)

    async def suspend(self, node: str) -> None:
        """Keep the node's facts, then delete its claim and wait until Karpenter has let the node go."""
        try:
            claim = await self._claim_of(node)
            notes = claim["metadata"].get("annotations") or {}
            # An operator's word against disruption goes before ours.
            if notes.get(_KEEP_OFF) == "true":
                raise HookFailed(f"the NodeClaim {claim['metadata']['name']} says {_KEEP_OFF}")
            facts = await self.client.get(f"/api/v1/nodes/{node}", dict)
            again = msgspec.json.encode(_again(claim)).decode()
            # Before the claim is deleted: afterwards nothing else knows the node. A claim's own taints (of the pool, of
            # its start) are in its spec; what Karpenter adds to let go is not kept.
            await self.keep(node, facts, claim["spec"].get("taints") or [], {"claim": again})
            await self.client.call("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
            await self.until_gone(f"{CLAIMS}/{claim['metadata']['name']}")
        except ApiError as error:
            raise HookFailed(f"Karpenter's NodeClaim of {node}: {error}") from None

    async def resume(self, node: str) -> None:
        """Make the claim anew under its old name and wait until a node stands behind it."""
        claim = msgspec.json.decode((await self.kept(node, "claim"))["claim"])
        name = claim["metadata"]["name"]
        self.coming[node] = name
        await self._make(name, claim)
        self.successors[node] = await self._until_there(name)

    async def _make(self, name: str, claim: Any) -> None:
        try:
            # the same name, so that an order that was given twice (a restart in between) makes one claim
            await self.client.call("POST", CLAIMS, claim)
        except ApiError as error:
            if error.code != 409:
                raise HookFailed(f"Karpenter's NodeClaim {name}: {error}") from None

    async def _claim_of(self, node: str) -> Any:
        for claim in (await self.client.get(CLAIMS, dict)).get("items", []):
            if claim.get("status", {}).get("nodeName") == node:
                return claim
        raise HookFailed(f"{node} has no NodeClaim: Karpenter did not make it")

    async def _until_there(self, claim: str) -> str:
        """Wait until the claim's node has its start-up taints off (Initialized); its name."""
        while True:
            try:
                found = await self.client.get(f"{CLAIMS}/{claim}", dict)
            except ApiError as error:
                if error.code == 404:  # Karpenter deletes a claim that the provider has no machine for
                    raise HookFailed(
                        f"Karpenter gave the NodeClaim {claim} up: the provider has no such node"
                    ) from None
                raise HookFailed(f"Karpenter's NodeClaim {claim}: {error}") from None
            status = found.get("status", {})
            done = {one["type"]: one["status"] for one in status.get("conditions", [])}
            # Initialized comes after the start-up taints are off, so pods may go there.
            if done.get("Initialized") == "True" and status.get("nodeName"):
                return str(status["nodeName"])
            await asyncio.sleep(POLL_S)


def _again(claim: Any) -> Any:
    """Return a claim as it is made anew."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": metadata["name"],
            "labels": metadata.get("labels") or {},
            "annotations": {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _ENDS},
            # of its NodePool: without it Karpenter would count the node to no pool
            "ownerReferences": metadata.get("ownerReferences") or [],
        },
        "spec": claim["spec"],
    }
