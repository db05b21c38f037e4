"""Volumes that wait for their first pod: asked for on the chosen node, and the pod is bound when they are there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.client import Client
from wattflow.kube.filters import volume_match, volumes

from .small_api import SmallApi, small_api
from .test_scheduler_whole import CONFIG, NODES, PODS, node, pod, until, where

pytestmark = pytest.mark.slow
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
STORAGE = "/apis/storage.k8s.io/v1"
SELECTED, BOUND = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"


def prepared(api: SmallApi, zone: str) -> None:
    """Two nodes in two zones, a class for one of them, a claim of it, and a pod with the claim."""
    for name in ("a", "b"):
        made = node(name)
        made["metadata"]["labels"] = {"zone": name}
        api.put(NODES, made)
    for path in ("/api/v1/namespaces", VOLUMES, f"{STORAGE}/csinodes", f"{STORAGE}/volumeattachments"):
        api.items[path] = {}
    api.put(f"{STORAGE}/storageclasses", {
        "metadata": {"name": "late"}, "provisioner": "disks.example", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}],
    })  # fmt: skip
    api.put(CLAIMS, claim())
    with_claim = pod("p", "1")
    with_claim["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    api.put(PODS, with_claim)


def claim(volume: str = "", **notes: str) -> dict[str, Any]:
    about = {"name": "c", "namespace": "default", "uid": "uid-c", "annotations": notes}
    spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]} | ({"volumeName": volume} if volume else {})
    return {"metadata": about, "spec": spec, "status": {"phase": "Bound" if volume else "Pending"}}


def selected(api: SmallApi) -> str | None:
    found: str | None = api.items[CLAIMS]["default/c"]["metadata"].get("annotations", {}).get(SELECTED)
    return found


async def scheduled(access: Access, act: Any) -> None:
    async with Client(access) as client:
        chosen = settings.parse(CONFIG.format(who="one") + "[volumes]\nprovision = true\n")
        task = asyncio.create_task(scheduler_process.make(client, chosen).run())
        try:
            await act()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("zone", ["a", "b"])
def test_the_volume_is_asked_for_where_its_class_allows_and_waited_for(zone: str) -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, zone)

            async def act() -> None:
                await until(lambda: selected(api) == zone)
                assert where(api)["p"] == "", "not bound before its volume is"
                volume = {"metadata": {"name": "pv", "uid": "uid-pv"}, "spec": {"csi": {"driver": "disks.example"}}}
                api.put(VOLUMES, volume)
                api.put(CLAIMS, claim("pv", **{SELECTED: zone, BOUND: "yes"}))
                await until(lambda: where(api)["p"] == zone)

            await scheduled(access, act)

    asyncio.run(whole())


def test_a_provisioner_that_gives_a_node_up_is_asked_again() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, "a")

            async def act() -> None:
                asked = lambda: [one for one in api.calls if one[0] == "PATCH" and "/persistentvolumeclaims/" in one[1]]  # noqa: E731
                await until(lambda: selected(api) == "a")
                api.put(CLAIMS, claim())  # the annotation is taken off: it could not be made
                await until(lambda: len(asked()) >= 2)
                assert where(api)["p"] == ""

            await scheduled(access, act)

    asyncio.run(whole())


def by_hand(name: str, where: str, size: str = "5Gi", **more: Any) -> dict[str, Any]:
    """A local volume on one node."""
    there = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [where]}]}]
    spec = {"local": {"path": "/disk"}, "capacity": {"storage": size}, "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"], "nodeAffinity": {"required": {"nodeSelectorTerms": there}}}  # fmt: skip
    about = {"name": name, "uid": f"uid-{name}", "annotations": {}}
    return {"metadata": about, "spec": spec | more, "status": {"phase": "Available"}}


def test_a_volume_made_by_hand_gets_the_claim_and_its_pod_goes_there() -> None:
    async def whole() -> None:
        async with small_api() as (api, access):
            prepared(api, "a")
            kind = api.items[f"{STORAGE}/storageclasses"]["/late"]
            api.put(f"{STORAGE}/storageclasses", kind | {"provisioner": "kubernetes.io/no-provisioner"})
            api.put(VOLUMES, by_hand("large", "b", "9Gi"))
            api.put(VOLUMES, by_hand("right", "b"))
            api.put(VOLUMES, by_hand("other", "a", storageClassName="early"))

            async def act() -> None:
                ref = lambda: api.items[VOLUMES]["/right"]["spec"].get("claimRef", {}).get("uid")  # noqa: E731
                await until(lambda: ref() == "uid-c")
                assert where(api)["p"] == "" and selected(api) is None
                api.put(CLAIMS, claim("right", **{BOUND: "yes"}))
                await until(lambda: where(api)["p"] == "b")

            await scheduled(access, act)

    asyncio.run(whole())


def read(raw: dict[str, Any], kind: Any) -> Any:
    return msgspec.convert(raw, kind)


def test_which_volume_fits() -> None:
    asked = claim()
    asked["spec"]["resources"] = {"requests": {"storage": "5Gi"}}
    wanted = read(asked, objects.PersistentVolumeClaim)

    def found(*volumes: dict[str, Any], promised: tuple[str, ...] = ()) -> str | None:
        made = [read(one, objects.PersistentVolume) for one in volumes]
        return volume_match.match([wanted], made, {"zone": "a"}, promised).get("default/c")

    assert found(by_hand("x", "a", "9Gi"), by_hand("y", "a", "6Gi"), by_hand("z", "a", "4Gi")) == "y", "the smallest"
    assert found(by_hand("x", "a"), promised=("x",)) is None
    assert found(by_hand("x", "b")) is None
    assert found(by_hand("x", "a", accessModes=["ReadOnlyMany"])) is None
    assert found(by_hand("x", "a", volumeMode="Block")) is None
    assert found(by_hand("x", "a") | {"status": {"phase": "Released"}}) is None
    mine, theirs = ({"namespace": "default", "name": name} for name in ("c", "d"))
    assert found(by_hand("x", "a", claimRef=theirs)) is None
    assert found(by_hand("x", "a"), by_hand("y", "a", "9Gi", claimRef=mine)) == "y", "it was meant for the claim"
    assert found(by_hand("x", "a"), by_hand("y", "b", "9Gi", claimRef=mine)) is None


def test_one_volume_is_promised_once() -> None:
    storage = volumes.Storage.of(
        [read(claim(), objects.PersistentVolumeClaim)], [read(by_hand("x", "a"), objects.PersistentVolume)]
    )
    storage.provisions = True
    kind = {"metadata": {"name": "late"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    storage.classes["late"] = read(kind, objects.StorageClass)
    asked = pod("p", "1")
    asked["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    first, labels = read(asked, objects.Pod), {"zone": "a"}
    there = objects.Node(metadata=objects.Metadata(name="a", labels=labels))
    second = read(asked | {"metadata": asked["metadata"] | {"uid": "another"}}, objects.Pod)
    assert not storage.cannot_make(first, "a", labels)
    assert storage.assume(first, there) is None
    assert storage.cannot_make(second, "a", labels) and not storage.cannot_make(first, "a", labels)
    storage.forget(first.metadata.uid)
    assert not storage.cannot_make(second, "a", labels)
