"""In-place resize on a real kubelet: a guarantee is raised while nobody waits, and given back to who does."""

from __future__ import annotations

from kuberig.api import JSON
from kuberig.node import RealNode
from our_scheduler import OurScheduler
from test_real_node import real_pod
from test_scheduler import bound
from under_test import Cluster

CONFIG = (
    "[http]\nport = PORT\n[energy]\nprofiles = false\nresize = true\nresize_after_s = 1\n[workflows]\nargo = false\n"
)


def in_force(found: JSON) -> str:
    """The request that the kubelet says is in force."""
    statuses = found["status"].get("containerStatuses", [])
    return str(statuses[0].get("resources", {}).get("requests", {}).get("cpu", "")) if statuses else ""


def test_a_guarantee_moves_with_the_room_on_its_node(cluster: Cluster, real_node: RealNode, namespace: str) -> None:
    cluster.grant("resizes", "pods/resize")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    node = cluster.api.get(f"/api/v1/nodes/{real_node.name}")
    cores_m = 1000 * int(node["status"]["allocatable"]["cpu"])
    long = real_pod("long", "sleep 600", cpu=f"{cores_m * 4 // 10}m")
    long["metadata"]["labels"] = {"wattflow.io/guarantee": "hpe"}
    long["spec"]["schedulerName"] = "wattflow"
    long["spec"]["containers"][0]["resources"]["limits"] = {"cpu": f"{cores_m // 2}m", "memory": "16Mi"}
    with OurScheduler(cluster.own(), text=CONFIG):
        cluster.api.create(pods, long)
        raised = f"{cores_m // 2 - 1}m"
        found = cluster.api.await_one(pods, "long", lambda one: in_force(one) == raised, 120)
        assert found["status"]["containerStatuses"][0]["restartCount"] == 0
        other = real_pod("other", "sleep 600", cpu=f"{cores_m * 55 // 100}m")
        other["spec"]["schedulerName"] = "wattflow"
        cluster.api.create(pods, other)
        cluster.api.await_one(pods, "other", bound, 120)
        back = cluster.api.get(f"{pods}/long")
        assert in_force(back) == f"{cores_m * 4 // 10}m", back["status"]
        assert back["status"]["containerStatuses"][0]["restartCount"] == 0, "nothing was started anew"
