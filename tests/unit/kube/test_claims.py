"""Claims on nodes that are shared with another scheduler: when the room on them is ours."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import msgspec

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.claims import CLAIM, Claims, expired
from wattflow.kube.client import Client
from wattflow.kube.taint_writer import drop_taint

from .making import node, pod
from .small_api import small_api

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/wattflow/leases"


def claimed() -> objects.Node:
    one = node("n")
    taint = objects.Taint(key=CLAIM, value="wattflow", effect="NoSchedule")
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, taints=[taint]))


def test_a_claim_waits_for_what_the_other_scheduler_may_have_under_way() -> None:
    now = [100.0]
    claims = Claims(Client(Access("http://127.0.0.1:1")), "wattflow", lambda: now[0], settle_s=2.0, patience_s=600.0)
    first, second, late = pod("first"), pod("second"), pod("late")
    claims.pod_seen("ADDED", first)
    claims.pod_seen("ADDED", second)
    assert not claims.seen("ADDED", claimed()).spec.taints
    assert claims.wait_until_s("n") == 102.0
    now[0] = 103.0
    assert claims.wait_until_s("n") > 103.0, "decided before the claim perhaps, bound only later"
    claims.pod_seen("ADDED", late)  # its scheduler has seen the taint
    claims.pod_seen("MODIFIED", pod("first", "n"))
    assert claims.wait_until_s("n") > 103.0
    nowhere = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    claims.pod_seen("MODIFIED", pod("second", status={"conditions": nowhere}))
    assert claims.wait_until_s("n") == 0.0
    claims.seen("MODIFIED", node("n"))  # given back, and claimed anew: now the late one counts
    claims.seen("MODIFIED", claimed())
    now[0] = 110.0
    assert claims.wait_until_s("n") > 110.0
    now[0] = 103.0 + 600.0
    assert claims.wait_until_s("n") == 0.0, "nobody decides about it"


def _raw(name: str, owner: str) -> dict[str, Any]:
    taints = [{"key": "theirs", "effect": "NoSchedule"}, {"key": CLAIM, "value": owner, "effect": "NoSchedule"}]
    return {"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}}


def test_claims_end_with_their_scheduler_and_without_it() -> None:
    now = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)

    def lease(owner: str, seconds: int) -> dict[str, Any]:
        renewed = (now - datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
        about = {"name": owner, "namespace": "wattflow"}
        return {"metadata": about, "spec": {"holderIdentity": "x", "renewTime": renewed}}

    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            for name, owner in (("a", "living"), ("b", "dead"), ("c", "gone"), ("d", "living")):
                api.put(NODES, _raw(name, owner))
            api.put(LEASES, lease("living", 5))
            api.put(LEASES, lease("dead", 500))
            found = await expired(client, "wattflow", 120.0, now)
            assert found == {"b": "dead", "c": "gone"}
            assert not await drop_taint(client, "d", CLAIM, "gone"), "claimed anew by another one meanwhile"
            for name, owner in found.items():
                assert await drop_taint(client, name, CLAIM, owner)
            claims = Claims(client, "living", lambda: 0.0)
            for one in (await client.list_all(NODES, objects.Node)).items:
                claims.seen("ADDED", one)
            await claims.give_back()
            left = {key: [t["key"] for t in one["spec"]["taints"]] for key, one in api.items[NODES].items()}
            assert left == {f"/{name}": ["theirs"] for name in "abcd"}, "ours are off, theirs stay"

    asyncio.run(run())


def test_a_node_that_another_claimed_first_is_asked_for_again() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(NODES, _raw("a", "other"))
            claims = Claims(client, "ours", lambda: 0.0, settle_s=0.01)
            claims.wait_until_s("a")  # the watch has not told of the other's claim yet
            await asyncio.gather(*claims._tasks)
            assert await drop_taint(client, "a", CLAIM, "other")
            claims.wait_until_s("a")
            await asyncio.gather(*claims._tasks)
            taints = api.items[NODES]["/a"]["spec"]["taints"]
            assert [(one["key"], one.get("value")) for one in taints] == [("theirs", None), (CLAIM, "ours")]

    asyncio.run(run())
