"""The whole scheduler over HTTP against a small API server: it binds, stops, and another goes on where it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from wattflow.kube import scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.client import Client

from .small_api import SmallApi, small_api

pytestmark = pytest.mark.slow
CONFIG = """
policy = "fifo"
[lease]
identity = "{who}"
lease_s = 4
renew_s = 2
retry_s = 0.1
[energy]
profiles = false
[workflows]
argo = false
"""
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


def node(name: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"allocatable": room, "capacity": room}}


def pod(name: str, cpu: str, scheduler: str = "wattflow", where: str = "") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "containers": [container]} | ({"nodeName": where} if where else {})
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec, "status": {}}


def where(api: SmallApi) -> dict[str, str]:
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in api.items[PODS].values()}


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.02)


async def running(access: Access, who: str, act: Callable[[Any], Any]) -> None:
    """A scheduler for as long as `act` takes; it gives the lease back."""
    async with Client(access) as client:
        scheduler = scheduler_process.make(client, settings.parse(CONFIG.format(who=who)))
        task = asyncio.create_task(scheduler.run())
        try:
            await act(scheduler)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await scheduler.leader.release()


def test_it_binds_and_another_goes_on_where_it_stopped() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            api.put(NODES, node("a"))
            api.items["/api/v1/namespaces"] = {}
            for one in (pod("one", "2"), pod("theirs", "1", "other", "a"), pod("big", "3")):
                api.put(PODS, one)

            async def first(scheduler: Any) -> None:
                await until(lambda: where(api)["one"] == "a")
                api.cut()  # watches go on where they were
                api.put(PODS, pod("late", "1"))
                await until(lambda: where(api)["late"] == "a")
                assert where(api)["big"] == "", "four cores, four taken"

            async def second(scheduler: Any) -> None:
                await until(lambda: scheduler.leader.elected.is_set() and scheduler.book.live)
                held = {uid for uid, record in scheduler.book.records.items() if record.held}
                assert held == {"uid-one", "uid-late"}, "ours are ours again, theirs are load"
                await asyncio.sleep(0.3)
                assert where(api)["big"] == ""
                api.delete(PODS, "default/one")
                api.delete(PODS, "default/late")
                await until(lambda: where(api)["big"] == "a")

            await running(access, "first", first)
            await running(access, "second", second)
            bindings = [path for method, path in api.calls if path.endswith("/binding")]
            assert len(bindings) == len(set(bindings)) == 3, "nobody was bound twice"

    asyncio.run(whole())
