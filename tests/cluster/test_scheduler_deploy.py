"""The manifests: accepted by a real API server, enough for the scheduler, and no more than it needs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kuberig.api import JSON, Api, ApiError
from under_test import Cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "CronJob": "/apis/batch/v1/namespaces/{namespace}/cronjobs",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}


def documents(folder: str) -> list[JSON]:
    files = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["resources"]
    own = [file for file in files if not file.startswith("..")]
    return [one for file in own for one in yaml.safe_load_all((DEPLOY / folder / file).read_text())]


def path_of(document: JSON) -> str:
    return PATHS[document["kind"]].format(namespace=document["metadata"].get("namespace", "default"))


def apply(cluster: Cluster, folder: str) -> None:
    for document in documents(folder):
        cluster.api.create(path_of(document), document, exists_ok=True)


@pytest.fixture(scope="module")
def applied(cluster: Cluster) -> Iterator[None]:
    apply(cluster, "base")
    definitions = PATHS["CustomResourceDefinition"]
    cluster.api.await_one(definitions, "nodepowerprofiles.wattflow.io", _established, 30)
    yield
    for document in documents("base"):
        if document["kind"] == "Deployment":  # its pods would go to the next test's nodes
            cluster.api.delete(f"{path_of(document)}/{document['metadata']['name']}?propagationPolicy=Background")
            cluster.api.await_none(f"/api/v1/namespaces/{document['metadata']['namespace']}/pods", 60)


def _established(found: JSON) -> bool:
    return any(
        c["type"] == "Established" and c["status"] == "True" for c in found.get("status", {}).get("conditions", [])
    )


def test_base_is_accepted_and_profiles_are_validated(cluster: Cluster, applied: None) -> None:
    path = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"
    kind = {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile"}
    good = kind | {"metadata": {"name": "good"}, "spec": {"nodes": ["n"], "busy": [0, 4], "watts": [50, 90.5]}}
    made = cluster.api.create(path, good)
    assert made["spec"]["scope"] == "wall" and made["spec"]["provenance"] == "modelled"
    for spec, message in (
        ({"busy": [0, 4], "watts": [50, 90]}, "name nodes"),
        ({"nodes": ["n"], "busy": [0, 4], "watts": [50]}, "as many points"),
        ({"nodes": ["n"], "preset": "x", "busy": [0], "watts": [1]}, "either a preset"),
        ({"nodes": ["n"]}, "either a preset"),
    ):
        with pytest.raises(ApiError, match=message):
            cluster.api.create(path, kind | {"metadata": {"name": "bad"}, "spec": spec})
    cluster.api.delete(f"{path}/good")


@pytest.mark.parametrize(
    "folder",
    [
        "frame",
        "resize",
        "claims",
        "sleep",
        "node-groups",
        "kueue",
        "consolidate",
        "watts",
        "preempt",
        "volumes",
        "devices",
        "network",
    ],
)
def test_what_comes_on_top_of_the_base_is_accepted(cluster: Cluster, applied: None, folder: str) -> None:
    for document in documents(folder):
        # Rights that an earlier test gave on this cluster are there already: then they are written over.
        try:
            cluster.api.create(f"{path_of(document)}?dryRun=All", document)
        except ApiError as error:
            if error.status != 409:
                raise
            cluster.api.patch(f"{path_of(document)}/{document['metadata']['name']}?dryRun=All", document)


def test_a_measured_curve_is_written_and_a_cap_beside_it_stays(cluster: Cluster, applied: None, tmp_path: Path) -> None:
    path = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"
    cluster.api.create("/api/v1/nodes", {"metadata": {"name": "measured"}}, exists_ok=True)
    words = [sys.executable, "-m", "wattflow.cli", "profile", str(tmp_path / "p.json"), "--virtual", "--levels", "0,1"]
    words += [
        "--window-s",
        "0.5",
        "--warm-s",
        "0",
        "--tolerance",
        "5",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--kube",
    ]
    environment = os.environ | {"PYTHONPATH": str(DEPLOY.parent / "src")}

    def run(node: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, node], env=environment, capture_output=True, text=True, timeout=300)

    assert run("measured").returncode == 0
    cluster.api.patch(f"{path}/measured", {"spec": {"capW": 50}})
    assert run("measured").returncode == 0, "once more, from the file"
    spec = cluster.api.get(f"{path}/measured")["spec"]
    assert spec["nodes"] == ["measured"] and spec["busy"][0] == 0 and spec["watts"][1] > spec["watts"][0]
    assert spec["capW"] == 50 and "virtual" in spec["source"]
    nobody = run("nobody")
    assert nobody.returncode == 2 and "the node cannot be read" in nobody.stderr
    cluster.api.delete(f"{path}/measured")
    cluster.api.delete("/api/v1/nodes/measured")


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace", "name", "allowed"),
    [
        ("list", "", "pods", "", "", True),
        ("create", "", "pods/binding", "default", "", True),
        ("patch", "", "pods/status", "default", "", True),
        ("update", "coordination.k8s.io", "leases", "wattflow", "wattflow", True),
        ("update", "coordination.k8s.io", "leases", "wattflow", "another", False),
        ("update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler", False),
        ("create", "", "pods", "default", "", False),
        ("delete", "", "pods", "default", "", False),
        ("patch", "", "nodes", "", "", False),
        ("list", "", "secrets", "", "", False),
    ],
)  # fmt: skip
def test_rights_are_what_it_needs_and_no_more(
    cluster: Cluster, applied: None, verb: str, group: str, resource: str, namespace: str, name: str, allowed: bool
) -> None:
    base, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": base, "subresource": sub, "namespace": namespace, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "system:serviceaccount:wattflow:wattflow-scheduler", "resourceAttributes": asked},
    }
    answer = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is allowed, answer["status"]


def as_our_account(cluster: Cluster) -> Api:
    """The API server as the account of the manifests sees it."""
    path = "/api/v1/namespaces/wattflow/serviceaccounts/wattflow-scheduler/token"
    made = cluster.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    return Api(cluster.api.server, cluster.api._context, made["status"]["token"])


def test_patches_are_narrowed_to_our_own_fields(cluster: Cluster, applied: None, namespace: str) -> None:
    """With the rights to patch nodes and pods, by way of the overlays, and as the very account."""
    for folder in ("sleep", "carbon", "watts"):
        apply(cluster, folder)
    ours, node = as_our_account(cluster), "/api/v1/nodes/guarded"
    taint = {"key": "theirs", "effect": "NoSchedule"}
    cluster.api.create("/api/v1/nodes", {"metadata": {"name": "guarded"}, "spec": {"taints": [taint]}}, exists_ok=True)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {
        "containers": [{"name": "c", "image": "x"}],
        "schedulingGates": [{"name": "wattflow.io/carbon"}, {"name": "a.b/c"}],
    }
    cluster.api.create(pods, {"metadata": {"name": "p"}, "spec": spec})
    ends = time.monotonic() + 90
    while True:  # a policy takes effect a while after it was written
        try:
            ours.patch(node, {"metadata": {"labels": {f"probe-{time.time_ns()}": "x"}}})
        except ApiError as error:
            assert "only labels wattflow.io" in str(error), error
            break
        assert time.monotonic() < ends
        time.sleep(0.5)
    sleeps = {"key": "wattflow.io/asleep", "effect": "NoSchedule"}
    found = cluster.api.get(node)["spec"]["taints"]
    ours.patch(node, {"metadata": {"annotations": {"wattflow.io/asleep": "1"}}, "spec": {"taints": [*found, sleeps]}})
    ours.patch(f"{node}/status", {"status": {"capacity": {"wattflow.io/watts": "90"}}})
    ours.patch(f"{pods}/p", {"metadata": {"labels": {"wattflow.io/placer": "1"}}})
    for path, body in (
        (node, {"spec": {"unschedulable": True}}),
        (node, {"spec": {"taints": [sleeps]}}),
        (node, {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}}),
        (f"{node}/status", {"status": {"capacity": {"cpu": "900"}}}),
        (f"{pods}/p", {"metadata": {"labels": {"app": "other"}}}),
        (f"{pods}/p", {"spec": {"schedulingGates": []}}),
        (f"{pods}/p", {"spec": {"activeDeadlineSeconds": 5}}),
    ):
        with pytest.raises(ApiError, match=r"may be changed|not ours|may be taken off"):
            ours.patch(path, body)
    ours.patch(f"{pods}/p", {"spec": {"schedulingGates": [{"name": "a.b/c"}]}})
    cluster.api.delete(node)


def test_the_hpe_guarantee_is_set_at_admission(cluster: Cluster, namespace: str) -> None:
    apply(cluster, "hpe-guarantee")
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def made(name: str, labels: dict[str, str]) -> JSON:
        limits = {"cpu": "2500m", "memory": "1Gi"}
        containers = [{"name": "a", "image": "x", "resources": {"limits": limits}}, {"name": "b", "image": "x"}]
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "nobody", "containers": containers},
        }
        return cluster.api.create(pods, body)

    ends = time.monotonic() + 90
    for turn in itertools.count():  # a policy takes effect a while after it was written: the API server polls
        found = made(f"guaranteed-{turn}", {"wattflow.io/guarantee": "hpe"})
        if found["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2" or time.monotonic() > ends:
            break
        time.sleep(0.2)
    first, second = found["spec"]["containers"]
    assert first["resources"] == {
        "limits": {"cpu": "2500m", "memory": "1Gi"},
        "requests": {"cpu": "2", "memory": "1Gi"},
    }
    assert second.get("resources", {}) == {}
    plain = made("plain", {})
    assert plain["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2500m"
    for document in documents("hpe-guarantee"):
        cluster.api.delete(f"{path_of(document)}/{document['metadata']['name']}")


def test_carbon_gates_and_limits_of_mps_are_set_at_admission(cluster: Cluster, namespace: str) -> None:
    for name in ("carbon", "mps"):
        apply(cluster, name)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    notes = {"wattflow.io/gpu-share": "0.25", "wattflow.io/gpu-memory": "10Gi"}

    def made(name: str, labels: dict[str, str], notes: dict[str, str]) -> JSON:
        spec = {"schedulerName": "nobody", "containers": [{"name": "a", "image": "x"}]}
        return cluster.api.create(
            pods, {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": spec}
        )

    ends = time.monotonic() + 90
    for turn in itertools.count():  # as above
        found = made(f"both-{turn}", {"wattflow.io/carbon": "wait"}, notes)
        done = "schedulingGates" in found["spec"] and "env" in found["spec"]["containers"][0]
        if done or time.monotonic() > ends:
            break
        time.sleep(0.2)
    assert found["spec"]["schedulingGates"] == [{"name": "wattflow.io/carbon"}]
    environment = {one["name"]: one for one in found["spec"]["containers"][0]["env"]}
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]["value"] == "25"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]["value"] == "0=10240M"
    field = environment["CUDA_VISIBLE_DEVICES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.annotations['wattflow.io/gpu']"
    assert any(one["name"] == "nvidia-mps" for one in found["spec"]["volumes"])
    plain = made("neither", {}, {})
    assert "schedulingGates" not in plain["spec"] and "env" not in plain["spec"]["containers"][0]
    for name in ("carbon", "mps"):
        for document in documents(name):
            cluster.api.delete(f"{path_of(document)}/{document['metadata']['name']}")


def test_what_is_missing_is_told_at_start_all_at_once(cluster: Cluster, tmp_path: Path) -> None:
    rig = cluster.own()
    nobody = tmp_path / "nobody.kubeconfig"
    known = json.loads(rig.kubeconfig.read_text())
    known["users"][0]["user"] = {"token": "of nobody"}
    nobody.write_text(json.dumps(known))
    command = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--check", "--kubeconfig"]
    environment = os.environ | {"PYTHONPATH": str(DEPLOY.parent / "src")}
    stranger = subprocess.run([*command, str(nobody)], env=environment, capture_output=True, text=True)
    assert stranger.returncode == 2 and "401" in stranger.stderr, stranger.stderr
    config = tmp_path / "scheduler.toml"
    config.write_text("[shared]\nclaim = true\n[energy]\nprofiles = false\n[workflows]\nargo = false\n")
    account = rig.users.config("real-0")  # a kubelet's account, which may do much less
    found = subprocess.run(
        [*command, str(account), "--config", str(config)], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 2
    for lacking in ("may not list namespaces", "may not create pods/binding", "may not update leases"):
        assert lacking in found.stderr, found.stderr
