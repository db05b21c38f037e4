"""Our scheduler on a real cluster: pods that name it are placed by the live engine, with the rights of its account."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kuberig.api import JSON
from kuberig.node import RealNode
from our_scheduler import OurScheduler
from test_real_node import has_ended, real_pod
from under_test import Cluster


def pod(name: str, cpu: str = "1", scheduler: str = "wattflow", **spec: object) -> JSON:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "metadata": {"name": name, **({"labels": spec.pop("labels")} if "labels" in spec else {})},
        "spec": {"schedulerName": scheduler, "containers": [container], "restartPolicy": "Never", **spec},
    }


def bound(found: JSON) -> bool:
    return bool(found["spec"].get("nodeName"))


@pytest.fixture
def ours(cluster: Cluster) -> Iterator[OurScheduler]:
    with OurScheduler(cluster.own()) as scheduler:
        yield scheduler


def test_a_real_pod_placed_by_our_policy_runs_to_its_end(
    cluster: Cluster, real_node: RealNode, namespace: str, ours: OurScheduler
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = real_pod("sum", "seq 1 1000 | sha256sum")
    body["spec"]["schedulerName"] = "wattflow"
    cluster.api.create(pods, body)
    done = cluster.api.await_one(pods, "sum", has_ended, 90)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert done["spec"]["nodeName"] == real_node.name
    decision = json.loads(done["metadata"]["annotations"]["wattflow.io/decision"])
    assert decision["node"] == real_node.name and decision["policy"] == ours.policy
