"""Simulated nodes: KWOK plays their kubelets, everything above them is real."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kuberig.accounts import Accounts
from kuberig.api import JSON, Api, ApiError
from kuberig.parts import HERE, program
from kuberig.processes import Process, Processes

LABEL = "type"
VALUE = "kwok"
ADDRESS = "10.255.0.1"
"""Of all simulated nodes: nobody calls them, but who asks for host ports at a node's address must find one."""
_AT_ONCE = 32
"""Stages that KWOK plays at once; its own 4 let a burst of a hundred pods a second wait for ten seconds and more."""
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
    parts = [file.read_text() for file in sorted((HERE / "stages").glob("*.yaml"))]
    options = {"podPlayStageParallelism": _AT_ONCE, "nodePlayStageParallelism": _AT_ONCE}
    config = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}
    stages.write_text("---\n".join([json.dumps(config) + "\n", *parts]))
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


class Reminder:
    """Tells KWOK again of pods that it has left unstarted.

    KWOK looks at an object once per change. Once in some hundred runs of the tests a bound pod stayed Pending for ever,
    as under no kubelet; why is not known. A change of the pod makes KWOK look anew.
    """

    def __init__(self, api: Api, process: Process, every_s: float = 5.0) -> None:
        self._api = api
        self._process = process
        self._every_s = every_s
        self._waiting: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kwok-reminder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self.remind()
            except (ApiError, OSError) as error:  # tests stop the API server
                logging.getLogger(__name__).info("pods left unstarted were not looked for: %s", error)

    def remind(self) -> list[str]:
        """Changes each pod that was bound and Pending at the last look too; returns their names."""
        pods = self._api.items("/api/v1/pods?limit=500&fieldSelector=status.phase%3DPending,spec.nodeName%21%3D")
        now = {found["metadata"]["uid"]: found for found in pods if _lingers(found)}
        left = [found for uid, found in now.items() if uid in self._waiting and self._plays(found["spec"]["nodeName"])]
        self._waiting = set(now)
        names = []
        for about in (found["metadata"] for found in left):
            note = {"rig.wattflow.io/reminded": datetime.now(UTC).isoformat()}
            path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
            self._api.patch(path, {"metadata": {"annotations": note}})
            names.append(f"{about['namespace']}/{about['name']}")
        if names:
            logging.getLogger(__name__).warning("kwok left %s unstarted; told again: %s", names, self._process.tail())
        return names

    def _plays(self, node: str) -> bool:
        try:
            about = self._api.get(f"/api/v1/nodes/{node}")["metadata"]
        except ApiError:
            return False
        return (about.get("labels") or {}).get(LABEL) == VALUE


def _lingers(pod: JSON) -> bool:
    # A pod that is to start late is left alone: KWOK begins a delay anew whenever the object changes.
    about = pod["metadata"]
    return "rig.wattflow.io/start" not in (about.get("annotations") or {}) and "deletionTimestamp" not in about


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
