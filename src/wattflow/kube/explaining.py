"""Why a pod is where it is, or waits: from what the binding wrote into it, its condition, and the scheduler itself."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from wattflow.kube import objects, opt_in, past_decisions, telling
from wattflow.kube.access import Access
from wattflow.kube.client import ApiError, Client
from wattflow.kube.telling import DECISION
from wattflow.model.errors import InvalidInput


async def explain(
    where: Access,
    asked: tuple[str, str],
    scheduler_url: str,
    journal: Path | None = None,
    release: str = "wattflow/wattflow",
) -> str:
    """Explain a pod (namespace and name) in a few lines; with a journal also which other nodes there were."""
    namespace, name = asked
    async with Client(where) as client:
        try:
            pod = await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}", objects.Pod)
        except ApiError as error:
            if error.code == 404:
                raise InvalidInput(f"{namespace}/{name}", "there is no such pod") from None
            raise
        said = None
        if not pod.spec.node_name:
            with contextlib.suppress(InvalidInput):  # what stands in the pod is told all the same
                said = json.loads(await opt_in.ask(client, f"/explain/{namespace}/{name}", scheduler_url, release))
    found, note = lines(pod, said), pod.metadata.annotations.get(DECISION)
    if journal is not None and note:
        found += past_decisions.candidates(journal, json.loads(note))
    return "\n".join(found)


def lines(pod: objects.Pod, said: dict[str, object] | None) -> list[str]:
    """Write the explanation; ``said`` is what a running scheduler knows of a waiting pod."""
    found = [f"{pod.key}: schedulerName {pod.spec.scheduler_name}"]
    note = pod.metadata.annotations.get(DECISION)
    if pod.spec.node_name:
        found.append(f"on {pod.spec.node_name}")
        decision = json.loads(note) if note else {}
        if "policy" in decision:
            found.append(f"chosen by policy {decision['policy']}")
        if "added_w" in decision:
            found.append(f"added {decision['added_w']} W, node then at {decision['node_w']} W (modelled)")
        elif decision:
            found.append("watts unknown: the node has no power profile")
        return found
    told = [one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"]
    found += [f"waits: {one.message or one.reason}" for one in told]
    # What the scheduler says now comes after what stands in the pod, which may be older.
    if said is not None:
        requests = said.get("requests")
        found.append(f"now: {said.get('why')}")
        found.append(f"asks for {telling.asked(requests) if isinstance(requests, dict) else requests}")
    elif not told:
        found.append("waits: nothing is known yet; is the scheduler running?")
    return found
