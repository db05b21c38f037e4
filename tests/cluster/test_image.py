"""The scheduler's image as a Deployment of the base manifests: started by a real kubelet, it places pods.

`make test-image` builds the image first (several minutes) and names it in WATTFLOW_IMAGE; without that this file is not
collected.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from kuberig.api import JSON
from kuberig.kwok import Shape
from kuberig.node import RealNode
from kuberig.processes import free_ports
from test_real_node import has_ended, real_pod
from test_scheduler_deploy import DEPLOY, documents, path_of
from under_test import Cluster

NAME = "localhost/wattflow/wattflow:test"
ARCHIVE = Path(os.environ.get("WATTFLOW_IMAGE", ""))
CONFIG = "/api/v1/namespaces/wattflow/configmaps"


def deployment(cluster: Cluster) -> JSON:
    """The base's own, but for what a rig lacks: pod networks, a second address for a stand-by, a registry."""
    found = next(one for one in documents("base") if one["kind"] == "Deployment")
    spec = found["spec"]["template"]["spec"]
    found["spec"]["replicas"] = 1
    spec |= {"hostNetwork": True, "nodeSelector": {"node.wattflow.io/class": "real"}}
    server = urlsplit(cluster.api.server)
    (container,) = spec["containers"]
    container |= {"image": NAME, "imagePullPolicy": "Never"}
    container["env"] = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": server.hostname},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
    ]
    return found


def test_the_image_serves_as_deployed(
    cluster: Cluster, real_node: RealNode, kwok_nodes: object, argo: None, namespace: str
) -> None:
    real_node.load(ARCHIVE)
    kwok_nodes(2, [Shape("kwok", cpu="4")])  # type: ignore[operator]
    (port,) = free_ports(1)
    text = (DEPLOY / "base" / "scheduler.toml").read_text().replace("10359", str(port)).replace("0.0.0.0", "127.0.0.1")
    apply_all_but_deployment(cluster)
    config = {"metadata": {"name": "wattflow-scheduler"}, "data": {"scheduler.toml": text}}
    cluster.api.create(CONFIG, config, exists_ok=True)
    ours = deployment(cluster)
    (container,) = ours["spec"]["template"]["spec"]["containers"]
    container["ports"][0] |= {"containerPort": port, "hostPort": port}
    for probe in ("livenessProbe", "readinessProbe"):
        container[probe]["httpGet"] |= {"host": "127.0.0.1"}
    allowed = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}  # for the node's network
    cluster.api.patch("/api/v1/namespaces/wattflow", allowed)
    cluster.api.create(path_of(ours), ours)
    try:
        began = time.monotonic()
        try:
            cluster.api.await_each("/api/v1/namespaces/wattflow/pods", is_ready, 1, 180)
        except TimeoutError:
            tell(cluster, real_node)
            raise
        print(f"ready {time.monotonic() - began:.1f} s after the Deployment was made")
        pods = f"/api/v1/namespaces/{namespace}/pods"
        work = real_pod("sum", "seq 1 10 | wc -l")
        work["spec"]["schedulerName"] = "wattflow"
        cluster.api.create(pods, work)
        done = cluster.api.await_one(pods, "sum", has_ended, 120)
        assert done["status"]["phase"] == "Succeeded"
        assert done["metadata"]["annotations"].get("wattflow.io/decision"), "placed by ours, which says why"
        (pod,) = cluster.api.items("/api/v1/namespaces/wattflow/pods")
        state = pod["status"]["containerStatuses"][0]
        assert state["restartCount"] == 0 and state["user"]["linux"]["uid"] == 65532
        ready = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
        lasted = dt.datetime.fromisoformat(ready) - dt.datetime.fromisoformat(state["state"]["running"]["startedAt"])
        assert lasted.total_seconds() < 25, "compiling takes longer than this"
    finally:
        cluster.api.delete(f"{path_of(ours)}/{ours['metadata']['name']}?propagationPolicy=Background")
        cluster.api.await_none("/api/v1/namespaces/wattflow/pods", 60)
        cluster.api.delete(f"{CONFIG}/wattflow-scheduler")
        allowed["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
        cluster.api.patch("/api/v1/namespaces/wattflow", allowed)


def apply_all_but_deployment(cluster: Cluster) -> None:
    for document in documents("base"):
        if document["kind"] != "Deployment":
            cluster.api.create(path_of(document), document, exists_ok=True)


def tell(cluster: Cluster, real_node: RealNode) -> None:
    """After a failure: how its pods stand, what they and the cluster said."""
    for pod in cluster.api.items("/api/v1/namespaces/wattflow/pods"):
        print(
            pod["status"]["containerStatuses"],
            real_node.logs("wattflow", pod["metadata"]["name"], pod["metadata"]["uid"]),
        )
    for event in cluster.api.items("/api/v1/namespaces/wattflow/events"):
        print(event["involvedObject"]["name"], event["reason"], event["message"])


def is_ready(pod: JSON) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
