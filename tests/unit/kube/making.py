"""Short forms of API objects for tests: JSON in the API's own words, decoded as from the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from wattflow.kube import objects
from wattflow.kube.filters.volumes import Storage


def pod(name: str = "p", node: str = "", labels: dict[str, str] | None = None, **spec: object) -> objects.Pod:
    """A pod of namespace ``default``; ``status`` and ``cpu``/``memory`` are short forms."""
    status = spec.pop("status", {})
    requests = {key: spec.pop(key) for key in ("cpu", "memory") if key in spec}
    if "containers" not in spec:
        spec["containers"] = [{"name": "main", "resources": {"requests": requests}}]
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": node} | spec,
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=objects.Pod)


def node(name: str = "n", labels: dict[str, str] | None = None, **spec: object) -> objects.Node:
    """A node with 4 cores, 8 GiB and 110 pods, unless told otherwise."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | dict(spec.pop("allocatable", {}))  # type: ignore
    raw = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name} | (labels or {})},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }
    return msgspec.convert(raw, type=objects.Node)


def storage(phase: str = "Bound", modes: tuple[str, ...] = ("ReadWriteOnce",), **volume: Any) -> Storage:
    """One claim, and the volume that it is bound to: on node b unless told otherwise."""
    done = {"pv.kubernetes.io/bind-completed": "yes"} if phase == "Bound" else {}
    wants = {"volumeName": "pv" if done else "", "accessModes": modes}
    about = {"name": "c", "namespace": "default", "annotations": done}
    claim = {"metadata": about, "spec": wants, "status": {"phase": phase}}
    only = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
    spec = {"local": {"path": "/v"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [only]}}}
    kept = {"metadata": {"name": "pv", "labels": volume.pop("labels", {})}, "spec": volume or spec}
    return Storage.of(
        [msgspec.convert(claim, objects.PersistentVolumeClaim)], [msgspec.convert(kept, objects.PersistentVolume)]
    )
