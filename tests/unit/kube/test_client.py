"""Client, mirrors and leases against a server that fails on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from wattflow.kube import access, objects
from wattflow.kube import client as client_module
from wattflow.kube.client import ApiError, Bucket, Client, Expired, changes, events_of
from wattflow.kube.filters import volumes
from wattflow.kube.leader import Leader
from wattflow.kube.reflect import Mirror
from wattflow.model.errors import InvalidInput

from .small_api import refusal, small_api

PODS = "/api/v1/pods"


def raw(name: str, uid: str = "") -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "d", "uid": uid or name}, "spec": {}}


async def until(condition: object, timeout_s: float = 5.0) -> None:
    """Wait for a condition by turns of the loop."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


@pytest.mark.slow
def test_lists_watches_and_goes_on_after_cuts_and_410() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(PODS, raw("a"))
            seen: list[tuple[str, str]] = []
            mirror = Mirror(client, PODS, objects.Pod, lambda kind, pod: seen.append((kind, pod.metadata.name)))
            task = asyncio.create_task(mirror.run())
            await mirror.synced.wait()
            api.put(PODS, raw("b"))
            await until(lambda: ("ADDED", "b") in seen)
            await until(lambda: api.watches)
            api.cut()
            api.put(PODS, raw("b"))
            await until(lambda: ("MODIFIED", "b") in seen)
            assert mirror.relists == 1
            await until(lambda: api.watches)
            api.delete(PODS, "d/a")
            api.put(PODS, raw("c"))
            api.compact()
            mirror.version = "1"
            api.cut()
            await until(lambda: mirror.relists == 2)
            await until(lambda: ("DELETED", "a") in seen and ("ADDED", "c") in seen)
            assert set(mirror.items) == {"d/b", "d/c"}
            task.cancel()

    asyncio.run(run())


def test_nodes_without_csi_drivers_are_read() -> None:
    """Every kubelet makes a CSINode, and where no driver is there the API says null."""
    path = "/apis/storage.k8s.io/v1/csinodes"

    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(path, {"metadata": {"name": "a", "uid": "a"}, "spec": {"drivers": None}})
            mirror = Mirror(client, path, objects.CsiNode, lambda kind, node: None)
            await mirror.relist()
            (found,) = mirror.items.values()
            assert found.spec.drivers is None
            assert volumes.Storage.of((), (), [found]).limits("a") == {}

    asyncio.run(run())


def test_what_cannot_be_read_is_set_aside_and_taken_once_it_can_be() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(PODS, raw("bad") | {"spec": {"containers": 7}})
            api.put(PODS, raw("good"))
            aside: list[tuple[str, str]] = []
            mirror = Mirror(client, PODS, objects.Pod, lambda kind, pod: None)
            mirror.aside = lambda path, metadata, why: aside.append((metadata.name, why))
            task = asyncio.create_task(mirror.run())
            await asyncio.wait_for(mirror.synced.wait(), 10)
            assert [one.metadata.name for one in mirror.items.values()] == ["good"]
            assert [(name, "containers" in why) for name, why in aside] == [("bad", True)]
            api.put(PODS, raw("bad"))
            async with asyncio.timeout(10):
                while len(mirror.items) < 2:
                    await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(run())


def test_a_pod_made_anew_under_its_name_is_told_as_gone_first() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(PODS, raw("a", "1"))
            seen: list[tuple[str, str]] = []
            mirror = Mirror(client, PODS, objects.Pod, lambda kind, pod: seen.append((kind, pod.metadata.uid)))
            await mirror.relist()
            api.put(PODS, raw("a", "2"))
            await mirror.relist()
            assert seen == [("ADDED", "1"), ("DELETED", "1"), ("ADDED", "2")]

    asyncio.run(run())


def test_a_list_asked_for_ahead_is_taken_once_and_what_came_after_it_by_the_watch() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(PODS, raw("a"))
            client.list_ahead(PODS)
            await client._ahead[PODS]
            api.put(PODS, raw("b"))
            names: list[str] = []
            mirror = Mirror(client, PODS, objects.Pod, lambda kind, pod: names.append(pod.metadata.name))
            task = asyncio.create_task(mirror.run())
            async with asyncio.timeout(30):
                await mirror.synced.wait()
                assert names == ["a"], "what was there when it was asked for"
                while names != ["a", "b"]:
                    await asyncio.sleep(0.01)
                assert len((await client.list_all(PODS, objects.Pod)).items) == 2
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_list_ahead_that_fails_is_asked_for_again_or_left_without_a_word() -> None:
    async def run() -> None:
        async with small_api() as (api, where):
            api.put(PODS, raw("a"))
            async with Client(where) as client:
                api.faults.append(("pods", lambda: refusal(403, "Forbidden")))
                client.list_ahead(PODS)
                with pytest.raises(ApiError, match="403"):
                    await client.list_all(PODS, objects.Pod)
                assert len((await client.list_all(PODS, objects.Pod)).items) == 1
                api.faults.append(("pods", lambda: refusal(403, "Forbidden")))
                client.list_ahead(PODS)  # nobody takes it

    asyncio.run(run())


def test_429_is_waited_for_and_other_refusals_are_raised() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(PODS, raw("a"))
            api.faults += [("pods", lambda: refusal(429, "TooManyRequests", **{"Retry-After": "0"}))] * 3
            assert len((await client.list_all(PODS, objects.Pod)).items) == 1
            assert client.throttled == 3
            with pytest.raises(ApiError, match="404 NotFound"):
                await client.get("/api/v1/namespaces/d/pods/none", objects.Pod)

    asyncio.run(run())


def test_a_bookmark_of_pods_has_no_containers_and_moves_the_version() -> None:
    lines = [
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"430"},'
        b'"spec":{"containers":null},"status":{}}}'
    ]
    (change,) = changes(lines, events_of(objects.Pod))
    assert (change.kind, change.item, change.version) == ("BOOKMARK", None, "430")
    (bad,) = changes([lines[0].replace(b"BOOKMARK", b"MODIFIED")], events_of(objects.Pod))
    assert bad.item is None and bad.bad is not None and "containers" in bad.bad.why, "the object alone is set aside"
    with pytest.raises(Expired):
        changes([b'{"type":"ERROR","object":{"code":410,"reason":"Expired","spec":null}}'], events_of(objects.Pod))


@pytest.mark.parametrize("depth", [300, 1500, 9000])
def test_an_object_that_is_nested_too_deeply_costs_itself_alone(depth: int) -> None:
    """Where a kind's form is unknown to it (Argo's workflows) the API server takes ten thousand levels."""
    deep = json.dumps(raw("deep"))[:-1] + ', "x": ' + '{"a": ["]\\"}", ' * depth + "7" + "]}" * depth + "}"
    plain = json.dumps(raw("plain"))
    found = changes([f'{{"type": "ADDED", "object": {one}}}'.encode() for one in (deep, plain)], events_of(objects.Pod))
    bad: list[client_module.Unreadable] = []
    page = f'{{"metadata": {{"resourceVersion": "7"}}, "items": [{deep}, {plain}]}}'.encode()
    pages = client_module._page(client_module._pages_of(objects.Pod), page, objects.Pod, bad)
    assert [one.item.metadata.name for one in found if one.item] == [one.metadata.name for one in pages.items]
    if depth > 1000:
        assert found[0].bad is not None and "nested" in found[0].bad.why and found[0].bad.metadata.name == "deep"
        assert [(one.metadata.name, "nested" in one.why) for one in bad] == [("deep", True)]
    assert [one.metadata.name for one in pages.items][-1] == "plain" and pages.metadata.resource_version == "7"


def test_bucket_spreads_requests() -> None:
    now = 0.0
    bucket = Bucket(2.0, 3.0, lambda: now)
    assert [bucket.delay_s() for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    now = 2.0
    assert bucket.delay_s() == 0.0


def leader(client: Client, who: str, clock: object) -> Leader:
    return Leader(client, "d", "ours", who, clock=clock)  # type: ignore[arg-type]


def test_one_leads_and_the_other_takes_over_only_after_the_lease_ran_out() -> None:
    async def run() -> None:
        now = 0.0
        async with small_api() as (_, where), Client(where) as client:
            one, two = leader(client, "one", lambda: now), leader(client, "two", lambda: now)
            await one.attempt()
            await two.attempt()
            assert one.leads and not two.leads
            now = 9.9
            assert one.leads
            now = 10.1
            assert not one.leads, "it stops binding before the lease of 15 s can be taken"
            await two.attempt()
            assert not two.leads
            now = 15.1
            await two.attempt()
            assert two.leads and not one.leads
            await one.attempt()
            assert not one.leads
            await two.release()
            await one.attempt()
            assert one.leads

    asyncio.run(run())


def test_a_lease_lost_between_reading_and_writing_is_not_held() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            one = leader(client, "one", lambda: 0.0)
            api.faults.append(("leases", lambda: refusal(404, "NotFound")))
            api.put(
                "/apis/coordination.k8s.io/v1/namespaces/d/leases", {"metadata": {"name": "ours", "namespace": "d"}}
            )
            with pytest.raises(ApiError, match="409"):
                await one.attempt()
            assert not one.leads

    asyncio.run(run())


class Late(Leader):
    """One whose next look at the lease is overtaken by something, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def _read(self) -> object:  # type: ignore[override]
        found = await super()._read()
        if self.meanwhile is not None:
            then, self.meanwhile = self.meanwhile, None
            await then()
        return found


@pytest.mark.parametrize("taken", [False, True])
def test_who_was_late_itself_goes_on_leading_unless_somebody_took_over(taken: bool) -> None:
    async def run() -> None:
        now, lost = 0.0, []

        async def overtaken() -> None:
            nonlocal now
            now += 12.0  # a decision that took longer than a renewal may
            if taken:
                await two.attempt()
                now += 16.0
                await two.attempt()

        async with small_api() as (_, where), Client(where) as client:
            one = Late(client, "d", "ours", "one", retry_s=0.01, clock=lambda: now)
            two = leader(client, "two", lambda: now)
            task = asyncio.create_task(one.run(lambda: lost.append("lost")))
            await one.elected.wait()
            one.meanwhile = overtaken
            await until(lambda: one.meanwhile is None and (bool(lost) or one.leads))
            task.cancel()
            assert bool(lost) == taken
            assert one.leads != taken and two.leads == taken

    asyncio.run(run())


def test_a_server_that_only_asks_for_patience_does_not_hold_a_renewal_for_minutes() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            one = Leader(client, "d", "ours", "one", lease_s=3.0, renew_s=2.0)
            api.faults += [("leases", lambda: refusal(429, "TooManyRequests", **{"Retry-After": "5"}))] * 6
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError):
                await one.attempt()
            assert asyncio.get_running_loop().time() - began_s < 4.0

    asyncio.run(run())


def test_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("""
current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1/"}}]
users: [{name: u, user: {token: t}}]
""")
    found = access.find(path)
    assert (found.server, found.namespace, found.bearer()) == ("http://127.0.0.1:1", "n", "t")
    with pytest.raises(InvalidInput, match="no context named 'x'"):
        access.from_kubeconfig(path, "x")
    path.write_text(path.read_text().replace("token: t", "exec: {}"))
    with pytest.raises(InvalidInput, match="logs in by exec"):
        access.find(path)
