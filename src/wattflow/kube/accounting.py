"""Account for what a pod takes from a node: init containers, sidecars, overhead, pod-level resources and resize.

The rules are the API's own (KEP-753 for sidecars, KEP-1287 for in-place resize: the larger of what is asked, allocated
and in force counts, unless the resize is infeasible). CPU is in milli-cores, everything else in whole units.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from wattflow.kube import gpus, objects, quantity

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"
Amounts = dict[str, int]
"""Amounts by resource name: ``cpu`` in milli-cores, bytes, or pieces."""
_MOST, _MOST_M = 2**50, 2**40
"""A petabyte, a billion cores: beyond any machine. A pod that asks more counts as this: the engine has 64 bits for all
that is on a node, and counts cores in millionths."""


def amount(name: str, text: str) -> int:
    """Read one quantity in the unit of its resource."""
    return quantity.milli(text) if name == CPU else quantity.whole(text)


def cores(taken: Mapping[str, int], otherwise_m: int = 0) -> float:
    """Return CPU as the engine and power curves count it: milli-cores here, cores there, and no third form."""
    return taken.get(CPU, otherwise_m) / 1000


def amounts(raw: Mapping[str, str]) -> Amounts:
    """Read a resource list in our units."""
    return {name: amount(name, text) for name, text in raw.items()}


def pod_requests(pod: objects.Pod) -> Amounts:
    """Tell what the pod takes wherever it runs, one ``pods`` included."""
    spec = pod.spec
    # Annotations may state a GPU share, statuses a resize under way; without any of these only the
    # containers count.
    if not (spec.init_containers or spec.overhead or pod.status.container_statuses or pod.metadata.annotations) and (
        spec.resources is None
    ):
        # A copy, so that no caller can change the cached one.
        return dict(_plain(tuple([tuple(one.resources.requests.items()) for one in spec.containers])))
    total = _containers(pod)
    if spec.resources is not None:
        # Pod-level names replace the containers' sum; names that are not stated at pod level keep it.
        total |= _pod_level(pod, spec.resources)
    _add(total, amounts(spec.overhead))
    # Zeros are left out: equal needs then share one shape of the engine (`EngineDecider._shape`).
    total = within(total)
    total[PODS] = 1
    shared = gpus.wish(pod)
    if shared is not None:
        total[gpus.SHARE] = shared.share_m
    return total


@functools.lru_cache(maxsize=4096)
def _plain(requests: tuple[tuple[tuple[str, str], ...], ...]) -> Amounts:
    """Tell what containers take that are all there is to a pod. Tens of thousands of pods come from few templates."""
    total: Amounts = {}
    for one in requests:
        _add(total, amounts(dict(one)))
    return within(total) | {PODS: 1}


def within(total: Amounts) -> Amounts:
    """Return what a node accounts for, no more of each than can be counted."""
    return {
        name: min(value, _MOST_M if name == CPU else _MOST)
        for name, value in total.items()
        if value > 0 and counted(name)
    }  # fmt: skip


def counted(name: str) -> bool:
    """Tell whether a node accounts for this resource: the native three, huge pages, and extended resources."""
    if name in (CPU, MEMORY, EPHEMERAL) or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in name and not name.startswith("requests.")


def node_allocatable(node: objects.Node) -> Amounts:
    """Tell what pods on the node may take together."""
    offered = amounts(node.status.allocatable)
    found = {name: value for name, value in offered.items() if counted(name) or name == PODS}
    if CPU in found:
        found[CPU] = min(found[CPU], _MOST_M)
    shared, _ = gpus.offered(node)
    return found | {gpus.SHARE: shared * gpus.WHOLE} if shared else found


def _containers(pod: objects.Pod) -> Amounts:
    """Sum the requests of all containers: the sum that runs, or the most that starting up needs."""
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    infeasible = _resize_infeasible(pod)
    total: Amounts = {}
    for container in pod.spec.containers:
        _add(total, _effective(container, statuses.get(container.name), infeasible))
    sidecars: Amounts = {}
    starting: Amounts = {}
    # In the order in which they start: an init container runs beside the sidecars before it only.
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            needs = _effective(container, statuses.get(container.name), infeasible)
            # A sidecar counts twice: it runs on with the containers, and it is there while later init
            # containers start.
            _add(total, needs)
            _add(sidecars, needs)
            _most(starting, sidecars)
        else:
            needs = amounts(container.resources.requests)
            _add(needs, sidecars)
            _most(starting, needs)
    _most(total, starting)
    return total


def _effective(container: objects.Container, status: objects.ContainerStatus | None, infeasible: bool) -> Amounts:
    """Return a container's requests while a resize may be under way."""
    asked = amounts(container.resources.requests)
    if status is None or status.resources is None:
        return asked
    # An infeasible resize will not be carried out, so what is asked counts for nothing (KEP-1287).
    most: Amounts = {} if infeasible else asked
    _most(most, amounts(status.resources.requests))
    _most(most, amounts(status.allocated_resources))
    return most


def _pod_level(pod: objects.Pod, needs: objects.ResourceNeeds) -> Amounts:
    """Return pod-level requests, which stand in place of the containers' sum."""
    asked = {name: value for name, value in amounts(needs.requests).items() if _pod_level_name(name)}
    if pod.status.resources is None:
        return asked
    most: Amounts = {} if _resize_infeasible(pod) else dict(asked)
    _most(most, amounts(pod.status.resources.requests))
    _most(most, amounts(pod.status.allocated_resources))
    # Only what is stated at pod level: a status may list more, which the containers' sum covers
    # already.
    return {name: most.get(name, 0) for name in asked}


def _pod_level_name(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _resize_infeasible(pod: objects.Pod) -> bool:
    pending = [one for one in pod.status.conditions if one.type == "PodResizePending"]
    return bool(pending) and pending[0].reason == "Infeasible"


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _most(total: Amounts, other: Amounts) -> None:
    for name, value in other.items():
        if value > total.get(name, 0):
            total[name] = value
