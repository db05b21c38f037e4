"""Scores are kube-scheduler's: generated cases against a second implementation, and who is offered which nodes."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from wattflow.kube import accounting, objects
from wattflow.kube.book import Book
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters.snapshot import NodeView, Snapshot
from wattflow.kube.scores import score_points as points
from wattflow.kube.scores.node_offers import Offers

from . import score_reference as reference
from .making import node, pod

KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack")
Json = dict[str, Any]
MOMENTS = itertools.count(1)


def drawn_term(draw: random.Random) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": draw.choice("xyz")}}, "topologyKey": draw.choice(KEYS)}
    return term | ({"namespaces": ["default", "other"]} if draw.random() < 0.3 else {})


def drawn_affinity(draw: random.Random) -> Json:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    found: Json = {}
    if draw.random() < 0.4:
        terms = [
            {"weight": draw.randint(1, 100), "podAffinityTerm": drawn_term(draw)} for _ in range(draw.randint(1, 2))
        ]
        found[draw.choice(["podAffinity", "podAntiAffinity"])] = {preferred: terms}
    if draw.random() < 0.2:
        found.setdefault("podAffinity", {})["requiredDuringSchedulingIgnoredDuringExecution"] = [drawn_term(draw)]
    if draw.random() < 0.4:
        asked = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [draw.choice("pq")]}]}
        found["nodeAffinity"] = {preferred: [{"weight": draw.randint(1, 100), "preference": asked}]}
    return found


def drawn_pod(draw: random.Random, name: str, where: str) -> Json:
    requests = {"cpu": f"{draw.choice([100, 300, 700])}m", "memory": str(draw.choice([1, 3]) << 28)}
    if draw.random() < 0.3:
        del requests[draw.choice(["cpu", "memory"])]
    about = {"name": name, "namespace": draw.choice(["default", "default", "other"]), "uid": name,
             "labels": {"app": draw.choice("xyz")}}  # fmt: skip
    if where and draw.random() < 0.1:
        about["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: Json = {"nodeName": where, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    affinity = drawn_affinity(draw)
    if not where:  # what must be near keeps the newcomer off nodes, which is the filters' business
        affinity.get("podAffinity", {}).pop("requiredDuringSchedulingIgnoredDuringExecution", None)
    spec |= {"affinity": affinity} if affinity else {}
    if draw.random() < 0.3:
        spec["tolerations"] = [{"key": "soft", "operator": "Exists", "effect": draw.choice(["", "PreferNoSchedule"])}]
    if draw.random() < 0.4:
        spec["topologySpreadConstraints"] = [
            {"topologyKey": draw.choice(KEYS), "maxSkew": draw.randint(1, 4), "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": draw.choice("xyz")}}}
            for _ in range(draw.randint(1, 2))
        ]  # fmt: skip
    return {"metadata": about, "spec": spec, "status": {}}


def drawn_node(draw: random.Random, name: str) -> Json:
    labels = {"kubernetes.io/hostname": name}
    labels |= {"topology.kubernetes.io/zone": draw.choice("abc")} if draw.random() < 0.9 else {}
    labels |= {"rack": draw.choice("pq")} if draw.random() < 0.8 else {}
    taints = [
        {"key": draw.choice(["soft", "mild"]), "effect": "PreferNoSchedule"} for _ in range(draw.choice([0, 0, 1, 2]))
    ]
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}, "status": {"allocatable": room}}


@pytest.mark.parametrize("seed", range(120))
def test_totals_are_those_of_a_second_implementation(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [drawn_node(draw, f"n{i}") for i in range(draw.randint(2, 7))]
    pods = [drawn_pod(draw, f"p{i}", draw.choice(nodes)["metadata"]["name"]) for i in range(draw.randint(0, 15))]
    newcomer = drawn_pod(draw, "new", "")
    selector = {"matchLabels": {"app": newcomer["metadata"]["labels"]["app"]}} if draw.random() < 0.6 else None
    made = [msgspec.convert(one, objects.Pod) for one in pods]
    cluster = Snapshot.of([msgspec.convert(one, objects.Node) for one in nodes], made)
    offers = Offers(cluster, joules=0.0)
    for view in cluster.nodes.values():
        offers.on_node("ADDED", view.node)
    for one in made:
        offers.placed(one, one.spec.node_name)
    if selector is not None:
        service = {"metadata": {"name": "s", "namespace": newcomer["metadata"]["namespace"]},
                   "spec": {"selector": selector["matchLabels"]}}  # fmt: skip
        offers.replicas.on_service("ADDED", msgspec.convert(service, objects.Service))
    asked = msgspec.convert(newcomer, objects.Pod)
    views = list(cluster.nodes.values())
    for _ in range(2):  # the second time from what was counted
        offers.table.refresh()
        given = offers.scores(asked, accounting.pod_requests(asked), np.arange(len(views)))
        ours = [sum(weight * found[i] for weight, found in given) for i in range(len(views))]
        theirs = reference.totals(newcomer, nodes, nodes, pods, selector)
        assert [one - ours[0] for one in ours] == [one - theirs[0] for one in theirs]


def replica(number: int, owner: str = "web-1", where: str = "", **more: Any) -> objects.Pod:
    made = pod(f"{owner}-{number}", where, {"app": "web"}, **({"schedulerName": "ours", "cpu": "100m"} | more))
    of = objects.OwnerReference(kind="ReplicaSet", name=owner, uid=owner, api_version="apps/v1", controller=True)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=[of]))


def replica_set(name: str = "web-1") -> objects.Replicas:
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}},
        objects.Replicas,
    )


def cluster_of_eight(joules: float, policy: str = "most-allocated", **kinds: Json) -> tuple[Book, EngineDecider]:
    decider = EngineDecider(policy)
    book = Book(decider, owns=lambda one: one.spec.scheduler_name == "ours", power_of=lambda one: None)
    book.offers.joules = joules
    book.offers.replicas.followed = True
    for i in range(8):
        name = f"n{i}"
        book.on_node("ADDED", node(name, {"topology.kubernetes.io/zone": "abc"[i // 3]}, **kinds.get(name, {})))
    return book, decider


def placed(book: Book, decider: EngineDecider, rounds: int = 40) -> dict[str, str]:
    """Rounds as the scheduler has them, until nobody waits for a turn."""
    found = {}
    for _ in range(rounds):
        now_s = next(MOMENTS) / 10_000
        book.flush(now_s)
        for choice in decider.step(now_s).choices:
            assert book.assume(choice.uid, choice.node) is None
            found[choice.uid] = choice.node
        if not book.offers.waits(now_s):
            break
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("joules", "nodes"), [(0.0, 8), (0.1, 8), (1.0, 1)])
def test_replicas_spread_over_nodes_and_zones_as_the_dial_says(joules: float, nodes: int) -> None:
    book, decider = cluster_of_eight(joules)
    book.offers.replicas.on_owner("ReplicaSet")("ADDED", replica_set())
    for i in range(8):
        book.on_pod("ADDED", replica(i))
    found = placed(book, decider)
    assert len(found) == 8
    assert len(set(found.values())) == nodes, "the policy alone packs, scores spread"
    if nodes == 8:
        for i in range(8, 11):
            book.on_pod("ADDED", replica(i))
        again = placed(book, decider)
        zones = Counter("abc"[int(name[1:]) // 3] for name in [*found.values(), *again.values()])
        assert sorted(zones.values()) == [3, 4, 4], "the ninth to eleventh are one more in each zone"


@pytest.mark.slow
def test_a_pod_waits_for_its_controller_to_be_seen_but_not_for_ever() -> None:
    book, decider = cluster_of_eight(0.1)
    book.flush(1.0)
    book.on_pod("ADDED", replica(0))
    book.flush(1.1)
    assert decider.step(1.1).choices == []
    assert not book.offers.waits(1.1), "no reason to ask again at once"
    book.offers.replicas.on_owner("ReplicaSet")("ADDED", replica_set())
    assert book.offers.waits(1.2)
    book.on_pod("ADDED", replica(1, "unknown"))
    book.flush(1.2)
    assert [one.uid for one in decider.step(1.2).choices] == ["uid-web-1-0"]
    book.flush(3.3)
    assert [one.uid for one in decider.step(3.3).choices] == ["uid-unknown-1"]


@pytest.mark.slow
def test_soft_taints_and_preferred_nodes_and_neighbours_decide() -> None:
    soft: Json = {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]}
    book, decider = cluster_of_eight(0.1, policy="most-allocated", **{f"n{i}": soft for i in range(7)})
    book.on_pod("ADDED", pod("plain", schedulerName="ours", cpu="1"))
    assert placed(book, decider) == {"uid-plain": "n7"}
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": KEYS[0], "operator": "In", "values": ["n3"]}]}}
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    book.on_pod("ADDED", pod("likes", schedulerName="ours", affinity=likes, tolerations=[{"operator": "Exists"}]))
    assert placed(book, decider) == {"uid-likes": "n3"}
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": KEYS[0]}
    fond = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "podAffinityTerm": near}]}
    }
    book.on_pod("ADDED", pod("web", "n5", {"app": "web"}))
    book.on_pod("ADDED", pod("fond", schedulerName="ours", affinity=fond, tolerations=[{"operator": "Exists"}]))
    assert placed(book, decider) == {"uid-fond": "n5"}


@pytest.mark.slow
def test_preferences_keep_nobody_waiting() -> None:
    """A node that scores best and that the decider does not take is not insisted on."""
    book, decider = cluster_of_eight(0.0)
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": KEYS[0], "operator": "In", "values": ["n3"]}]}}
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    book.flush(0.0)
    decider.set_load("n3", {accounting.CPU: 4000})  # of which the book knows nothing
    book.on_pod("ADDED", pod("likes", schedulerName="ours", cpu="1", affinity=likes))
    assert placed(book, decider) == {}
    book.flush(20.0)
    (choice,) = decider.step(20.0).choices
    assert choice.node != "n3"


@pytest.mark.slow
def test_a_refused_binding_is_not_tried_again_at_once() -> None:
    book, decider = cluster_of_eight(0.1)
    book.offers.replicas.on_owner("ReplicaSet")("ADDED", replica_set())
    book.on_pod("ADDED", replica(0))
    (uid,) = placed(book, decider)
    book.forget(uid, 1.0)
    decider.refused(uid, 5.0)
    book.not_before_s[uid] = 5.0
    book.flush(2.0)
    assert decider.step(2.0).choices == []
    book.flush(5.0)
    assert [one.uid for one in decider.step(5.0).choices] == [uid]


def test_replicas_stay_even_over_zones_whoever_chooses_among_the_offered() -> None:
    """15 pods of a Service on five nodes in three zones: fixed points allow 7 in one zone, 3 in another.

    One pod too many is worth fewer and fewer points the more there are; joules may take any node that is offered.
    """
    service = msgspec.convert(
        {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}, objects.Service
    )
    for seed in range(100):
        draw = random.Random(seed)
        zone_of = {f"n{i}": "abc"[i % 3] for i in range(5)}
        cluster = Snapshot({name: NodeView.of(node(name, {points.ZONE: zone})) for name, zone in zone_of.items()}, {})
        offers = Offers(cluster, joules=0.1)
        offers.replicas.on_service("ADDED", service)
        zones = Counter[str]()
        for i in range(15):
            one = pod(f"w{i}", labels={"app": "web"}, cpu="10m")
            name = draw.choice(offers.nodes(one, accounting.pod_requests(one), None, 0.0) or list(zone_of))
            cluster.nodes[name].add(one)
            zones[zone_of[name]] += 1
        assert max(zones.values()) - min(zones.values()) <= 2, f"seed {seed}: {dict(zones)}"


def test_pods_of_a_service_take_turns_though_each_has_a_label_of_its_own() -> None:
    """As pods of StatefulSets have, and those of Kubernetes' own spec: scored in one step, all would get one node."""
    book, decider = cluster_of_eight(0.1)
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    book.offers.replicas.on_service("ADDED", msgspec.convert(service, objects.Service))
    for i in range(8):
        labels = {"app": "web", "name": f"w{i}"}
        book.on_pod("ADDED", pod(f"w{i}", labels=labels, schedulerName="ours", cpu="100m"))
    nodes = []
    for i in range(8):
        book.flush(1.0 + i / 100)
        (choice,) = decider.step(1.0 + i / 100).choices
        assert book.assume(choice.uid, choice.node) is None
        nodes.append(choice.node)
    assert len(set(nodes)) == 8 and not book.waiting


def test_numbers_that_are_kept_follow_every_change() -> None:
    """Pods that come and go, labels, taints, room, nodes that leave: always as if all were counted anew."""
    draw = random.Random(7)
    cluster = Snapshot({}, {})
    kept = Offers(cluster, joules=0.1)
    for number in range(300):
        name = f"n{draw.randrange(6)}"
        view = cluster.nodes.get(name)
        match draw.randrange(5):
            case 0 if view is not None and len(cluster.nodes) > 2:
                del cluster.nodes[name]
            case 1 if view is not None and view.pods:
                view.remove(draw.choice(list(view.pods)))
            case 2 if view is not None:
                view.node = node(name, {points.ZONE: draw.choice("ab")}, unschedulable=draw.random() < 0.3)
            case _ if view is not None:
                view.add(pod(f"p{number}", name, {"app": draw.choice(["web", "other"])}, cpu=draw.choice(["1", "2"])))
            case _:
                made = node(name, {points.ZONE: draw.choice("ab")} if draw.random() < 0.8 else {})
                cluster.nodes[name] = NodeView.of(made)
        asked = replica(number)
        anew = Offers(cluster, joules=0.1)
        for offers in (kept, anew):
            offers.replicas.on_owner("ReplicaSet")("ADDED", replica_set())
        amounts = accounting.pod_requests(asked)
        assert kept.nodes(asked, amounts, None, 0.0) == anew.nodes(asked, amounts, None, 0.0)
