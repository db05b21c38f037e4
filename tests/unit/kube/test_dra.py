"""Devices by claim: expressions, the allocator, who may go where, and what is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.dra import cel
from wattflow.kube.dra.claim_writer import GROUP, GUARD, ClaimWriter
from wattflow.kube.dra.device_ledger import Devices
from wattflow.kube.dra.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters import feasible
from wattflow.kube.filters.snapshot import Snapshot

from .making import node, pod
from .small_api import SmallApi, refusal, small_api

DRIVER = "gpu.example.com"


def gpu(name: str, model: str = "A", memory: str = "40Gi", **more: Any) -> dict[str, Any]:
    attributes = {"model": {"string": model}, "driver": {"version": "1.2.3"}, "cores": {"int": 8}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}} | more


def gpus(node_name: str, *devices: dict[str, Any], **more: Any) -> ResourceSlice:
    pool = {"name": node_name or "shared", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node_name, "devices": list(devices)} | more
    return msgspec.convert({"metadata": {"name": f"slice-{node_name}"}, "spec": spec}, ResourceSlice)


def kind(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"') -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def claim(name: str = "c", *requests: dict[str, Any], **more: Any) -> ResourceClaim:
    asked = [{"name": f"r{i}", "exactly": {"deviceClassName": "gpu"} | one} for i, one in enumerate(requests or ({},))]
    raw = {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
    return msgspec.convert(raw | {"spec": {"devices": {"requests": asked} | more}}, ResourceClaim)


def wants(name: str, *claims: str, **more: Any) -> objects.Pod:
    return pod(name, resourceClaims=[{"name": one, "resourceClaimName": one} for one in claims], **more)


def ledger(*found: ResourceSlice | ResourceClaim | DeviceClass) -> Devices:
    devices = Devices()
    for one in (kind(), *found):
        if isinstance(one, ResourceSlice):
            devices.put_slice(one)
        elif isinstance(one, ResourceClaim):
            devices.put_claim(one)
        else:
            devices.put_class(one)
    return devices


def given(devices: Devices, asked: objects.Pod, where: str = "x") -> list[list[str]] | str | None:
    """Devices of each of the pod's claims on a node, or why there are none."""
    reason = devices.assume(asked, node(where))
    if reason is not None:
        return reason
    found = [one.allocation for one in devices.assumed.values() if one.pod == asked.metadata.uid]
    return [[each.device for each in one.devices.results] for one in found]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model == 'A'", True),
        (f'device.attributes["{DRIVER}"].cores >= 4 + 2 * 2', True),
        (f'device.attributes["{DRIVER}"].model in ["B", "C"]', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("32Gi")) >= 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))', False),
        (f'device.attributes["{DRIVER}"].driver.isLessThan(semver("1.10.0"))', True),
        (f'device.attributes["{DRIVER}"].driver.compareTo(semver("1.2.3-rc.1")) > 0', True),
        (f'has(device.attributes["{DRIVER}"].model) && !has(device.attributes["other"].x)', True),
        (f'cel.bind(a, device.attributes["{DRIVER}"], a.model.startsWith("A") || a.nothing == 1)', True),
        ('device.attributes["other"].x == "y" && false', False),
        ('true || device.attributes["other"].x == "y"', True),
        ('["a", "b"].exists(x, x == "b") && ![1, 2].all(x, x > 1)', True),
        ('1 < 2 ? "a".size() == 1 : false', True),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("007 == 7 && 0xff == 255", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_expressions(expression: str, expected: bool) -> None:
    about = cel.device(
        DRIVER, {"model": "A", "cores": 8, "driver": cel.Version.of("1.2.3")}, {f"{DRIVER}/memory": "40Gi"}
    )
    assert cel.holds(expression, about) is expected


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["other"].x == "y"', "device.driver", '"a" == 1', "device.driver.matches('a+')", "1 +", "(1",
        "'a", "device.nothing()", "1 / 0 == 1", "9223372036854775807 + 1 > 0", "(" * 500 + "1" + ")" * 500, "!" * 5000,
        "size(1) == 1", "x == 1", '"\\q" == ""', "[1][2] == 1", "device.driver.major() == 1",
        pytest.param("1" * 5000 + " > 1", id="digits"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_an_error_and_nothing_worse(expression: str) -> None:
    with pytest.raises(cel.CelError):
        cel.holds(expression, cel.device(DRIVER, {}, {}))


def test_count_class_and_selectors() -> None:
    devices = ledger(gpus("x", gpu("a"), gpu("b", "B"), gpu("c")), claim("two", {"count": 2}), claim("one"), claim("b"))
    assert given(devices, wants("p", "two")) == [["a", "b"]]
    assert given(devices, wants("q", "one", "b")) == "too few devices", "both claims or none"
    assert given(devices, wants("r", "one")) == [["c"]]
    assert given(devices, wants("s", "b")) == "too few devices"
    devices.forget("uid-p")
    assert given(devices, wants("s", "b")) == [["a"]]
    assert given(devices, wants("t", "two"), "elsewhere") == "too few devices"


def test_all_constraints_alternatives_and_administrators() -> None:
    same = [{"matchAttribute": f"{DRIVER}/model"}]
    unlike = [{"distinctAttribute": f"{DRIVER}/model"}]
    every = claim("all", {"allocationMode": "All"})
    two = {"count": 2}
    devices = ledger(
        gpus("x", gpu("a"), gpu("b", "B"), gpu("c"), gpu("d", "B")), every, claim("watch", {"adminAccess": True})
    )
    devices.put_claim(claim("same", two, constraints=same))
    devices.put_claim(claim("unlike", two, constraints=unlike))
    assert given(devices, wants("p", "same")) == [["a", "c"]], "backtracking past b"
    devices.forget("uid-p")
    assert given(devices, wants("q", "unlike")) == [["a", "b"]]
    assert given(devices, wants("w", "watch")) == [["a"]], "looks at what is taken"
    assert given(devices, wants("r", "all")) == "too few devices"
    devices.forget("uid-q")
    assert given(devices, wants("r", "all")) == [["a", "b", "c", "d"]]
    large = {"name": "large", "deviceClassName": "gpu", "selectors": [
        {"cel": {"expression": f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'}}]}  # fmt: skip
    small = {"name": "small", "deviceClassName": "gpu", "count": 2}
    raw = {"metadata": {"name": "either", "namespace": "default"}, "spec": {"devices": {"requests": [
        {"name": "r", "firstAvailable": [large, small]}]}}}  # fmt: skip
    devices.forget("uid-r")
    devices.put_claim(msgspec.convert(raw, ResourceClaim))
    assert given(devices, wants("s", "either")) == [["a", "b"]]
    assert {one.request for one in devices.assumed["default/either"].allocation.devices.results} == {"r/small"}


def test_partitions_share_what_their_gpu_has() -> None:
    half: dict[str, Any] = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "20Gi"}}}]}
    whole: dict[str, Any] = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]}
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
    offered = gpus("x", gpu("whole", **whole), gpu("h1", **half), gpu("h2", **half), gpu("h3", **half))
    offered.spec.shared_counters = msgspec.convert({"sharedCounters": counters}, type(offered.spec)).shared_counters
    devices = ledger(offered, *(claim(name) for name in ("one", "two", "three")), claim("pair", {"count": 2}))
    assert given(devices, wants("p", "pair")) == [["h1", "h2"]], "the whole one and a half are too much"
    assert given(devices, wants("q", "one")) == "too few devices"
    devices.forget("uid-p")
    assert given(devices, wants("q", "one")) == [["whole"]]


def shared(name: str, memory: str = "40Gi", **policy: Any) -> dict[str, Any]:
    found = gpu(name, memory=memory, allowMultipleAllocations=True)
    found["capacity"]["memory"] |= {"requestPolicy": policy} if policy else {}
    return found


def part(amount: str, **more: Any) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": amount}}} | more


def test_a_device_is_given_out_in_shares_of_its_capacity() -> None:
    devices = ledger(gpus("x", shared("a")), claim("whole"))
    for i in range(4):
        devices.put_claim(claim(f"c{i}", part("12Gi")))
    assert [given(devices, wants(f"p{i}", f"c{i}")) for i in range(3)] == [[["a"]]] * 3
    results = [one.allocation.devices.results[0] for one in devices.assumed.values()]
    assert len({one.share_id for one in results}) == 3, "each share has a name of its own"
    assert [one.consumed_capacity for one in results] == [{"memory": str(12 << 30)}] * 3
    assert given(devices, wants("p3", "c3")) == "too few devices", "4 of 40 Gi are left"
    devices.forget("uid-p1")
    assert given(devices, wants("w", "whole")) == "too few devices", "who names no amount wants all of it"
    assert given(devices, wants("p3", "c3")) == [["a"]]
    for i in (0, 2, 3):
        devices.forget(f"uid-p{i}")
    assert given(devices, wants("w", "whole")) == [["a"]]


@pytest.mark.parametrize(
    ("asked", "policy", "takes"),
    [
        ("3Gi", {}, 3 << 30),
        ("41Gi", {}, None),
        ("-1Gi", {}, None),
        (None, {"default": "5Gi"}, 5 << 30),
        ("3Gi", {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}, 4 << 30),
        ("9Gi", {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}, None),
        ("1Gi", {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi"}}, 2 << 30),
        ("9Gi", {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi"}}, None),
        ("5Gi", {"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi"}}, 6 << 30),
        ("5Gi", {"default": "2Gi", "validRange": {"min": "2Gi", "step": "0"}}, 5 << 30),
        ("7.5Gi", {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "4Gi"}}, None),
    ],
)
def test_what_a_share_takes(asked: str | None, policy: dict[str, Any], takes: int | None) -> None:
    devices = ledger(gpus("x", shared("a", **policy)), claim("c", part(asked) if asked is not None else {}))
    reason = devices.assume(wants("p", "c"), node("x"))
    assert reason == (None if takes is not None else "too few devices")
    if takes is not None:
        (result,) = devices.assumed["default/c"].allocation.devices.results
        assert result.consumed_capacity == {"memory": str(takes)}


def test_shares_beside_whole_devices_counters_and_other_schedulers() -> None:
    devices = ledger(gpus("x", gpu("small", memory="8Gi"), gpu("large")), claim("c", part("16Gi")))
    assert given(devices, wants("p", "c")) == [["large"]], "of a whole device an amount is what it must have"
    assert devices.assumed["default/c"].allocation.devices.results[0].share_id is None
    odd = claim("odd", {"capacity": {"requests": {"engines": "1"}}})
    devices = ledger(gpus("x", shared("a"), shared("b")), odd, claim("two", part("30Gi", count=2)))
    assert given(devices, wants("q", "odd")) == "too few devices", "neither has such a thing"
    assert given(devices, wants("r", "two")) == [["a", "b"]], "a request gets no device twice"
    devices.put_claim(claim("pair", part("5Gi"), part("6Gi")))
    assert given(devices, wants("s", "pair")) == [["a", "b"]], "11 of 10 Gi that are left do not fit on one"
    devices.put_claim(claim("all", part("5Gi", allocationMode="All")))
    assert given(devices, wants("t", "all")) == [["a"]], "those that have so much left"

    half: dict[str, Any] = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "20Gi"}}}]}
    offered = gpus("x", shared("a") | half, gpu("b", **half), gpu("c", **half))
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
    offered.spec.shared_counters = msgspec.convert({"sharedCounters": counters}, type(offered.spec)).shared_counters
    theirs = claim("theirs")
    taken = {"request": "r0", "driver": DRIVER, "pool": "x", "device": "a", "shareID": "1"}
    status = {"allocation": {"devices": {"results": [taken | {"consumedCapacity": {"memory": "30Gi"}}]}}}
    theirs.status = msgspec.convert(status, type(theirs.status))
    devices = ledger(offered, theirs, claim("more", part("10Gi")), claim("one"), claim("two"))
    assert given(devices, wants("u", "more")) == [["a"]], "10 of 40 Gi are left, its counters are taken once"
    assert given(devices, wants("v", "one")) == [["b"]]
    assert given(devices, wants("w", "two")) == "too few devices", "the counters are used up"


def test_taints_generations_and_reach() -> None:
    bad = gpu("bad", taints=[{"key": "broken", "effect": "NoSchedule"}])
    devices = ledger(gpus("x", bad), claim("c"), claim("t", {"tolerations": [{"key": "broken", "operator": "Exists"}]}))
    assert given(devices, wants("p", "c")) == "too few devices"
    assert given(devices, wants("q", "t")) == [["bad"]]
    half_told = gpus("x", gpu("a"))
    half_told.spec.pool = msgspec.structs.replace(half_told.spec.pool, generation=2, resource_slice_count=2)
    devices = ledger(half_told, claim("c"))
    assert given(devices, wants("p", "c")) == "too few devices", "the driver has not told all"
    zone = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    devices = ledger(gpus("", gpu("a"), nodeSelector={"nodeSelectorTerms": zone}), claim("c"))
    assert given(devices, wants("p", "c")) == "too few devices"
    there = node("x")
    there.metadata.labels["zone"] = "z"
    assert devices.assume(wants("p", "c"), there) is None
    reach = devices.assumed["default/c"].allocation.node_selector
    assert msgspec.to_builtins(reach) == {"nodeSelectorTerms": zone}


def test_what_is_not_understood_keeps_the_pod_waiting_with_the_reason() -> None:
    devices = ledger(
        gpus("x", gpu("a")), claim("odd", {"selectors": [{"cel": {"expression": "device.driver.matches('g')"}}]})
    )
    devices.put_claim(claim("none", {"deviceClassName": "tpu"}))
    cluster = Snapshot.of([node("x")], [])
    cluster.devices = devices
    reasons = {name: feasible.feasible(wants("p", name), cluster)["x"] for name in ("odd", "none", "gone")}
    assert "matches" in str(reasons["odd"]) and "'tpu'" in str(reasons["none"])
    assert "does not exist" in str(reasons["gone"])
    cluster.devices = None
    assert "[devices] allocate" in str(feasible.feasible(wants("p", "odd"), cluster)["x"])


def test_claims_from_templates() -> None:
    devices = ledger(gpus("x", gpu("a")), claim("made"))
    asked = pod("p", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    assert "template" in str(devices.against(asked))
    asked.status.resource_claim_statuses = [objects.PodClaimStatus(name="g", resource_claim_name="made")]
    assert devices.against(asked) is None and given(devices, asked) == [["a"]]
    asked.status.resource_claim_statuses = [objects.PodClaimStatus(name="g")]
    assert devices.needs(asked) is not None and devices.against(asked) is None, "none is needed"


def test_a_claim_that_holds_devices_says_where_its_pods_go() -> None:
    devices = ledger(gpus("x", gpu("a")), claim("c"))
    assert given(devices, wants("p", "c")) == [["a"]]
    needs = devices.needs(wants("q", "c"))
    assert needs is not None and not needs.new
    assert devices.why_not(needs, node("x")) is None
    assert devices.why_not(needs, node("y")) == "devices of a claim are elsewhere"


CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


@asynccontextmanager
async def writing(*claims: ResourceClaim) -> AsyncIterator[tuple[SmallApi, Book, ClaimWriter]]:
    """A book with one node and one GPU, and what writes its claims."""
    async with small_api() as (api, access), Client(access) as client:
        book = Book(EngineDecider("fifo"), owns=lambda one: True, power_of=lambda one: None)
        writer = ClaimWriter(client, book, lambda: None, ledger(gpus("x", gpu("a")), *claims))
        book.cluster.devices = writer.devices
        book.on_node("ADDED", node("x"))
        for one in claims:
            api.put(CLAIMS, msgspec.to_builtins(one))
        yield api, book, writer


async def until_allocated(api: SmallApi, key: str) -> None:
    async with asyncio.timeout(60):
        while api.items[CLAIMS][key]["status"].get("allocation") is None:
            await asyncio.sleep(0.01)


async def write(writer: ClaimWriter, book: Book, uid: str) -> str | None:
    said: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    await writer.write(book.records[uid].pod, said.set_result)
    return await said


@pytest.mark.slow
def test_devices_are_given_once_and_written_before_the_binding() -> None:
    async def whole() -> None:
        async with writing(claim("c"), claim("d")) as (api, book, writer):
            for name in "cd":
                book.on_pod("ADDED", wants(f"pod-{name}", name))
            assert book.assume("uid-pod-c", "x") is None
            assert book.assume("uid-pod-d", "x") == "too few devices"
            assert await write(writer, book, "uid-pod-c") is None
            stored = api.items[CLAIMS]["default/c"]
            assert stored["metadata"]["finalizers"] == [GUARD]
            assert stored["status"]["allocation"]["devices"]["results"] == [
                {"request": "r0", "driver": DRIVER, "pool": "x", "device": "a"}
            ]
            assert stored["status"]["reservedFor"] == [{"resource": "pods", "name": "pod-c", "uid": "uid-pod-c"}]
            book.forget("uid-pod-c", 1.0)
            assert book.assume("uid-pod-d", "x") == "too few devices", "the claim may say so by now, unseen"

    asyncio.run(whole())


@pytest.mark.slow
def test_pods_that_share_a_claim_and_one_that_was_allocated_by_another_scheduler() -> None:
    async def whole() -> None:
        async with writing(claim("c"), claim("d")) as (api, book, writer):
            for name in ("one", "two"):
                book.on_pod("ADDED", wants(name, "c"))
                assert book.assume(f"uid-{name}", "x") is None
                assert await write(writer, book, f"uid-{name}") is None
            users = api.items[CLAIMS]["default/c"]["status"]["reservedFor"]
            assert [one["name"] for one in users] == ["one", "two"]
            writer.devices.assumed.clear()
            book.on_pod("ADDED", wants("late", "d"))
            assert book.assume("uid-late", "x") is None
            theirs = api.items[CLAIMS]["default/d"]
            theirs["status"] = {"allocation": {"devices": {}}}
            api.put(CLAIMS, theirs)
            assert "somebody else" in str(await write(writer, book, "uid-late"))

    asyncio.run(whole())


SLOW: dict[str, Any] = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


def test_devices_that_have_to_be_attached_come_last_and_tie_their_claim_to_the_node() -> None:
    fabric = gpus("", gpu("far", **SLOW), allNodes=True)
    devices = ledger(fabric, gpus("x", gpu("near")), claim("c"), claim("d"))
    assert given(devices, wants("p", "c")) == [["near"]] and given(devices, wants("q", "d")) == [["far"]]
    found = devices.assumed["default/d"].allocation
    assert found.devices.results[0].binding_conditions == ["attached"]
    assert msgspec.to_builtins(found.node_selector) == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}]
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "since", "why"),
    [
        ("attached", "2026-11-19T12:00:00Z", None),
        ("broken", "2999-01-01T00:00:00Z", "says broken"),
        ("nothing", "2026-11-19T12:00:00Z", "does not say attached"),
    ],
)
def test_a_pod_is_bound_when_its_device_is_attached(
    says: str, since: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattflow.kube.dra.claim_writer._ATTACHED_LOOK_S", 0.01)

    async def whole() -> None:
        async with writing(claim("c")) as (api, book, writer):
            writer.devices.put_slice(gpus("x", gpu("a", **SLOW)))
            book.on_pod("ADDED", wants("p", "c"))
            assert book.assume("uid-p", "x") is None
            writing_it = asyncio.create_task(write(writer, book, "uid-p"))
            await until_allocated(api, "default/c")
            await asyncio.sleep(0.05)  # for several looks at the claim
            assert not writing_it.done(), "it waits for the driver"
            stored = api.items[CLAIMS]["default/c"]
            (result,) = stored["status"]["allocation"]["devices"]["results"]
            conditions = [{"type": says, "status": "True"}]
            stored["status"]["devices"] = [
                {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": conditions}
            ]
            stored["status"]["allocation"]["allocationTimestamp"] = since
            api.put(CLAIMS, stored)
            said = await writing_it
            kept = "allocation" in api.items[CLAIMS]["default/c"]["status"]
            assert (said is None and kept) if why is None else (why in str(said) and not kept)

    asyncio.run(whole())


@pytest.mark.slow
def test_a_pod_that_goes_while_its_device_is_attached_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattflow.kube.dra.claim_writer._ATTACHED_LOOK_S", 0.01)

    async def whole() -> None:
        async with writing(claim("c")) as (api, book, writer):
            writer.devices.put_slice(gpus("x", gpu("a", **SLOW)))
            book.on_pod("ADDED", wants("p", "c"))
            assert book.assume("uid-p", "x") is None
            writing_it = asyncio.create_task(write(writer, book, "uid-p"))
            await until_allocated(api, "default/c")
            book.on_pod("DELETED", book.records["uid-p"].pod)
            assert "gone" in str(await writing_it)

    asyncio.run(whole())


@pytest.mark.slow
def test_devices_of_a_pod_that_fits_nowhere_with_them_are_given_back() -> None:
    async def whole() -> None:
        async with writing(claim("c")) as (api, book, writer):
            book.on_pod("ADDED", wants("p", "c", cpu="1"))
            assert book.assume("uid-p", "x") is None
            assert await write(writer, book, "uid-p") is None
            held = msgspec.convert(api.items[CLAIMS]["default/c"], ResourceClaim)
            writer.on_claim("MODIFIED", held)
            book.forget("uid-p", 1.0)
            await writer.release_idle()
            assert "allocation" in api.items[CLAIMS]["default/c"]["status"], "it could go there still"
            book.on_pod("ADDED", pod("full", "x", cpu="4"))
            await writer.release_idle()
            assert api.items[CLAIMS]["default/c"]["status"] == {}

    asyncio.run(whole())


def test_what_was_found_out_about_devices_does_not_outlive_them() -> None:
    devices = ledger(gpus("x", gpu("a")), claim("c"))
    assert given(devices, wants("p", "c")) == [["a"]]
    devices.forget("uid-p")
    devices.put_class(kind(expression='device.driver == "other"'))
    assert given(devices, wants("p", "c")) == "too few devices"
    devices.put_class(kind())
    devices.put_slice(gpus("x", gpu("b")))
    assert given(devices, wants("p", "c")) == [["b"]]
    devices.forget("uid-p")
    devices.drop_slice(gpus("x"))
    assert given(devices, wants("p", "c")) == "too few devices"


def test_a_claim_that_is_hard_to_meet_costs_nobody_else_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [{"matchAttribute": f"{DRIVER}/serial"}, {"matchAttribute": f"{DRIVER}/model"}]
    many = [gpu(f"g{i}", attributes={"model": {"string": "AB"[i % 2]}, "serial": {"int": i // 2}}) for i in range(24)]
    devices = ledger(gpus("x", *many), gpus("y", *many), claim("hard", *([{"count": 4}] * 3), constraints=odd[1:]))
    devices.put_claim(claim("easy"))
    monkeypatch.setattr("wattflow.kube.dra.allocation._MOST_STEPS", 10)
    assert "too many ways" in str(given(devices, wants("p", "hard")))
    monkeypatch.setattr("wattflow.kube.dra.allocation._MOST_STEPS", 10**6)
    assert "too many ways" in str(given(devices, wants("p", "hard"), "y")), "it is not tried on each node"
    assert given(devices, wants("q", "easy")) == [["g0"]]
    bad = gpus("x", gpu("a", memory="many"))
    assert "devices" in str(given(ledger(bad, kind(expression="has(device.driver)"), claim("c")), wants("p", "c")))


@pytest.mark.slow
def test_a_claim_that_cannot_be_read_any_more_ends_nothing() -> None:
    async def whole() -> None:
        async with writing(claim("c")) as (api, book, writer):
            book.on_pod("ADDED", wants("p", "c"))
            assert book.assume("uid-p", "x") is None
            api.items[CLAIMS]["default/c"]["status"] = 5
            assert "could not be written" in str(await write(writer, book, "uid-p"))

    asyncio.run(whole())


def test_an_api_server_without_devices_is_told_once_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wattflow.kube.dra.claim_writer._LOOK_S", 0.01)

    async def whole() -> None:
        async with writing() as (api, book, writer):
            book.cluster.devices = None
            book.on_pod("ADDED", wants("p", "c"))
            api.items |= {f"{GROUP}/{kind}": {} for kind in ("resourceclaims", "resourceslices", "deviceclasses")}
            api.faults += [(GROUP, lambda: refusal(404, "NotFound"))] * 5
            task = asyncio.create_task(writer.run(lambda: False))
            async with asyncio.timeout(30):
                while book.cluster.devices is None:
                    await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(whole())
    assert [one.getMessage() for one in caplog.records if "resource.k8s.io" in one.getMessage()] == [
        "resource.k8s.io/v1 is not served (Kubernetes 1.34 or later): pods with claims wait"
    ]
