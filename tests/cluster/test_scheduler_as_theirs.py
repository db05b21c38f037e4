"""The same case under kube-scheduler and under ours: devices by claim, volumes made by hand, preemption with budgets.

Each case runs in a namespace of its own under each scheduler, one after the other on the same nodes; what it reports
must be equal. A gang that runs across a restart of ours has no counterpart there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kuberig.api import JSON
from kuberig.kwok import Shape
from our_scheduler import OurScheduler
from test_scheduler import bound
from test_scheduler_deploy import documents
from test_scheduler_safety import SMALL, small
from test_scheduler_scores import SECTIONS
from under_test import Cluster

from wattflow.kube import quantity

THEIRS, OURS = "default-scheduler", "wattflow"
TEXT = (
    SECTIONS.format(joules=0) + "[priority]\npreempt = true\n[volumes]\nprovision = true\n[devices]\nallocate = true\n"
)
DEVICES = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
Case = Callable[[str, str], object]


@pytest.fixture
def ours(cluster: Cluster) -> Iterator[OurScheduler]:
    group, api = "rbac.authorization.k8s.io", cluster.api
    for overlay in ("preempt", "volumes", "devices"):
        for document in documents(overlay):
            if document["kind"] == "ClusterRole":
                name = document["metadata"]["name"]
                role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
                who = {"kind": "User", "apiGroup": group, "name": "wattflow-scheduler"}
                body = {"metadata": {"name": name}, "roleRef": role, "subjects": [who]}
                api.create(f"/apis/{group}/v1/clusterroles", document, exists_ok=True)
                api.create(f"/apis/{group}/v1/clusterrolebindings", body, exists_ok=True)
    with OurScheduler(cluster.own(), "most-allocated", TEXT) as scheduler:
        yield scheduler


def compared(cluster: Cluster, namespace: str, case: Case) -> object:
    """What a case reports under both; they must agree. Nothing of the first run is left when the second begins."""
    told = []
    for scheduler in (THEIRS, OURS):
        space = f"{namespace}-{scheduler}"[:60].rstrip("-")
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": space}})
        cluster.api.await_one(f"/api/v1/namespaces/{space}/serviceaccounts", "default", lambda _: True, 60)
        try:
            told.append(case(space, scheduler))
        finally:
            cluster.api.request("DELETE", f"/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")
            cluster.api.await_none(f"/api/v1/namespaces/{space}/pods", 120)
            cluster.api.delete(f"/api/v1/namespaces/{space}")
    assert told[1] == told[0]
    return told[1]


# devices


@pytest.fixture
def gpus(cluster: Cluster, kwok_nodes: Callable[..., list[str]]) -> Iterator[list[str]]:
    """Two nodes with four GPUs each, of two models in turn; a class; no driver runs, so claims are all there is."""
    names = kwok_nodes(2, [SMALL])
    of_driver = f'device.driver == "{DRIVER}"'
    kind = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": of_driver}}]}}
    cluster.api.create(f"{DEVICES}/deviceclasses", kind, exists_ok=True)
    for name in names:
        devices = [
            {
                "name": f"gpu-{i}",
                "attributes": {"model": {"string": "AB"[i % 2]}, "index": {"int": i}},
                "capacity": {"memory": {"value": f"{40 * (1 + i % 2)}Gi"}},
            }
            for i in range(4)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
        cluster.api.create(f"{DEVICES}/resourceslices", {"metadata": {"name": f"slice-{name}"}, "spec": spec})
    yield names
    for name in names:
        cluster.api.delete(f"{DEVICES}/resourceslices/slice-{name}")
    cluster.api.delete(f"{DEVICES}/deviceclasses/gpu")


def request(name: str = "gpu", **more: object) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **more}}


def given(cluster: Cluster, space: str) -> dict[str, object]:
    """Devices, users and protection of each claim. A claim made from a template is called after its pod."""
    found: dict[str, object] = {}
    for one in cluster.api.items(f"{DEVICES}/namespaces/{space}/resourceclaims"):
        status, about = one.get("status", {}), one["metadata"]
        owner = next((ref["name"] for ref in about.get("ownerReferences", ())), about["name"])
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        users = sorted(user["name"] for user in status.get("reservedFor", []))
        selector = status.get("allocation", {}).get("nodeSelector")
        chosen = [(each["request"], each["device"]) for each in results]
        found[owner] = (chosen, users, selector, "allocationTimestamp" in status.get("allocation", {}))
        assert bool(results) == ("resource.kubernetes.io/delete-protection" in about.get("finalizers", []))
    return found


def test_devices_are_allocated_as_under_kube_scheduler(
    cluster: Cluster, gpus: list[str], namespace: str, ours: OurScheduler
) -> None:
    large = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("64Gi")) >= 0'
    claims: dict[str, JSON] = {
        "shared": {"requests": [request()]},
        "large": {"requests": [request(selectors=[{"cel": {"expression": large}}])]},
        "alike": {
            "requests": [request("one"), request("two")],
            "constraints": [{"requests": [], "matchAttribute": f"{DRIVER}/model"}],
        },
    }

    def case(space: str, scheduler: str) -> object:
        pods = f"/api/v1/namespaces/{space}/pods"
        template = {"metadata": {"name": "pair"}, "spec": {"spec": {"devices": {"requests": [request(count=2)]}}}}
        cluster.api.create(f"{DEVICES}/namespaces/{space}/resourceclaimtemplates", template)
        for name, devices in claims.items():
            body = {"metadata": {"name": name}, "spec": {"devices": devices}}
            cluster.api.create(f"{DEVICES}/namespaces/{space}/resourceclaims", body)

        def create(name: str, node: str, **ref: str) -> None:
            wish = {"resourceClaims": [{"name": "g", **ref}], "nodeSelector": {"kubernetes.io/hostname": node}}
            cluster.api.create(pods, small(name, scheduler, cpu="100m", **wish))

        first, second = gpus
        for name, node, ref in (
            ("user-0", first, {"resourceClaimName": "shared"}),
            ("user-1", first, {"resourceClaimName": "shared"}),
            ("large", first, {"resourceClaimName": "large"}),
            ("template", first, {"resourceClaimTemplateName": "pair"}),
            ("alike", second, {"resourceClaimName": "alike"}),
        ):
            create(name, node, **ref)
            cluster.api.await_one(pods, name, bound, 60)
        create("waits", first, resourceClaimTemplateName="pair")  # all four are given away
        create("elsewhere", second, resourceClaimName="shared")  # its device is not there
        for name in ("waits", "elsewhere"):
            cluster.api.await_one(pods, name, _told_not, 60)
        return given(cluster, space)

    found = compared(cluster, namespace, case)
    assert isinstance(found, dict)
    assert found["shared"][:2] == ([("gpu", "gpu-0")], ["user-0", "user-1"])
    assert found["template"][0] == [("gpu", "gpu-2"), ("gpu", "gpu-3")]


@pytest.fixture
def offered(cluster: Cluster, kwok_nodes: Callable[..., list[str]]) -> Iterator[Callable[..., str]]:
    """`offered(name, device, …)` is a node with such devices, and a class of that name for them."""
    slices, names = f"{DEVICES}/resourceslices", list[str]()

    def offer(kind: str, *devices: JSON) -> str:
        (node,) = kwok_nodes(1, [SMALL])
        names.append(kind)
        chosen = [{"cel": {"expression": f'device.driver == "{kind}.example.com"'}}]
        cluster.api.create(f"{DEVICES}/deviceclasses", {"metadata": {"name": kind}, "spec": {"selectors": chosen}})
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": f"{kind}.example.com", "pool": pool, "nodeName": node, "devices": list(devices)}
        made = cluster.api.create(slices, {"metadata": {"name": kind}, "spec": spec})
        if made["spec"]["devices"][0].keys() != devices[0].keys():
            pytest.skip("such devices are served from 1.36 on")
        return node

    yield offer
    for name in names:
        for path in (slices, f"{DEVICES}/deviceclasses"):
            cluster.api.delete(f"{path}/{name}")


def test_shares_of_devices_are_given_out_as_under_kube_scheduler(
    cluster: Cluster, offered: Callable[..., str], namespace: str, ours: OurScheduler
) -> None:
    steps = {"default": "10Gi", "validRange": {"min": "2Gi", "max": "32Gi", "step": "2Gi"}}
    capacity = {"memory": {"value": "40Gi", "requestPolicy": steps}, "engines": {"value": "8"}}
    node = offered(
        "slices", *({"name": f"part-{i}", "allowMultipleAllocations": True, "capacity": capacity} for i in range(2))
    )
    wishes: dict[str, JSON] = {
        "odd": {"memory": "23Gi", "engines": "2"},  # rounded up to 24
        "large": {"memory": "24Gi", "engines": "500m"},
        "usual": {"engines": "2"},
        "whole": {"memory": "2Gi"},  # all eight engines, which neither has left
        "too-much": {"memory": "33Gi", "engines": "1"},
    }

    def case(space: str, scheduler: str) -> object:
        claims, pods = f"{DEVICES}/namespaces/{space}/resourceclaims", f"/api/v1/namespaces/{space}/pods"
        for name, amounts in wishes.items():
            asked = {"deviceClassName": "slices", "capacity": {"requests": amounts}}
            body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": asked}]}}}
            cluster.api.create(claims, body)
            wish = {"resourceClaims": [{"name": "g", "resourceClaimName": name}]}
            where = {"nodeSelector": {"kubernetes.io/hostname": node}}
            cluster.api.create(pods, small(name, scheduler, cpu="100m", **wish, **where))
            waits = name in ("whole", "too-much")
            cluster.api.await_one(pods, name, _told_not if waits else bound, 60)
        found = {}
        for one in cluster.api.items(claims):
            results = one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            assert all(each.pop("shareID") for each in results)
            for each in results:  # 10Gi or 10737418240: the same amount
                each["consumedCapacity"] = {key: quantity.exact(text) for key, text in each["consumedCapacity"].items()}
            found[one["metadata"]["name"]] = results
        return found

    found = compared(cluster, namespace, case)
    assert isinstance(found, dict)
    assert [found[name][0]["device"] for name in ("odd", "large", "usual")] == ["part-0", "part-1", "part-0"]
    assert found["usual"][0]["consumedCapacity"] == {"memory": 10 << 30, "engines": 2} and not found["whole"]


def test_a_device_is_waited_for_as_under_kube_scheduler(
    cluster: Cluster, offered: Callable[..., str], namespace: str, ours: OurScheduler
) -> None:
    node = offered(
        "fabric",
        {
            "name": "far",
            "bindsToNode": True,
            "bindingConditions": ["fabric.example.com/attached"],
            "bindingFailureConditions": ["fabric.example.com/broken"],
        },
    )

    def case(space: str, scheduler: str) -> object:
        claims, pods = f"{DEVICES}/namespaces/{space}/resourceclaims", f"/api/v1/namespaces/{space}/pods"
        asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "fabric"}}]}
        cluster.api.create(claims, {"metadata": {"name": "c"}, "spec": {"devices": asked}})
        wish = {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]}
        cluster.api.create(pods, small("p", scheduler, cpu="100m", **wish))
        cluster.api.await_one(claims, "c", lambda one: "reservedFor" in one.get("status", {}), 60)
        time.sleep(2.0)
        assert not bound(cluster.api.get(f"{pods}/p")), "its device is not attached"
        status = cluster.api.get(f"{claims}/c")["status"]
        (result,) = status["allocation"]["devices"]["results"]
        said = {"type": "fabric.example.com/attached", "status": "True", "reason": "Done", "message": ""}
        said["lastTransitionTime"] = "2026-11-19T12:00:00Z"
        told = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [said]}
        cluster.api.patch(f"{claims}/c/status", {"status": {"devices": [told]}})
        cluster.api.await_one(pods, "p", bound, 60)
        return result, status["allocation"]["nodeSelector"]

    found = compared(cluster, namespace, case)
    assert node in str(found)


def _told_not(one: JSON) -> bool:
    said = [each for each in one["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    return not bound(one) and any(each.get("reason") == "Unschedulable" for each in said)


# volumes made by hand


def test_volumes_made_by_hand_are_bound_as_under_kube_scheduler(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    names = kwok_nodes(2, [SMALL])
    volumes, classes = "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"
    made = {"small": (names[0], "1Gi"), "right": (names[1], "5Gi"), "large": (names[1], "9Gi")}

    def volume(name: str, kind: str, node: str, size: str) -> JSON:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = [{"matchExpressions": [here]}]
        spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind,
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/disk"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}  # fmt: skip
        return {"metadata": {"name": f"{kind}-{name}"}, "spec": spec}

    def case(space: str, scheduler: str) -> object:
        pods, claims = (f"/api/v1/namespaces/{space}/{kind}" for kind in ("pods", "persistentvolumeclaims"))
        waits = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.api.create(classes, {"metadata": {"name": space}} | waits)
        for name, place in made.items():
            cluster.api.create(volumes, volume(name, space, *place))
            cluster.api.await_one(volumes, f"{space}-{name}", lambda one: one["status"]["phase"] == "Available", 60)
        for name in "abc":
            wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": space}
            size = {"resources": {"requests": {"storage": "4Gi"}}}
            cluster.api.create(claims, {"metadata": {"name": name}, "spec": wish | size})
            source = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
            cluster.api.create(pods, small(name, scheduler, volumes=source))
            cluster.api.await_one(pods, name, bound if name != "c" else _told_not, 60)
        where = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in cluster.api.items(pods)}
        held = [(one["metadata"]["name"], one["spec"].get("volumeName", "")) for one in cluster.api.items(claims)]
        for path in (f"{classes}/{space}", *(f"{volumes}/{space}-{name}" for name in made)):
            cluster.api.delete(path)
        return where, {name: volume.removeprefix(f"{space}-") for name, volume in held}

    found = compared(cluster, namespace, case)
    assert found == ({"a": names[1], "b": names[1], "c": None}, {"a": "right", "b": "large", "c": ""})


# preemption


def test_preemption_with_several_budgets_and_priorities_as_under_kube_scheduler(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    names = kwok_nodes(4, [Shape("small", cpu="4", memory="8Gi", pods="20")])
    levels = {
        f"{name}-{namespace}"[:55].rstrip("-"): value for name, value in (("low", 10), ("mid", 20), ("top", 1000))
    }
    low, mid, top = levels
    for name, value in levels.items():
        body = {"metadata": {"name": name}, "value": value}
        cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body, exists_ok=True)

    def case(space: str, scheduler: str) -> object:
        pods = f"/api/v1/namespaces/{space}/pods"
        budgets = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
        for name, least in (("tight", 1), ("loose", 0), ("second", 0)):
            spec = {"minAvailable": least, "selector": {"matchLabels": {name: "yes"}}}
            cluster.api.create(budgets, {"metadata": {"name": name}, "spec": spec})
        # one pod fills each node: its budget allows nothing; one that allows it; none but of higher priority; as high
        for i, (name, level, covered) in enumerate(
            (("held", low, {"tight": "yes"}), ("loose", low, {"loose": "yes"}), ("mid", mid, {}), ("top", top, {}))
        ):
            wish = {"priorityClassName": level, "nodeSelector": {"kubernetes.io/hostname": names[i]}, "labels": covered}
            cluster.api.create(pods, small(name, scheduler, cpu="4", **wish))
        cluster.api.await_each(pods, _runs, 4, 60)
        for name in ("tight", "loose"):
            cluster.api.await_one(budgets, name, lambda one: one["status"].get("currentHealthy") == 1, 60)
        evicted = []
        for name in ("first", "then"):
            cluster.api.create(pods, small(name, scheduler, cpu="4", priorityClassName=top))
            cluster.api.await_one(pods, name, bound, 60)
            evicted.append(sorted(one["metadata"]["name"] for one in cluster.api.items(pods)))
        return evicted

    found = compared(cluster, namespace, case)
    assert found == [["first", "held", "mid", "top"], ["first", "held", "then", "top"]]


def _runs(one: JSON) -> bool:
    return bool(one["status"].get("phase") == "Running")


# gangs


def test_a_gang_that_runs_in_part_is_completed_and_a_new_one_of_its_name_waits_for_room_after_a_restart(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    kwok_nodes(4, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def member(name: str, size: int) -> JSON:
        body = small(name, cpu="4")
        body["metadata"]["annotations"] = {"wattflow.io/gang": "g", "wattflow.io/gang-size": str(size)}
        return body

    cluster.api.create_many(pods, [member(f"old{i}", 2) for i in range(2)])
    cluster.api.await_each(pods, bound, 2, 60)
    ours.stop(hard=True)
    cluster.api.create_many(pods, [member(f"new{i}", 3) for i in range(3)])
    ours.start()
    # two nodes are free: a gang of three of the same name must not start in part beside the old one
    cluster.api.create(pods, small("probe", cpu="4"))
    cluster.api.await_one(pods, "probe", bound, 90)
    told = {one["metadata"]["name"] for one in cluster.api.items(pods) if bound(one)}
    assert told == {"old0", "old1", "probe"}
    for name in ("probe", "old0"):
        cluster.api.delete(f"{pods}/{name}", grace_s=0)
    cluster.api.await_each(pods, bound, 4, 90)
    told = {one["metadata"]["name"] for one in cluster.api.items(pods) if bound(one)}
    assert told == {"old1", "new0", "new1", "new2"}
