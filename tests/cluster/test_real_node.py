"""A pod on the real node really executes, in a control group of its own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kuberig import cgroups, images, node, parts
from kuberig.api import JSON
from kuberig.node import RealNode
from kuberig.rig import Rig
from under_test import Cluster, unavailable


def real_pod(name: str, script: str, cpu: str = "100m") -> JSON:
    """A pod that runs a shell script on a real node."""
    container = {
        "name": "main",
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "hostNetwork": True,
            "restartPolicy": "Never",
            "nodeSelector": {"node.wattflow.io/class": "real"},
            "terminationGracePeriodSeconds": 0,
        },
    }


def has_ended(found: JSON) -> bool:
    return found["status"].get("phase") in ("Succeeded", "Failed")


def test_a_program_runs_and_its_output_is_right(cluster: Cluster, real_node: RealNode, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, real_pod("sum", "seq 1 1000 | sha256sum"))
    done = cluster.api.await_one(pods, "sum", has_ended, 60)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert done["spec"]["nodeName"] == real_node.name
    truth = hashlib.sha256("".join(f"{i}\n" for i in range(1, 1001)).encode()).hexdigest()
    assert real_node.logs(namespace, "sum", done["metadata"]["uid"])["main"].split()[0] == truth


def test_cpu_time_of_a_pod_is_read_from_its_control_group(
    cluster: Cluster, real_node: RealNode, namespace: str, cpu_times: cgroups.CpuTimes
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # `ulimit -t` ends the shell when it has used two seconds of CPU, however busy the machine is. The kernel counts
    # them for this by ticks, and in the control group exactly: on a crowded machine the two differ by some hundredths.
    cluster.api.create(pods, real_pod("busy", "ulimit -t 2; while :; do :; done"))
    cluster.api.create(pods, real_pod("idle", "sleep 2"))
    for name in ("busy", "idle"):
        cluster.api.await_one(pods, name, has_ended, 120)
    used = {p["metadata"]["name"]: cpu_times.seconds[p["metadata"]["uid"]] for p in cluster.api.items(pods)}
    print(f"CPU seconds by control group: {used}")
    assert 1.6 <= used["busy"] < 3.0
    assert used["idle"] < 1.0


def test_two_nodes_at_once_and_nothing_left_behind(cluster: Cluster) -> None:
    """A rig of its own: what is left after its stop is looked for on the whole machine."""
    cluster.own()
    if node.why_not() or parts.missing(("kubelet", "containerd")):
        unavailable(node.why_not() or "the rig lacks kubelet or containerd (`make kube-rig`)")
    rig = Rig.start(die_with_parent=True)
    try:
        nodes = [rig.start_real_node(name, with_argo=False) for name in ("real-0", "real-1")]
        rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 30)
        pods = "/api/v1/namespaces/default/pods"
        for each in nodes:
            body = real_pod(f"on-{each.name}", "echo here; sleep 600")
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": each.name}
            rig.api.create(pods, body)
        rig.api.await_each(pods, lambda found: found["status"].get("phase") == "Running", 2, 60)
        uids = {p["spec"]["nodeName"]: p["metadata"]["uid"] for p in rig.api.items(pods)}
        assert set(uids) == {"real-0", "real-1"}
        assert all(each.cpu_seconds(uids[each.name]) for each in nodes)
        assert nodes[0].cpu_seconds(uids["real-1"]) is None
    finally:
        rig.stop()
    sign = rig.folder.name
    assert sign not in Path("/proc/self/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{sign}*"))
    mine = str(os.getpid())
    commands = [f.read_bytes() for f in Path("/proc").glob("[0-9]*/cmdline") if f.parent.name != mine and f.exists()]
    assert not any(sign.encode() in command for command in commands)
    assert not rig.folder.exists()


def test_a_failing_program_is_a_failed_pod(cluster: Cluster, real_node: RealNode, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, real_pod("bad", "exit 7"))
    done = cluster.api.await_one(pods, "bad", has_ended, 60)
    assert done["status"]["phase"] == "Failed"
    assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
