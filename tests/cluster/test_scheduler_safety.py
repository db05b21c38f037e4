"""Safe beside kube-scheduler: no overcommit, no double bind, one leader, gangs whole or not at all, refusals told."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kuberig.api import JSON
from kuberig.kwok import Shape
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import Cluster

from wattflow.clusters import resolve_profile
from wattflow.kube.power import name_as_label

CLASS = "small"
ONLY_THERE = {"node.wattflow.io/class": CLASS}
SMALL = Shape(CLASS, cpu="4", memory="8Gi", pods="20")
QUICK_LEASE = (
    "[http]\nport = PORT\n[energy]\nprofiles = false\n[workflows]\nargo = false\n"
    "[lease]\nlease_s = 4\nrenew_s = 2\nretry_s = 0.4\n"
)


def small(name: str, scheduler: str = "wattflow", cpu: str = "1", **more: object) -> JSON:
    return pod(name, cpu, scheduler, **({"nodeSelector": ONLY_THERE} | more))


def requested(pods: list[JSON]) -> Counter[str]:
    """Milli-cores requested on each node."""
    total: Counter[str] = Counter()
    for one in pods:
        if bound(one):
            cpu = one["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            total[one["spec"]["nodeName"]] += int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)
    return total


@pytest.fixture
def ours(cluster: Cluster) -> Iterator[OurScheduler]:
    with OurScheduler(cluster.own()) as scheduler:
        yield scheduler


def test_pods_of_the_other_scheduler_count_and_what_they_leave_is_taken(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    kwok_nodes(10, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create_many(pods, [small(f"theirs{i}", "default-scheduler") for i in range(25)])
    cluster.api.await_each(pods, bound, 25, 60)
    cluster.api.create_many(pods, [small(f"ours{i}") for i in range(25)])
    cluster.api.await_each(pods, bound, 40, 60)
    told = cluster.api.await_each(pods, lambda one: not bound(one) and _told(one), 10, 60)
    assert told is None
    used = requested(cluster.api.items(pods))
    assert len(used) == 10 and set(used.values()) == {4000}, used
    for i in range(10):
        cluster.api.delete(f"{pods}/theirs{i}", grace_s=0)
    cluster.api.await_each(pods, lambda one: bound(one) and one["metadata"]["name"].startswith("ours"), 25, 60)
    assert max(requested(cluster.api.items(pods)).values()) <= 4000


def test_two_schedulers_fill_the_same_nodes_at_once_without_overcommit(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    cluster.grant("claims", "nodes")
    names = kwok_nodes(20, [SMALL])
    soft = {"key": "kept", "value": "as-it-was", "effect": "PreferNoSchedule"}
    cluster.api.patch(f"/api/v1/nodes/{names[0]}", {"spec": {"taints": [soft]}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    text = QUICK_LEASE + "[shared]\nclaim = true\nsettle_s = 4\nrelease_s = 6\n"
    with OurScheduler(cluster.own(), text=text):
        bodies = [small(f"p{i}", ("wattflow", "default-scheduler")[i % 2]) for i in range(120)]
        cluster.api.create_many(pods, bodies)
        cluster.api.await_each(pods, bound, 80, 120)
        found = cluster.api.items(pods)
        used = requested(found)
        assert len(used) == 20 and set(used.values()) == {4000}, used
        by = Counter(one["spec"]["schedulerName"] for one in found if bound(one))
        print(f"bound by each: {dict(by)}")
        assert min(by.values()) >= 10, by
        claimed = [one for one in cluster.api.items("/api/v1/nodes") if _claimed(one)]
        assert claimed
        cluster.api.request("DELETE", f"{pods}?gracePeriodSeconds=0")
        cluster.api.await_each("/api/v1/nodes", lambda one: not _claimed(one), 20, 60, labelSelector="type=kwok")
        assert cluster.api.get(f"/api/v1/nodes/{names[0]}")["spec"]["taints"] == [soft]


def _claimed(node: JSON) -> bool:
    return any(taint["key"] == "wattflow.io/claimed" for taint in node["spec"].get("taints", []))


def _message(found: JSON) -> str:
    """What a pod that waits was told."""
    conditions = found["status"].get("conditions", [])
    return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def _told(found: JSON) -> bool:
    return any(one["type"] == "PodScheduled" for one in found["status"].get("conditions", []))


def test_watts_are_a_resource_that_every_scheduler_counts(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    cluster.grant("watts", "nodes/status")
    profile = "ccf:epyc-7763-dl325"
    labels = {"wattflow.io/power-profile": name_as_label(profile)}
    (name,) = kwok_nodes(1, [Shape(CLASS, cpu="4", memory="8Gi", pods="20", labels=labels)])
    most_w = int(resolve_profile(profile, 4).full_w)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    text = QUICK_LEASE.replace("[energy]\n", f"[energy]\npublish = true\nnode_cap_w = {most_w - 1}\n")
    with OurScheduler(cluster.own(), text=text):
        written = lambda one: one["status"]["allocatable"].get("wattflow.io/watts") == str(most_w - 1)  # noqa: E731
        cluster.api.await_one("/api/v1/nodes", name, written, 60)
        for who_places in ("wattflow", "default-scheduler"):
            one = small(f"by-{who_places}", who_places, cpu="100m")
            half = {"wattflow.io/watts": str(most_w // 2 + 1)}
            resources = one["spec"]["containers"][0]["resources"]
            resources["requests"] |= half
            resources["limits"] = half
            cluster.api.create(pods, one)
            if who_places == "wattflow":
                cluster.api.await_one(pods, "by-wattflow", bound, 60)
        told = cluster.api.await_one(pods, "by-default-scheduler", _told, 60)
        assert not bound(told), "more than half is gone already, and kube-scheduler knows"


def test_another_takes_over_when_the_leader_is_killed(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(10, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/wattflow"
    with OurScheduler(cluster.own(), text=QUICK_LEASE) as one, OurScheduler(cluster.own(), text=QUICK_LEASE):
        cluster.api.create_many(pods, [small(f"a{i}") for i in range(10)])
        cluster.api.await_each(pods, bound, 10, 60)
        first = cluster.api.get(lease)["spec"]["holderIdentity"]
        assert one.process is not None and first.endswith(f"_{one.process.pid}")
        one.stop(hard=True)
        began = time.monotonic()
        cluster.api.create_many(pods, [small(f"b{i}") for i in range(40)])
        cluster.api.await_each(pods, bound, 40, 90)
        print(f"first binds of the second scheduler within {time.monotonic() - began:.1f} s")
        assert cluster.api.get(lease)["spec"]["holderIdentity"] != first
    assert max(requested(cluster.api.items(pods)).values()) <= 4000


def test_what_it_does_not_support_is_told_by_event_and_condition(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    kwok_nodes(1, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    volume = {"name": "v", "csi": {"driver": "none"}}
    cluster.api.create(pods, small("attached", volumes=[volume]))
    told = cluster.api.await_one(pods, "attached", _told, 30)
    assert not bound(told)
    (condition,) = [one for one in told["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert "csi is not supported" in condition["message"]
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    cluster.api.await_each(events, lambda one: one["reason"] == "FailedScheduling", 1, 20)


def test_a_pod_with_a_claim_waits_until_it_is_bound_and_goes_where_its_volume_is(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    names = kwok_nodes(3, [SMALL])
    pods, claims = (f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("pods", "persistentvolumeclaims"))
    cluster.api.create(pods, small("claims", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    told = cluster.api.await_one(pods, "claims", lambda one: "does not exist" in _message(one), 60)
    assert not bound(told)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [names[1]]}
    volume, size = f"pv-{namespace}", {"storage": "1Gi"}
    wanted: JSON = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    kept = {"capacity": size, "hostPath": {"path": "/v"}, "claimRef": {"namespace": namespace, "name": "c"}}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}
    cluster.api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": wanted | kept | affinity})
    try:
        claim = {"metadata": {"name": "c"}, "spec": wanted | {"volumeName": volume, "resources": {"requests": size}}}
        cluster.api.create(claims, claim)
        assert cluster.api.await_one(pods, "claims", bound, 60)["spec"]["nodeName"] == names[1]
    finally:
        cluster.api.delete(f"{claims}/c")
        cluster.api.delete(f"/api/v1/persistentvolumes/{volume}")


def test_gangs_start_all_or_none(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    kwok_nodes(4, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    bodies = []
    for i in range(3):  # turn and turn about: one by one, each gang would get two nodes and both would wait for ever
        for gang in ("x", "y"):
            body = small(f"{gang}{i}", cpu="4")
            body["metadata"]["annotations"] = {"wattflow.io/gang": gang, "wattflow.io/gang-size": "3"}
            bodies.append(body)
    for body in bodies:
        cluster.api.create(pods, body)
    cluster.api.await_each(pods, bound, 3, 30)
    cluster.api.create(pods, small("probe", cpu="4"))  # when this one is bound, the other gang could have been tried
    cluster.api.await_one(pods, "probe", bound, 30)
    running = Counter(one["metadata"]["name"][0] for one in cluster.api.items(pods) if bound(one))
    assert running in (Counter(x=3, p=1), Counter(y=3, p=1)), running


def test_shadow_decides_and_binds_nothing(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(2, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    text = 'mode = "shadow"\n' + QUICK_LEASE
    with OurScheduler(cluster.own(), text=text, name="shade") as shadow:
        cluster.api.create_many(pods, [small(f"p{i}", "default-scheduler") for i in range(6)])
        cluster.api.await_each(pods, bound, 6, 30)
        cluster.api.create(pods, small("never", "shade"))
        for one in cluster.api.items(pods):
            assert "wattflow.io/decision" not in one["metadata"].get("annotations", {})
            assert bound(one) == (one["metadata"]["name"] != "never")
        found = shadow.metrics()
        assert 'result="scheduled"' not in found
        compared = [float(line.split()[1]) for line in found.splitlines() if line.startswith("wattflow_shadow_pods{")]
        assert sum(compared) >= 6, "every pod is compared"


def test_explanations_and_metrics(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str, ours: OurScheduler
) -> None:
    kwok_nodes(1, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, small("fits"))
    done = cluster.api.await_one(pods, "fits", bound, 30)
    assert json.loads(done["metadata"]["annotations"]["wattflow.io/decision"])["policy"] == "least-energy"
    text = ours.metrics()
    assert 'scheduler_schedule_attempts_total{result="scheduled",profile="wattflow"} 1' in text
    assert "scheduler_pod_scheduling_sli_duration_seconds_count 1" in text
