"""The state of a scheduler as a cluster shows it: who leads, what waits, what runs, and the watts of its nodes."""

from __future__ import annotations

from collections import Counter

from wattflow.kube import objects, opt_in
from wattflow.kube.access import Access
from wattflow.kube.argo.fetch import watts_of
from wattflow.kube.client import ApiError, Client
from wattflow.kube.filters.snapshot import Snapshot
from wattflow.kube.leader import Lease
from wattflow.kube.power import Watts

_USUAL = ("wattflow", "kube-system")
"""Where deploy/base puts the lease, and where a scheduler without a configuration does."""


async def status(where: Access, name: str, lease: str) -> str:
    """Describe a scheduler in a few lines. ``lease`` is NAMESPACE/NAME; without one the usual places are tried."""
    async with Client(where) as client:
        holder = await _holder(client, [lease] if lease else [f"{space}/{name}" for space in _USUAL])
        pods = (await client.list_all("/api/v1/pods", objects.Pod)).items
        nodes = (await client.list_all("/api/v1/nodes", objects.Node)).items
        watts = await watts_of(client)
        given = [f"enabled for {one}" for one in await opt_in.enabled(client)]
    return "\n".join([f"{name}: {holder}", *given, *_pods(name, pods), *_watts(watts, Snapshot.of(nodes, pods))])


async def _holder(client: Client, leases: list[str]) -> str:
    for lease in leases:
        space, _, title = lease.rpartition("/")
        try:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/{title}"
            return f"led by {(await client.get(path, Lease)).spec.holder_identity or 'nobody'}"
        except ApiError as error:
            if error.code != 404:
                return f"led by unknown ({error.reason or error.code})"
    return f"led by nobody: there is no lease {' or '.join(leases)} (--lease names another)"


def _pods(name: str, pods: list[objects.Pod]) -> list[str]:
    ours = [pod for pod in pods if pod.spec.scheduler_name == name and not pod.ended]
    waiting = [pod for pod in ours if not pod.spec.node_name]
    reasons = Counter(
        condition.message or condition.reason
        for pod in waiting
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    )
    lines = [f"{len(ours) - len(waiting)} pods placed, {len(waiting)} wait"]
    return lines + [f"  {count} × {reason}" for reason, count in reasons.most_common(5)]


def _watts(watts: Watts, cluster: Snapshot) -> list[str]:
    found = {}
    for name, view in cluster.nodes.items():
        # For its side effect: `node_w` reads the curve that this finds.
        watts.profile_of(view.node)
        value = watts.node_w(view)
        if value is not None:
            found[name] = value
    unknown = len(cluster.nodes) - len(found)
    lines = [f"{sum(found.values()):.1f} W modelled on {len(found)} nodes; {unknown} without a power profile"]
    top = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:5]
    return lines + [f"  {name} {value:.1f} W" for name, value in top]
