"""Workflows and what belongs to them, read from a cluster once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wattflow.kube import kepler_joules, objects
from wattflow.kube.argo.collect import WORKFLOW, PowerOf, attempt_of, collect
from wattflow.kube.argo.graph import Graph, Library, Raw
from wattflow.kube.client import ApiError, Client
from wattflow.kube.power import GROUP, NodePowerProfile, Watts
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Workflow

API = "/apis/argoproj.io/v1alpha1"
ENDED = ("Succeeded", "Failed", "Error")


async def raw(client: Client, path: str, query: Mapping[str, str] | None = None) -> dict[str, object]:
    """Read one object or list as plain JSON."""
    found: dict[str, object] = msgspec.json.decode(await client.call("GET", path, query=query))
    return found


async def library(client: Client, namespace: str) -> Library:
    """Read all WorkflowTemplates that a workflow of this namespace can name."""
    known: dict[tuple[str, bool], Raw] = {}
    places = ((f"{API}/namespaces/{namespace}/workflowtemplates", False), (f"{API}/clusterworkflowtemplates", True))
    for path, whole in places:
        try:
            items = (await raw(client, path)).get("items")
        except ApiError as error:
            # ClusterWorkflowTemplates need a right of their own; without it a workflow that names none can
            # still be read.
            if error.code in (403, 404):
                continue
            raise
        for item in items if isinstance(items, list) else []:
            known[str(item["metadata"]["name"]), whole] = item
    return lambda name, template, whole: known.get((name, whole))


async def watts_of(client: Client, default: str = "") -> Watts:
    """Read power profiles as the cluster's NodePowerProfiles state them."""
    watts = Watts(default)
    try:
        for one in (await client.list_all(GROUP, NodePowerProfile)).items:
            watts.on_profile("ADDED", one)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
    return watts


async def finished(
    client: Client, namespace: str, name: str, power_of: PowerOf, cpu_s: Mapping[str, float], prometheus: str = ""
) -> Workflow:
    """Read one finished workflow as a document; with the address of a Prometheus, joules are Kepler's.

    Raises InvalidInput while it runs or where it is not there.
    """
    path = f"{API}/namespaces/{namespace}/workflows/{name}"
    try:
        workflow = await raw(client, path)
    except ApiError as error:
        if error.code == 404:
            raise InvalidInput(f"{namespace}/{name}", "there is no such workflow, or no Argo in this cluster") from None
        raise
    status = workflow.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    if phase not in ENDED:
        raise InvalidInput(f"{namespace}/{name}", f"has not ended yet (it is {phase or 'waiting'}); collect it later")
    chosen = {"labelSelector": f"{WORKFLOW}={name}"}
    # Fresh: the server's cache may lack the last pod's end.
    pods = (await client.list_all(f"/api/v1/namespaces/{namespace}/pods", objects.Pod, query=chosen, fresh=True)).items
    if not pods:
        raise InvalidInput(f"{namespace}/{name}", "its pods are gone (podGC); collect before they are deleted")
    # From the cache: nodes are only read for their names, threads and labels.
    nodes = {one.metadata.name: one for one in (await client.list_all("/api/v1/nodes", objects.Node)).items}
    graph = Graph.of(workflow, await library(client, namespace))
    attributed_j = await _kepler(prometheus, namespace, pods) if prometheus else {}
    return collect(workflow, graph, pods, nodes, power_of, cpu_s, attributed_j)


async def _kepler(url: str, namespace: str, pods: list[objects.Pod]) -> dict[str, float]:
    attempts = [found for found in (attempt_of(pod, 1, None) for pod in pods) if found is not None]
    if not attempts:
        return {}
    span_s = min(one.start_s for one in attempts), max(one.end_s for one in attempts)
    names = {one.pod.metadata.name: one.pod.metadata.uid for one in attempts}
    return await kepler_joules.pod_joules(url, namespace, span_s, names)
