"""Cloud nodes that sleep by being given back: Karpenter's NodeClaims, deleted and made anew."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from wattflow.kube import given_back, objects
from wattflow.kube.client import ApiError
from wattflow.kube.given_back import GivenBack
from wattflow.levels.power_hooks import HookFailed

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
            await asyncio.sleep(given_back.POLL_S)


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
