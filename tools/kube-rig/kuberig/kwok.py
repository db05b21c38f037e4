"""Simulated nodes: KWOK plays their kubelets, everything above them is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kuberig.accounts import Accounts
from kuberig.api import JSON, Api
from kuberig.parts import HERE, program
from kuberig.processes import Process, Processes

LABEL = "type"
VALUE = "kwok"
ADDRESS = "10.255.0.1"
"""Of all simulated nodes: nobody calls them, but who asks for host ports at a node's address must find one."""
_CONDITIONS = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the nodes of one class have. A node is called `<name>-<number>`; its class names its pods' durations."""

    name: str = "kwok"
    cpu: str = "32"
    memory: str = "256Gi"
    pods: str = "110"
    extended: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    zones: int = 3
    tainted: bool = False  # taint kwok.x-k8s.io/node=fake:NoSchedule, which keeps pods of others away


def start(folder: Path, processes: Processes, users: Accounts) -> Process:
    """Starts KWOK for all nodes that carry the rig's label."""
    stages = folder / "stages.yaml"
    stages.write_text("---\n".join(file.read_text() for file in sorted((HERE / "stages").glob("*.yaml"))))
    return processes.start(
        "kwok",
        [
            program("kwok"),
            f"--kubeconfig={users.config('kwok')}",
            f"--config={stages}",
            f"--manage-nodes-with-label-selector={LABEL}={VALUE}",
            "--manage-all-nodes=false",
            "--node-lease-duration-seconds=0",
            f"--node-ip={ADDRESS}",
            "--cidr=10.254.0.0/16",
            "--v=warn",
        ],
    )


def node(shape: Shape, number: int) -> JSON:
    """The Node object of one simulated node."""
    name = f"{shape.name}-{number}"
    capacity = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "pods": shape.pods,
        "ephemeral-storage": "1Ti",
        **shape.extended,
    }
    labels = {
        LABEL: VALUE,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.wattflow.io/class": shape.name,
        "topology.kubernetes.io/region": "rig",
        "topology.kubernetes.io/zone": f"zone-{number % shape.zones}",
        **shape.labels,
    }
    taints = [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}] if shape.tainted else []
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": status, "reason": "Rig", "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, status in _CONDITIONS.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", **shape.annotations},
        },
        "spec": {"taints": taints},
        # Born ready: one write less for each of thousands; only the controller's taint is left to wait for.
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
        },
    }


def add_nodes(api: Api, count: int, shapes: Sequence[Shape] = (Shape(),), first: int = 0) -> list[str]:
    """Creates `count` nodes, shapes in turn; `await_ready` waits for them.

    Returns:
        Their names.
    """
    turns = len(shapes)
    bodies = [node(shapes[i % turns], first + i // turns) for i in range(count)]
    api.create_many("/api/v1/nodes", bodies)
    return [str(body["metadata"]["name"]) for body in bodies]


def await_ready(api: Api, count: int, timeout_s: float = 120.0) -> None:
    """Waits until `count` of KWOK's nodes are ready and free of the not-ready taint."""
    api.await_each("/api/v1/nodes", is_ready, count, timeout_s, labelSelector=f"{LABEL}={VALUE}")


def is_ready(found: JSON) -> bool:
    """Whether a node is Ready and pods may come (the node-lifecycle controller has taken its taint away)."""
    conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", [])}
    taints = found["spec"].get("taints", [])
    return conditions.get("Ready") == "True" and not any(t["key"].startswith("node.kubernetes.io/") for t in taints)
