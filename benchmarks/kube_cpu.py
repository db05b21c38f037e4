"""Where our scheduler's processor time goes per bound pod, without a cluster.

API objects as bytes in, bindings that succeed at once out. No network: what sockets and TLS cost is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import resource
import statistics
import time
from typing import Any

import msgspec

from wattflow.kube import client, objects, scheduler_process
from wattflow.kube.access import Access
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.settings import SchedulerSettings

SHAPES = (
    ("32", "64Gi", "ichnos.gpgnode-05.performance"),
    ("64", "256Gi", "ccf.xeon-6338n-xr11"),
    ("128", "512Gi", "ccf.epyc-7763-dl325"),
)
_STAMP = "2026-01-01T00:00:00Z"


def node_bytes(i: int) -> bytes:
    """A node as the API server writes it."""
    cpu, memory, profile = SHAPES[i % len(SHAPES)]
    room = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "KubeletReady",
         "message": "kubelet is posting ready status", "lastHeartbeatTime": _STAMP, "lastTransitionTime": _STAMP}
        for kind in kinds
    ]  # fmt: skip
    labels = {"kubernetes.io/hostname": f"n-{i}", "type": "kwok", "wattflow.io/power-profile": profile}
    return json.dumps({
        "metadata": {"name": f"n-{i}", "uid": f"00000000-0000-0000-0001-{i:012}", "resourceVersion": str(i + 1),
                     "creationTimestamp": _STAMP, "labels": labels, "managedFields": _managed(1)},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": conditions,
                   "nodeInfo": {"architecture": "amd64"}},
    }).encode()  # fmt: skip


def pod_object(i: int, version: int, node: str = "") -> dict[str, Any]:
    """A pod as the API server writes it, before or after its binding."""
    wants = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    token = {"name": "kube-api-access-xxxxx", "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ], "defaultMode": 420}}  # fmt: skip
    container = {
        "name": "main", "image": "none", "resources": wants, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "Always", "volumeMounts": [
            {"name": "kube-api-access-xxxxx", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/a"}],
    }  # fmt: skip
    spec: dict[str, Any] = {
        "volumes": [token], "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
        "securityContext": {}, "schedulerName": "wattflow", "priority": 0, "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority", "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")],
    }  # fmt: skip
    status: dict[str, Any] = {"phase": "Pending", "qosClass": "Burstable"}
    if node:
        spec["nodeName"] = node
        status["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": _STAMP}
        ]
    meta = {"name": f"p-{i}", "namespace": "fill", "uid": f"00000000-0000-0000-0002-{i:012}",
            "resourceVersion": str(version), "creationTimestamp": _STAMP, "generation": 1,
            "managedFields": _managed(2 if node else 1)}  # fmt: skip
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}


def _managed(writers: int) -> list[Any]:
    names = ("image", "imagePullPolicy", "name", "resources", "terminationMessagePath", "terminationMessagePolicy")
    fields: Any = {"f:spec": {"f:containers": {'k:{"name":"main"}': {f"f:{name}": {} for name in names}}}}
    one = {"manager": "load", "operation": "Update", "apiVersion": "v1", "time": _STAMP, "fieldsType": "FieldsV1",
           "fieldsV1": fields}  # fmt: skip
    return [one] * writers


_BOUND = b'{"type":"MODIFIED","object":' + msgspec.json.encode(pod_object(111111, 222222, "n-333333")) + b"}"


def bound_line(i: int, version: int, node: str) -> bytes:
    """The watch's line for a pod that was bound, cheaply."""
    line = _BOUND.replace(b"000000111111", b"%012d" % i).replace(b"p-111111", b"p-%d" % i)
    return line.replace(b"222222", b"%d" % (10**6 + version)).replace(b"n-333333", node.encode())


class Answering(client.Client):
    """A client whose bindings succeed at once; each becomes a line of the watch on pods."""

    def __init__(self) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.bound: list[bytes] = []
        self.binds = 0

    async def quick(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
        """Encode as usual, answer at once."""
        msgspec.json.encode(body)
        if path.endswith("/binding"):
            self.binds += 1
            assert isinstance(body, dict)
            i = int(body["metadata"]["name"][2:])
            self.bound.append(bound_line(i, self.binds, body["target"]["name"]))
        return b"{}"


def filled(nodes: int, pods: int, api: Answering) -> tuple[Scheduler, float]:
    """A scheduler that has seen nodes and pods; the second figure is the processor time of that."""
    chosen = SchedulerSettings(leader_elect=False, profiles=False, argo=False)
    scheduler = scheduler_process.make(api, chosen)
    raw_nodes = [node_bytes(i) for i in range(nodes)]
    raw_pods = [json.dumps(pod_object(i, i + 1)).encode() for i in range(pods)]
    began_s = time.process_time()
    decode_node, decode_pod = msgspec.json.Decoder(objects.Node), msgspec.json.Decoder(objects.Pod)
    by_path = {mirror.path: mirror for mirror in scheduler.mirrors}
    for raw in raw_nodes:
        by_path["/api/v1/nodes"]._apply("ADDED", decode_node.decode(raw))
    for raw in raw_pods:
        by_path["/api/v1/pods"]._apply("ADDED", decode_pod.decode(raw))
    return scheduler, time.process_time() - began_s


async def bind_all(scheduler: Scheduler, api: Answering, pods: int) -> tuple[float, float]:
    """Decide, bind, hear of it. Processor seconds of all, and of hearing alone."""
    began_s, heard_s = time.process_time(), 0.0
    mirror = next(one for one in scheduler.mirrors if one.path == "/api/v1/pods")
    workers = [asyncio.create_task(scheduler._bind_worker()) for _ in range(scheduler.settings.concurrency)]
    decoder = client.events_of(mirror.kind)
    heard = 0
    while heard < pods:
        scheduler.decide()
        for _ in range(4):
            await asyncio.sleep(0)
        lines, api.bound = api.bound, []
        at_s = time.process_time()
        if lines:
            for change in client.changes(lines, decoder):
                mirror._apply(change.kind, change.item)
        heard_s += time.process_time() - at_s
        heard += len(lines)
    for worker in workers:
        worker.cancel()
    return time.process_time() - began_s, heard_s


async def one_by_one(scheduler: Scheduler, api: Answering, first: int, pods: int) -> list[float]:
    """Pods that come one at a time; processor seconds of each, from the watch's line until it is heard to be bound."""
    mirror = next(one for one in scheduler.mirrors if one.path == "/api/v1/pods")
    decoder = client.events_of(mirror.kind)
    workers = [asyncio.create_task(scheduler._bind_worker()) for _ in range(2)]
    took = []
    for i in range(first, first + pods):
        line = b'{"type":"ADDED","object":' + msgspec.json.encode(pod_object(i, 2 * 10**6 + i)) + b"}"
        began_s = time.process_time()
        for change in client.changes([line], decoder):
            mirror._apply(change.kind, change.item)
        while not api.bound:
            scheduler.decide()
            for _ in range(4):
                await asyncio.sleep(0)
        for change in client.changes(api.bound, decoder):
            mirror._apply(change.kind, change.item)
        api.bound = []
        scheduler.decide()
        took.append(time.process_time() - began_s)
    for worker in workers:
        worker.cancel()
    return took


async def measure(nodes: int, pods: int, profile: bool) -> None:
    """One run."""
    api = Answering()
    scheduler, fill_s = filled(nodes, pods, api)
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    total_s, heard_s = await bind_all(scheduler, api, pods)
    singly_s = await one_by_one(scheduler, api, pods, 500)
    profiler.disable()
    held_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    size = f"{nodes}_nodes_{pods}_pods"
    for name, value, unit in (
        ("listed", 1e6 * fill_s / (nodes + pods), "us/object"),
        ("decided_and_bound", 1e6 * (total_s - heard_s) / pods, "us/pod"),
        ("heard", 1e6 * heard_s / pods, "us/pod"),
        ("one_by_one_median", 1e6 * statistics.median(singly_s), "us/pod"),
        ("one_by_one_longest", 1e6 * max(singly_s), "us/pod"),
        ("peak_memory", held_mb, "MB"),
    ):
        print(f"figure kube_cpu_{size}_{name} {value:.4g} {unit} goal none ok")
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


def main() -> None:
    """Prints processor time by part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(bind_all(*filled(10, 100, api := Answering())[:1], api, 100))  # loads what is compiled
    asyncio.run(measure(arguments.nodes, arguments.pods, arguments.profile))


if __name__ == "__main__":
    main()
