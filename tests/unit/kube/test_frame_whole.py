"""Placers of a frame over HTTP against a small API server: nothing is promised twice, gangs are whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from wattflow.frames.frame import Frame
from wattflow.frames.library import parse_frame
from wattflow.kube import objects, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.binder import Binder, Bound
from wattflow.kube.book import Record
from wattflow.kube.client import Client
from wattflow.kube.frame import fleet
from wattflow.kube.frame.broker import Broker
from wattflow.kube.frame.reservations import Reservations
from wattflow.kube.frame.role import PLACER, Role
from wattflow.kube.leader import Leader
from wattflow.kube.scheduler import Scheduler

from .small_api import SmallApi, small_api
from .test_scheduler_whole import NODES, PODS, node, pod, until, where

pytestmark = pytest.mark.slow
HASHED = parse_frame('name = "h"\narchitecture = "decentralised"\n[placers]\ncount = 2\n', "h")
THIEVES = parse_frame(
    'name = "t"\narchitecture = "delegated"\n[broker]\n[placers]\ncount = 2\npartition = "disjoint"\n'
    "[stealing]\nplacers = 1\nretry_s = 0.1\n",
    "t",
)
CONFIG = """
policy = "fifo"
[limits]
concurrency = 1
[http]
port = 0
[energy]
profiles = false
[workflows]
argo = false
[lease]
lease_s = 20
retry_s = 0.1
"""


@contextlib.asynccontextmanager
async def frame_of(access: Access, frame: Frame) -> AsyncIterator[list[Any]]:
    """All parts of a frame as tasks of one process."""
    chosen = settings.parse(CONFIG)
    async with contextlib.AsyncExitStack() as stack:
        parts: list[Any] = []
        for index in range(frame.placers.count):
            client = await stack.enter_async_context(Client(access))
            parts.append(scheduler_process.make(client, fleet.placer_settings(chosen, index), Role(frame, index)))
        if frame.broker is not None:
            client = await stack.enter_async_context(Client(access))
            leader = Leader(client, "kube-system", "broker", "broker", retry_s=0.1)
            parts.append(Broker(client, chosen, frame, leader))
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            # one that leads and has not taken up the cluster yet would find it full
            await until(lambda: all(part.leader.elected.is_set() for part in parts))
            await until(lambda: all(part.book.live for part in parts if isinstance(part, Scheduler)))
            yield parts
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in done), done


def used(api: SmallApi) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in api.items[PODS].values():
        if one["spec"].get("nodeName"):
            total[one["spec"]["nodeName"]] += int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    return total


def owners(api: SmallApi) -> Counter[str | None]:
    return Counter(one["metadata"].get("labels", {}).get(PLACER) for one in api.items[NODES].values())


def bindings(api: SmallApi) -> list[str]:
    return [path for method, path in api.calls if path.endswith("/binding")]


def prepared(api: SmallApi, nodes: int) -> None:
    for i in range(nodes):
        api.put(NODES, node(f"n{i}"))
    api.items["/api/v1/namespaces"] = {}
    api.items.setdefault(PODS, {})


def meet(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let two placers write their first pages at the same moment, however the machine shares its cores."""
    met, rounds, reserve = asyncio.Barrier(2), Counter[int](), Reservations.reserve

    async def together(ledger: Reservations, records: Sequence[Record]) -> str | None:
        rounds[ledger.placer] += 1
        if rounds[ledger.placer] <= times:
            await met.wait()
        return await reserve(ledger, records)

    monkeypatch.setattr(Reservations, "reserve", together)


def test_two_placers_on_the_same_nodes_promise_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        meet(monkeypatch, 2)  # at the second the first pages of both are written
        async with small_api() as (api, access):
            prepared(api, 3)
            async with frame_of(access, HASHED) as placers:
                for i in range(30):
                    one = pod(f"p{i}", "1")
                    one["metadata"]["labels"] = {PLACER: str(i % 2)}
                    api.put(PODS, one)
                await until(lambda: sum(used(api).values()) == 12)
                await asyncio.sleep(0.3)
                assert dict(used(api)) == {"n0": 4, "n1": 4, "n2": 4}
                assert len(bindings(api)) == len(set(bindings(api))) == 12
                notes = [one["metadata"].get("annotations", {}) for one in api.items[PODS].values()]
                by = Counter(note["wattflow.io/decision"][-2] for note in notes if note)
                assert set(by) == {"0", "1"}, by
                assert sum(one.ledger.conflicts for one in placers) > 0, "both began with empty nodes"
                for key in [f"default/{name}" for name, on in where(api).items() if on == "n1"]:
                    api.delete(PODS, key)
                await until(lambda: used(api)["n1"] == 4)
                assert max(used(api).values()) == 4

    asyncio.run(whole())


def test_a_pod_that_is_stolen_while_its_binding_is_under_way_is_the_thiefs() -> None:
    async def whole() -> None:
        async with small_api() as (api, access), Client(access) as client:
            prepared(api, 1)
            read = msgspec.convert(api.put(PODS, pod("p", "1")), objects.Pod)
            stolen = pod("p", "1")
            stolen["metadata"]["labels"] = {PLACER: "1"}
            now = msgspec.convert(api.put(PODS, stolen), objects.Pod)
            binder = Binder(client, "wattflow", exact=True)
            assert (await binder.bind(read, "n0", {}))[0] is Bound.FAILED
            assert where(api) == {"p": ""}
            assert (await binder.bind(now, "n0", {}))[0] is Bound.DONE

    asyncio.run(whole())


def test_a_gang_on_shared_nodes_is_whole_or_not_there() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, 2)
            async with frame_of(access, HASHED):
                for g in range(4):
                    for i in range(3):
                        member = pod(f"g{g}-{i}", "2")
                        notes = {"wattflow.io/gang": f"g{g}", "wattflow.io/gang-size": "3"}
                        member["metadata"]["annotations"] = notes
                        api.put(PODS, member)
                await until(lambda: sum(used(api).values()) == 6)
                await asyncio.sleep(0.5)
                started = Counter(name.split("-")[0] for name, on in where(api).items() if on)
                assert list(started.values()) == [3], started

    asyncio.run(whole())


def test_a_placer_that_went_away_leaves_no_promise_behind() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, 1)
            promised = {"gone": [0, "default/gone", {"cpu": 4000, "pods": 1}]}
            leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
            notes = {"wattflow.io/node": "n0", "wattflow.io/promised": str(promised).replace("'", '"')}
            meta = {"name": "wattflow-on-n0", "namespace": "kube-system", "labels": {"wattflow.io/ledger": "wattflow"}}
            api.put(leases, {"metadata": meta | {"annotations": notes}})
            api.put(PODS, pod("p", "4") | {})
            api.items[PODS]["default/p"]["metadata"]["labels"] = {PLACER: "1"}
            async with frame_of(access, HASHED):
                await until(lambda: where(api)["p"] == "n0")

    asyncio.run(whole())


def test_the_broker_divides_and_an_idle_placer_steals() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, 4)
            async with frame_of(access, THIEVES) as parts:
                await until(lambda: dict(owners(api)) == {"0": 2, "1": 2})
                for i in range(16):  # all for one placer, which has room for eight
                    one = pod(f"p{i}", "1")
                    one["metadata"]["labels"] = {PLACER: "0"}
                    api.put(PODS, one)
                await until(lambda: sum(used(api).values()) == 16)
                assert parts[1].thief.stolen >= 8 and max(used(api).values()) == 4
                assert len(bindings(api)) - len(set(bindings(api))) <= parts[1].thief.stolen

    asyncio.run(whole())
