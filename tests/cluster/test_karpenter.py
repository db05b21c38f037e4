"""Cloud nodes that sleep by being given back: a real Karpenter with its own KWOK provider deletes and makes them.

`make test-karpenter` builds Karpenter (three minutes) first; without it this file is not collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kuberig import karpenter
from kuberig.api import JSON
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import Cluster

POOLED = {"karpenter.sh/nodepool": "batch"}
CONFIG = """
[sleep]
karpenter = true
wake_s = 5
enter_s = 1
[shared]
settle_s = 0.2
[http]
port = PORT
[energy]
profiles = false
[workflows]
argo = false
[lease]
lease_namespace = "wattflow"
lease_s = 60
renew_s = 40
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cluster]:
    """A cluster of its own: Karpenter makes nodes for any pod that waits."""
    rig = Rig.start(die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        for folder in ("sleep", "karpenter"):
            cluster.grant_folder(folder)
        lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        rules = rig.api.get(f"{roles}/wattflow-scheduler")["rules"]
        rig.api.patch(f"{roles}/wattflow-scheduler", {"rules": [*rules, lease]})
        karpenter.start(rig)
        karpenter.pool(rig.api, "batch", {"wattflow.io/sleep": "true"}, "c-4x-amd64-linux")
        yield cluster
    finally:
        rig.stop()


def until(true: Callable[[], bool], what: str, limit_s: float = 180.0) -> None:
    ends = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends, what
        time.sleep(0.2)


def nodes(cluster: Cluster) -> list[JSON]:
    return cluster.api.items("/api/v1/nodes")


def test_an_idle_node_is_given_back_and_comes_anew_for_a_pod(cloud: Cluster) -> None:
    pods, api = "/api/v1/namespaces/default/pods", cloud.api
    api.create(pods, pod("first", "3", "default-scheduler", nodeSelector=POOLED))
    api.await_one(pods, "first", bound, 180)
    (before,) = nodes(cloud)
    name = before["metadata"]["name"]
    api.delete(f"{pods}/first", 0)
    with OurScheduler(cloud.own(), "least-energy:sleep=1", CONFIG) as scheduler:
        until(lambda: not nodes(cloud) and not api.items(karpenter.CLAIMS), "the idle node was not given back")
        (kept,) = [one for one in api.items("/api/v1/namespaces/wattflow/configmaps") if "claim" in one.get("data", {})]
        assert kept["metadata"]["labels"] == {"wattflow.io/asleep": "wattflow"}
        scheduler.stop()  # what is kept outlives the scheduler
        scheduler.start()
        api.create(pods, pod("second", "3", nodeSelector=POOLED))
        placed = api.await_one(pods, "second", bound, 180)
        (after,) = nodes(cloud)
        assert placed["spec"]["nodeName"] == after["metadata"]["name"] != name, "a node anew, and only one"
        assert after["metadata"]["labels"]["wattflow.io/sleep"] == "true"
        until(lambda: "wattflow.io/wake-s" in nodes(cloud)[0]["metadata"]["annotations"], "what it took is not kept")
        rest = api.items("/api/v1/namespaces/wattflow/configmaps")
        assert not [one for one in rest if "claim" in one.get("data", {})]
        assert len(api.items(karpenter.CLAIMS)) == 1


def test_a_claim_that_must_not_be_disrupted_stays(cloud: Cluster) -> None:
    api = cloud.api
    (claim,) = api.items(karpenter.CLAIMS)
    path = f"{karpenter.CLAIMS}/{claim['metadata']['name']}"
    api.patch(path, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
    api.delete("/api/v1/namespaces/default/pods/second", 0)
    with OurScheduler(cloud.own(), "least-energy:sleep=1", CONFIG) as scheduler:
        until(lambda: "do-not-disrupt" in scheduler.log.read_text(), "it was never asked for")
        assert len(nodes(cloud)) == 1 and not api.get(path)["metadata"].get("deletionTimestamp")
