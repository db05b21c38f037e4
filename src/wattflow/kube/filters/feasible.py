"""All filters together: which nodes can take a pod, and why not the others."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from wattflow.kube import accounting, gpus, objects
from wattflow.kube.dra import device_ledger
from wattflow.kube.filters import interpod, selectors, snapshot, spread, volumes


@dataclass(frozen=True, slots=True)
class Question:
    """One pod against one snapshot, with what is counted over the cluster once."""

    pod: objects.Pod
    requests: accounting.Amounts
    ports: tuple[snapshot.Port, ...]
    counts: interpod.Counts
    spreads: list[spread.Spread]
    gpu: gpus.GpuShare | None
    reach: tuple[objects.PersistentVolume, ...]
    storage: volumes.Storage | None
    claim_taken: bool
    devices: device_ledger.Devices | None = None
    device_needs: device_ledger.Needs | None = None

    @classmethod
    def of(cls, pod: objects.Pod, cluster: snapshot.Snapshot) -> Question:
        """Prepare a pod."""
        return cls(
            pod,
            accounting.pod_requests(pod),
            snapshot.host_ports(pod),
            interpod.Counts.of(pod, cluster),
            spread.spreads(pod, cluster),
            gpus.wish(pod),
            volumes.reach(pod, cluster.storage),
            cluster.storage,
            volumes.taken(pod, cluster.storage, (one for view in cluster.nodes.values() for one in view.pods.values())),
            cluster.devices,
            cluster.devices.needs(pod) if cluster.devices is not None else None,
        )


def standing(pod: objects.Pod, node: objects.Node) -> str | None:
    """The reason against a node that stands whatever runs there: cordon, name, taints, selector and affinity."""
    if selectors.cordoned(pod, node):
        return "unschedulable"
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        return "node name"
    taint = selectors.untolerated(pod.spec.tolerations, node.spec.taints)
    if taint is not None:
        return f"taint {taint.key}"
    if not selectors.node_affinity(pod, node):
        return "node selector or affinity"
    return None


def lacking(requests: accounting.Amounts, view: snapshot.NodeView) -> str | None:
    """The first resource that the node has too little of, or None."""
    for name, value in requests.items():
        if value > view.allocatable.get(name, 0) - view.requested.get(name, 0):
            return name
    return None


def why_not(asked: Question, view: snapshot.NodeView) -> str | None:
    """The first reason against this node, or None when it can take the pod."""
    reason = standing(asked.pod, view.node)
    if reason is not None:
        return reason
    short = lacking(asked.requests, view)
    return f"too little {short}" if short is not None else counted_against(asked, view)


def counted_against(asked: Question, view: snapshot.NodeView) -> str | None:
    """The reason against this node that depends on which pods run where: ports, spread, affinity between pods.

    Volumes are asked here too: where they can be reached may change, and few pods have any.
    """
    if asked.ports and not snapshot.ports_free(
        asked.ports, (port for used in view.used_ports.values() for port in used)
    ):
        return "host ports"
    if asked.gpu is not None and gpus.place(view.node, view.gpus, asked.gpu) is None:
        return "GPU shares"
    if asked.claim_taken:
        return "claim in use by another pod"
    if asked.devices is not None and asked.device_needs is not None:
        reason = asked.devices.why_not(asked.device_needs, view.node)
        if reason is not None:
            return reason
    if asked.storage is not None and asked.storage.cannot_make(asked.pod, view.node.metadata.name, view.labels):
        return "volume topology"
    if asked.reach:
        name, pods = view.node.metadata.name, view.pods.values()
        reason = volumes.why_not(asked.reach, view.labels)
        reason = reason or volumes.over_limit(asked.reach, name, pods, asked.storage)
        if reason is not None:
            return reason
    return spread.why_not(view.labels, asked.spreads) or interpod.why_not(asked.pod, view.labels, asked.counts)


def is_counted(pod: objects.Pod) -> bool:
    """Tell whether `counted_against` can say anything because of the pod's own wishes."""
    return bool(
        gpus.SHARE in pod.metadata.annotations
        or snapshot.host_ports(pod)
        or spread.hard(pod)
        or interpod.affinity_terms(pod)
        or interpod.anti_affinity_terms(pod)
        or volumes.claims(pod)
        or pod.spec.resource_claims
    )


def alike(pod: objects.Pod) -> bytes | None:
    """Return what pods have in common for which `counted_against` says the same; None where it is asked for each."""
    if gpus.SHARE in pod.metadata.annotations or volumes.claims(pod) or pod.spec.resource_claims:
        return None
    return msgspec.msgpack.encode((pod.metadata.namespace, pod.metadata.labels, pod.spec))


def unsupported(pod: objects.Pod, cluster: snapshot.Snapshot) -> str | None:
    """Why this scheduler does not place the pod at all now: its volumes, or its claims of devices."""
    return volumes.unsupported(pod, cluster.storage) or device_ledger.unsupported(pod, cluster.devices)


def feasible(pod: objects.Pod, cluster: snapshot.Snapshot) -> dict[str, str | None]:
    """For each node None, or the reason why the pod cannot go there. A pod that we refuse as such fits nowhere."""
    refused = unsupported(pod, cluster)
    if refused is not None:
        return dict.fromkeys(cluster.nodes, refused)
    asked = Question.of(pod, cluster)
    return {name: why_not(asked, view) for name, view in cluster.nodes.items()}
