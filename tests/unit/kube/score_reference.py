"""kube-scheduler's score plugins once more, over raw API objects, for comparison; shares no code with the product.

Only what the generated cases use: In and Exists, matchLabels, one container per pod with requests in whole units.
"""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]


def meets(selector: Json | None, labels: Json) -> bool:
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", []):
        there = one["key"] in labels
        if one["operator"] == "Exists" and not there:
            return False
        if one["operator"] == "In" and (not there or labels[one["key"]] not in one["values"]):
            return False
    return True


def labels_of(thing: Json) -> Json:
    return thing["metadata"].get("labels", {})


def scaled(raw: list[int], reverse: bool) -> list[int]:
    top = max(raw)
    if top == 0:
        return [100 if reverse else 0 for _ in raw]
    return [100 - 100 * one // top if reverse else 100 * one // top for one in raw]


def taint_toleration(pod: Json, nodes: list[Json]) -> list[int]:
    def tolerated(taint: Json) -> bool:
        for one in pod["spec"].get("tolerations", []):
            if one.get("effect", "") not in ("", "PreferNoSchedule"):
                continue
            if one.get("key", "") in ("", taint["key"]) and (
                one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
            ):
                return True
        return False

    raw = []
    for node in nodes:
        soft = [one for one in node["spec"].get("taints", []) if one["effect"] == "PreferNoSchedule"]
        raw.append(len([one for one in soft if not tolerated(one)]))
    return scaled(raw, True)


def node_affinity(pod: Json, nodes: list[Json]) -> list[int]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    wishes = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    raw = [sum(w["weight"] for w in wishes if meets(w["preference"], labels_of(node))) for node in nodes]
    return scaled(raw, False)


def alike(pods: list[Json], node: Json, selector: Json, namespace: str) -> int:
    return len([
        one for one in pods
        if one["spec"]["nodeName"] == node["metadata"]["name"] and one["metadata"]["namespace"] == namespace
        and meets(selector, labels_of(one)) and not one["metadata"].get("deletionTimestamp")
    ])  # fmt: skip


def topology_spread(
    pod: Json, nodes: list[Json], everything: list[Json], pods: list[Json], selector: Json | None
) -> Any:
    own = pod["spec"].get("topologySpreadConstraints", [])
    strict = bool(own)
    if own:
        rules = [one for one in own if one["whenUnsatisfiable"] == "ScheduleAnyway"]
    elif selector:
        rules = [
            {"topologyKey": "kubernetes.io/hostname", "maxSkew": 3, "labelSelector": selector},
            {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "labelSelector": selector},
        ]
    else:
        rules = []
    if not rules:
        return None
    space = pod["metadata"]["namespace"]

    def whole(node: Json) -> bool:
        return all(rule["topologyKey"] in labels_of(node) for rule in rules)

    ignored = {node["metadata"]["name"] for node in nodes if strict and not whole(node)}
    raw: dict[str, int] = {}
    for node in nodes:
        name, total = node["metadata"]["name"], 0.0
        if name in ignored:
            continue
        for rule in rules:
            key = rule["topologyKey"]
            if key not in labels_of(node):
                continue
            rest = [one for one in nodes if one["metadata"]["name"] not in ignored]
            if key == "kubernetes.io/hostname":
                size, count = len(rest), alike(pods, node, rule["labelSelector"], space)
            else:
                size = len({labels_of(one).get(key, "") for one in rest})
                count = sum(
                    alike(pods, one, rule["labelSelector"], space)
                    for one in everything
                    if (not strict or whole(one)) and labels_of(one).get(key, "") == labels_of(node)[key]
                )
            total += count * math.log(size + 2) + rule["maxSkew"] - 1
        raw[name] = math.floor(total + 0.5)
    top, low = max(raw.values(), default=0), min(raw.values(), default=0)
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        found.append(0 if name in ignored else 100 if top == 0 else 100 * (top + low - raw[name]) // top)
    return found


def inter_pod(pod: Json, nodes: list[Json], everything: list[Json], pods: list[Json]) -> list[int]:
    def terms(one: Json, kind: str) -> list[Json]:
        wishes = one["spec"].get("affinity", {}).get(kind, {})
        return wishes.get("preferredDuringSchedulingIgnoredDuringExecution", [])

    def speaks(term: Json, owner: Json, other: Json) -> bool:
        spaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
        return other["metadata"]["namespace"] in spaces and meets(term["labelSelector"], labels_of(other))

    by_name = {one["metadata"]["name"]: one for one in everything}
    sums = {node["metadata"]["name"]: 0 for node in nodes}

    def note(term: Json, at: Json, weight: int) -> None:
        value = labels_of(at).get(term["topologyKey"])
        for node in nodes:
            if value is not None and labels_of(node).get(term["topologyKey"]) == value:
                sums[node["metadata"]["name"]] += weight

    for other in pods:
        at = by_name[other["spec"]["nodeName"]]
        for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
            for mine, owner, about in ((terms(pod, kind), pod, other), (terms(other, kind), other, pod)):
                for one in mine:
                    if speaks(one["podAffinityTerm"], owner, about):
                        note(one["podAffinityTerm"], at, sign * one["weight"])
        hard = other["spec"].get("affinity", {}).get("podAffinity", {})
        for term in hard.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            if speaks(term, other, pod):
                note(term, at, 1)
    low, top = min(sums.values()), max(sums.values())
    return [int(100 * ((one - low) / (top - low))) if top > low else 0 for one in sums.values()]


def resources(pod: Json, nodes: list[Json], pods: list[Json]) -> tuple[list[int], list[int]]:
    usual = {"cpu": 100, "memory": 200 * 1024 * 1024}

    def asks(one: Json, default: bool) -> dict[str, int]:
        requests = one["spec"]["containers"][0]["resources"]["requests"]
        found = {"cpu": int(requests.get("cpu", "0").rstrip("m") or 0), "memory": int(requests.get("memory", "0"))}
        return {key: usual[key] if default and key not in requests else value for key, value in found.items()}

    least, even = [], []
    for node in nodes:
        there = [one for one in pods if one["spec"]["nodeName"] == node["metadata"]["name"]]
        room = {"cpu": 4000, "memory": 8 << 30}
        free = 0
        for key, whole in room.items():
            used = sum(asks(one, True)[key] for one in [*there, pod])
            free += (whole - used) * 100 // whole if used <= whole else 0
        least.append(free // 2)

        def balance(several: list[Json], room: dict[str, int] = room) -> int:
            parts = [min(1.0, sum(asks(one, False)[key] for one in several) / whole) for key, whole in room.items()]
            return int((1 - abs(parts[0] - parts[1]) / 2) * 100)

        even.append(50 + (50 + balance([*there, pod]) - balance(there)) // 2)
    if not any(asks(pod, False).values()):
        even = [0] * len(nodes)
    return least, even


def totals(pod: Json, nodes: list[Json], everything: list[Json], pods: list[Json], selector: Json | None) -> list[int]:
    """What kube-scheduler would add up for each feasible node, but for images."""
    least, even = resources(pod, nodes, pods)
    spread = topology_spread(pod, nodes, everything, pods, selector) or [0] * len(nodes)
    taints, near = taint_toleration(pod, nodes), node_affinity(pod, nodes)
    between = inter_pod(pod, nodes, everything, pods)
    return [
        3 * taints[i] + 2 * near[i] + 2 * spread[i] + 2 * between[i] + least[i] + even[i] for i in range(len(nodes))
    ]
