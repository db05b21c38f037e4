"""Mode ``extender``: kube-scheduler keeps its queue, filters and bindings, and asks us over HTTP which nodes it likes.

The words are those of ``k8s.io/kube-scheduler/extender/v1``. A pod is scored as if it were the only one that waits, by
the policy in use, on what the watches have told; the policy's own choice alone gets the highest score. What a pod
scheduler could do beyond that (gangs, workflows, sleep) an extender cannot: it sees one pod at a time and binds none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web

from wattflow.kube import accounting, objects
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.scheduler import Scheduler

HIGHEST = 10
"""The highest score of an extender; kube-scheduler multiplies it by ten times the extender's weight."""
# 5,000 nodes in full are some tens of megabytes, where the extender is not marked
# `nodeCacheCapable`.
_MOST_BYTES = 64 << 20


class NodeList(msgspec.Struct):
    """Nodes in full, as they come where the extender is not marked ``nodeCacheCapable``."""

    items: list[objects.Node] = []


class ExtenderCall(msgspec.Struct):
    """Carry kube-scheduler's question: a pod, and the nodes that passed its own filters."""

    # Capital letters: the Go structs of extender/v1 have no JSON tags.
    Pod: objects.Pod
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """Return the nodes' names, whichever way they came."""
        if self.NodeNames is not None:
            return self.NodeNames
        return [node.metadata.name for node in self.Nodes.items] if self.Nodes is not None else []


def scores(costs: Mapping[str, float], names: Iterable[str]) -> dict[str, int]:
    """Turn costs into scores: the cheapest nodes get 10, others 0 … 9 in between; 0 where the policy would not go."""
    asked = {name: costs.get(name, math.inf) for name in names}
    known = [cost for cost in asked.values() if math.isfinite(cost)]
    if not known:
        return dict.fromkeys(asked, 0)
    best, worst = min(known), max(known)
    return {name: _score(cost, best, worst) for name, cost in asked.items()}


def _score(cost: float, best: float, worst: float) -> int:
    if not math.isfinite(cost):
        return 0
    # Only the cheapest reach 10: after rounding, a node that is nearly as cheap must not tie with the
    # policy's choice.
    return HIGHEST if cost == best else min(HIGHEST - 1, int(HIGHEST * (worst - cost) / (worst - best)))


def over_cap(scheduler: Scheduler, pod: objects.Pod, names: Iterable[str]) -> dict[str, str]:
    """Return the nodes where the pod would break a power cap, with the reason."""
    cpu = accounting.pod_requests(pod).get(accounting.CPU, 0)
    cap_w, watts = scheduler.settings.cluster_cap_w, scheduler.watts
    drawn_w = watts.cluster_w(scheduler.book.cluster) if cap_w is not None else 0.0
    found = {}
    for name in names:
        view = scheduler.book.cluster.nodes.get(name)
        # Not told yet by our watch: kube-scheduler may know it, and a node without a known cap breaks none.
        if view is None:
            continue
        room = watts.capped(name, view.allocatable).get(accounting.CPU, 0)
        if view.requested.get(accounting.CPU, 0) + cpu > room:
            found[name] = "the node's power cap"
        elif cap_w is not None and drawn_w + (watts.added_w(view, cpu) or 0.0) > cap_w:
            found[name] = "the cluster's power cap"
    return found


def routes(scheduler: Scheduler) -> list[web.RouteDef]:
    """Return the two verbs, ``filter`` and ``prioritize``, below ``/extender``."""

    async def filter_nodes(request: web.Request) -> web.Response:
        asked = await _asked(request)
        failed = over_cap(scheduler, asked.Pod, asked.names)
        kept = [name for name in asked.names if name not in failed]
        # `Error` is for failures as a whole, which would keep the pod pending; empty means none.
        result: dict[str, object] = {"FailedNodes": failed, "Error": ""}
        if asked.NodeNames is not None:
            result["NodeNames"] = kept
        else:
            left = set(kept)
            # in full and as they came, fields that we do not read included
            raw = msgspec.json.decode(await request.read()).get("Nodes") or {}
            result["Nodes"] = {**raw, "items": [one for one in raw.get("items", []) if one["metadata"]["name"] in left]}
        return _json(result)

    async def prioritize(request: web.Request) -> web.Response:
        asked = await _asked(request)
        decider, now_s = scheduler.decider, scheduler.clock()
        assert isinstance(decider, EngineDecider)
        scheduler.book.flush(now_s)
        pod = _without_preferences(asked.Pod)
        # No rules between pods: kube-scheduler has filtered already.
        wanted = Wanted(pod, accounting.pod_requests(pod), None, scheduler.estimates.of(pod))
        began_s = scheduler.clock()
        found = scores(decider.costs(wanted, now_s), asked.names)
        scheduler.metrics.algorithm_s.observe(scheduler.clock() - began_s)
        return _json([{"Host": name, "Score": score} for name, score in found.items()])

    return [web.post("/extender/filter", filter_nodes), web.post("/extender/prioritize", prioritize)]


async def _asked(request: web.Request) -> ExtenderCall:
    try:
        return msgspec.json.decode(await request.read(), type=ExtenderCall)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"not the arguments of an extender: {error}") from error


def _without_preferences(pod: objects.Pod) -> objects.Pod:
    """Return the pod without its preferred nodes: kube-scheduler scores those itself."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return pod
    nodes = msgspec.structs.replace(affinity.node_affinity, preferred=[])
    kept = msgspec.structs.replace(affinity, node_affinity=nodes)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=kept))


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def application() -> web.Application:
    """Make an application that takes lists of all nodes of a large cluster."""
    return web.Application(client_max_size=_MOST_BYTES)
