"""Karpenter with its own KWOK provider, outside the cluster: NodeClaims become simulated nodes, and go with them."""

from __future__ import annotations

import os

from kuberig import kwok
from kuberig.api import JSON, Api, ApiError
from kuberig.parts import BY_NAME, part_dir, program
from kuberig.processes import Process, free_ports
from kuberig.rig import Rig

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
_POOLS = "/apis/karpenter.sh/v1/nodepools"


def start(rig: Rig) -> Process:
    """Installs Karpenter's resource definitions and starts it as the administrator; KWOK plays its nodes' kubelets."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    files = sorted(part_dir(BY_NAME["karpenter"]).glob("*.yaml"))
    for file in files:
        try:
            rig.api.request("POST", path, file.read_bytes(), "application/yaml")
        except ApiError as error:
            if error.status != 409:
                raise
    rig.api.await_each(path, _established, len(files), 60)
    if not rig.processes.find("kwok"):
        kwok.start(rig.folder, rig.processes, rig.users)
    metrics, health = free_ports(2)
    process = rig.processes.start(
        "karpenter",
        [program("karpenter"), f"--metrics-port={metrics}", f"--health-probe-port={health}",
         "--disable-leader-election", "--log-level=info", "--batch-idle-duration=100ms"],
        {"KUBECONFIG": str(rig.kubeconfig), "SYSTEM_NAMESPACE": "kube-system", "KUBERNETES_MIN_VERSION": "1.19.0-0",
         "HOME": os.environ.get("HOME", "/tmp")},
    )  # fmt: skip
    return process


def pool(api: Api, name: str, labels: dict[str, str], node_type: str, delay_s: float = 0.0) -> None:
    """Makes a NodePool whose nodes are all of one type; Karpenter itself is told to leave them alone."""
    made = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name}}
    api.create(_CLASSES, made | {"spec": {"nodeRegistrationDelay": f"{delay_s:g}s"}})
    spec = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
        "requirements": [_only("node.kubernetes.io/instance-type", node_type), _only("kubernetes.io/arch", "amd64")],
    }
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": labels | {kwok.LABEL: kwok.VALUE}}, "spec": spec},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
        },
    }
    api.create(_POOLS, body)


def _only(key: str, value: str) -> JSON:
    return {"key": key, "operator": "In", "values": [value]}


def _established(definition: JSON) -> bool:
    conditions = definition["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
