"""Simulated nodes: many of them, and pods that last as long as their node needs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

from kuberig.api import JSON
from kuberig.kwok import Reminder, Shape
from under_test import Cluster

SECONDS = "rig.wattflow.io/seconds"


def pod(name: str, seconds: object = None, node: str | None = None, labels: dict[str, str] | None = None) -> JSON:
    """A pod for KWOK, already on `node` when one is named."""
    annotations = {} if seconds is None else {SECONDS: seconds if isinstance(seconds, str) else json.dumps(seconds)}
    spec: JSON = {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "nodeSelector": {"type": "kwok"},
        "restartPolicy": "Never",
    }
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "annotations": annotations, "labels": labels or {}}, "spec": spec}


def lasted_s(found: JSON) -> float:
    """How long KWOK let a pod run, from the conditions that carry milliseconds."""
    at = {c["type"]: c.get("message") for c in found["status"]["conditions"]}
    return (int(at["rig.wattflow.io/Ended"]) - int(at["rig.wattflow.io/Began"])) / 1000


def ended(found: JSON) -> bool:
    return bool(found["status"].get("phase") == "Succeeded")


def test_a_thousand_nodes_become_ready_and_take_pods(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    began = time.monotonic()
    names = kwok_nodes(1000)
    print(f"1,000 KWOK nodes ready in {time.monotonic() - began:.1f} s")
    assert len(set(names)) == 1000
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create_many(pods, [pod(f"p-{i}") for i in range(100)])
    cluster.api.await_each(pods, lambda found: found["status"].get("phase") == "Running", 100, 60)
    assert {found["spec"]["nodeName"] for found in cluster.api.items(pods)} <= set(names)


def test_a_pods_duration_depends_on_its_node(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(4, [Shape("slow", cpu="4"), Shape("fast", cpu="8")])
    seconds = {"slow": 2.0, "fast": 0.5, "fast-1": 1.2}
    where = {"a": "slow-0", "b": "slow-1", "c": "fast-0", "d": "fast-1"}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create_many(pods, [pod(name, seconds, node) for name, node in where.items()])
    cluster.api.await_each(pods, ended, 4, 30)
    found = {each["metadata"]["name"]: lasted_s(each) for each in cluster.api.items(pods)}
    expected = {"a": 2.0, "b": 2.0, "c": 0.5, "d": 1.2}
    for name, wanted in expected.items():
        assert wanted <= found[name] + 0.005 and found[name] < wanted + 1.5, (name, found)


def test_a_change_of_the_pod_does_not_begin_its_time_anew(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(1)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, pod("touched", 3, "kwok-0"))
    cluster.api.await_one(pods, "touched", lambda found: found["status"].get("phase") == "Running", 30)
    for i in range(20):
        cluster.api.patch(f"{pods}/touched", {"metadata": {"labels": {"turn": str(i)}}})
        time.sleep(0.1)  # the changes must be spread over the pod's three seconds
    done = cluster.api.await_one(pods, "touched", ended, 30)
    assert 3.0 <= lasted_s(done) + 0.005 < 4.5


def test_pods_of_nobody_run_on(cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str) -> None:
    kwok_nodes(1)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, pod("service", None, "kwok-0"))
    cluster.api.create(pods, pod("task", 1, "kwok-0"))
    cluster.api.await_one(pods, "task", ended, 30)
    assert cluster.api.get(f"{pods}/service")["status"]["phase"] == "Running"


def test_a_pod_that_kwok_left_unstarted_is_shown_to_it_again(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    (name,) = kwok_nodes(1)
    rig = cluster.own()
    process = rig.processes.find("kwok")
    assert process
    pods = f"/api/v1/namespaces/{namespace}/pods"
    reminder = Reminder(cluster.api, process, every_s=3600)
    rig.processes.signal(process, signal.SIGSTOP)
    try:
        late = pod("late", node=name)
        late["metadata"]["annotations"]["rig.wattflow.io/start"] = "1s"
        cluster.api.create_many(pods, [pod("left", node=name), late])
        assert f"{namespace}/left" not in reminder.remind()  # it may have been bound just now
        assert [found for found in reminder.remind() if found.startswith(namespace)] == [f"{namespace}/left"]
    finally:
        rig.processes.signal(process, signal.SIGCONT)
        reminder.stop()
    cluster.api.await_each(pods, lambda found: found["status"].get("phase") == "Running", 2, 60)
