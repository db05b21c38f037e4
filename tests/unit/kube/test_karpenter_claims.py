"""Nodes that are given back to Karpenter and come anew, with its API in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from wattflow.kube import given_back, objects
from wattflow.kube.access import Access
from wattflow.kube.client import ApiError, Client
from wattflow.kube.given_back import CLAIMS, NodeClaims
from wattflow.kube.sleeping import Sleeper
from wattflow.live.protocol import Power

from .making import node
from .test_sleeping import until


class Cloud(Client):
    """Objects by path. A claim's node stands there, registered, at once; it is initialised when the test says so."""

    def __init__(self) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.objects: dict[str, Any] = {}
        self.made = 0

    def launch(self, claim: str) -> objects.Node:
        """Put a node behind a claim, as Karpenter registers it."""
        self.made += 1
        one = node(f"made-{self.made}")
        owner = objects.OwnerReference(kind="NodeClaim", name=claim)
        ready = [objects.Condition(type="Ready", status="True")]
        one = msgspec.structs.replace(
            one,
            metadata=msgspec.structs.replace(one.metadata, owner_references=[owner]),
            status=msgspec.structs.replace(one.status, conditions=ready),
        )
        body = msgspec.to_builtins(one)
        body["metadata"]["resourceVersion"] = "1"
        self.objects[f"/api/v1/nodes/{one.metadata.name}"] = body
        self.objects[f"{CLAIMS}/{claim}"]["status"] = {"nodeName": one.metadata.name, "conditions": []}
        return one

    def initialise(self, claim: str) -> None:
        """Say that a claim's node may be used."""
        self.objects[f"{CLAIMS}/{claim}"]["status"]["conditions"] = [{"type": "Initialized", "status": "True"}]

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> bytes:
        if method == "POST":
            self.objects[f"{path}/{body['metadata']['name']}"] = json.loads(json.dumps(body))
        elif method == "DELETE" and path in self.objects:
            del self.objects[path]
        elif method == "GET" and (path in self.objects or path == CLAIMS):
            items = [one for key, one in self.objects.items() if key.startswith(CLAIMS)]
            return json.dumps(self.objects.get(path, {"items": items})).encode()
        elif method != "PATCH":
            raise ApiError(404, "NotFound", path)
        return b"{}"


def test_a_node_that_comes_anew_stays_until_the_pods_that_it_comes_for_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is idle as long as they are meant for the node that it replaces."""
    monkeypatch.setattr(given_back, "POLL_S", 0.01)
    told: list[tuple[str, Power]] = []
    gone: list[str] = []

    async def run() -> None:
        cloud = Cloud()
        claims = NodeClaims(cloud, "wattflow", "wattflow")
        sleeper = Sleeper(
            cloud, "wattflow", claims, lambda name: False, lambda name, state: told.append((name, state)),
            gone.append, settle_s=0.0,
        )  # fmt: skip
        cloud.objects[f"{CLAIMS}/c"] = {"metadata": {"name": "c"}, "spec": {}}
        sleeper.seen("ADDED", cloud.launch("c"))
        sleeper.sleep("made-1")
        await until(lambda: told == [("made-1", Power.ASLEEP)])
        assert f"{CLAIMS}/c" not in cloud.objects
        sleeper.wake("made-1")
        await until(lambda: f"{CLAIMS}/c" in cloud.objects)
        sleeper.seen("ADDED", cloud.launch("c"))
        sleeper.sleep("made-2")
        assert told[1:] == [("made-2", Power.ON)], "its pods have not been told of it"
        cloud.initialise("c")
        await until(lambda: gone == ["made-1"])
        await until(lambda: not claims.coming)
        sleeper.sleep("made-2")
        await until(lambda: told[2:] == [("made-2", Power.ASLEEP)])

    asyncio.run(run())
