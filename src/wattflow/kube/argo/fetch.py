"""Workflows and what belongs to them, read from a cluster once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.argo.collect import WORKFLOW, PowerOf, attempt_of, collect
from wattflow.kube.argo.graph import Graph, Library, Raw
from wattflow.kube.client import ApiError, Client
from wattflow.kube.power import GROUP, NodePowerProfile, Watts
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Workflow

# Joules of pods as Kepler attributes them, read from Prometheus.
#
# Kepler's counters begin at 0 with each pod, so the largest value seen is what the pod used. Two generations of
# metrics are known: per pod and zone (package and memory are added; core and uncore are parts of the package), and
# per container.

# Kepler and Prometheus look every few seconds to a minute: counters of short pods show themselves a
# little later.
_MARGIN_S = 120.0
_QUERIES = (
    (
        "pod_id",
        "sum by (pod_id) (max by (pod_id, zone) (max_over_time(kepler_pod_cpu_joules_total"
        '{{pod_namespace="{namespace}",zone=~"package|dram"}}[{seconds}s])))',
    ),
    (
        "pod_name",
        "sum by (pod_name) (max by (pod_name, container_id) (max_over_time(kepler_container_joules_total"
        '{{container_namespace="{namespace}"}}[{seconds}s])))',
    ),
)


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Sample] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


async def pod_joules(
    url: str, namespace: str, span_s: tuple[float, float], names: Mapping[str, str]
) -> dict[str, float]:
    """Read joules by pod uid for a span of time (since 1970); ``names`` gives each pod's uid by its name.

    Raises:
        InvalidInput: There is no Prometheus, or it knows nothing of these pods.
    """
    begin_s, end_s = span_s
    # Prometheus looks back from `time`, which is a margin after the end; one more before the beginning.
    seconds = math.ceil(end_s - begin_s + 2 * _MARGIN_S)
    known = set(names.values())
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        for label, text in _QUERIES:
            query = text.format(namespace=namespace, seconds=seconds)
            answer = await _ask(session, url, query, end_s + _MARGIN_S)
            found = {}
            for sample in answer.data.result:
                who = sample.metric.get(label, "")
                uid, joules = who if label == "pod_id" else names.get(who, ""), float(sample.value[1])
                # Metrics of other pods in the namespace, and NaN, are left out.
                if uid in known and math.isfinite(joules):
                    found[uid] = joules
            # The first generation that knows any of the pods: sums of two would count joules twice.
            if found:
                return found
    raise InvalidInput(url, f"knows no Kepler metrics of these pods of {namespace} (kepler_pod_cpu_joules_total)")


async def _ask(session: aiohttp.ClientSession, url: str, query: str, at_s: float) -> _Answer:
    try:
        where = f"{url.rstrip('/')}/api/v1/query"
        async with session.get(where, params={"query": query, "time": f"{at_s:.3f}"}) as response:
            answer = msgspec.json.decode(await response.read(), type=_Answer)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(url, f"does not answer as Prometheus does: {error}") from None
    if answer.status != "success":
        raise InvalidInput(url, f"refused the query: {answer.error}")
    return answer


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
    return await pod_joules(url, namespace, span_s, names)
