"""Each filter with the smallest case for and against; generated cases run against kube-scheduler in `make parity`."""

from __future__ import annotations

import random

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.filters import spread as spreading
from wattflow.kube.filters.feasible import feasible
from wattflow.kube.filters.snapshot import NodeView, Snapshot
from wattflow.kube.filters.volumes import Storage

from .making import node, pod, storage

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


def nodes_for(one: objects.Pod, nodes: list[objects.Node], pods: list[objects.Pod] = []) -> list[str]:  # noqa: B006
    found = feasible(one, Snapshot.of(nodes, pods))
    return [name for name, reason in found.items() if reason is None]


def test_cordoned_nodes_take_only_those_who_tolerate_it() -> None:
    nodes = [node("a", unschedulable=True), node("b")]
    assert nodes_for(pod(), nodes) == ["b"]
    tolerant = pod(tolerations=[{"operator": "Exists"}])
    assert nodes_for(tolerant, nodes) == ["a", "b"]


def test_taints_by_effect_key_and_value() -> None:
    nodes = [node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
             node("b", taints=[{"key": "k", "effect": "PreferNoSchedule"}])]  # fmt: skip
    assert nodes_for(pod(), nodes) == ["b"]
    assert nodes_for(pod(tolerations=[{"key": "k", "value": "v"}]), nodes) == ["a", "b"]
    assert nodes_for(pod(tolerations=[{"key": "k", "value": "w"}]), nodes) == ["b"]
    assert nodes_for(pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}]), nodes) == ["b"]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd"]}, ["a"]),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, ["b", "c"]),
        ({"key": "disk", "operator": "Exists"}, ["a", "b"]),
        ({"key": "disk", "operator": "DoesNotExist"}, ["c"]),
        ({"key": "size", "operator": "Gt", "values": ["5"]}, ["b"]),
        ({"key": "size", "operator": "Lt", "values": ["10"]}, ["a"]),
    ],
)
def test_node_affinity_operators(expression: dict[str, object], found: list[str]) -> None:
    nodes = [node("a", {"disk": "ssd", "size": "3"}), node("b", {"disk": "hdd", "size": "10"}), node("c")]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert nodes_for(pod(affinity=affinity), nodes) == found


def test_terms_are_alternatives_and_an_empty_one_selects_nothing() -> None:
    nodes = [node("a"), node("b"), node("c")]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}, {}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert nodes_for(pod(affinity=affinity), nodes) == ["b"]


def test_node_selector() -> None:
    assert nodes_for(pod(nodeSelector={"disk": "ssd"}), [node("a"), node("b", {"disk": "ssd"})]) == ["b"]


def with_port(name: str, ip: str = "", where: str = "", protocol: str = "TCP") -> objects.Pod:
    port = {"hostPort": 80, "hostIP": ip, "protocol": protocol}
    return pod(name, where, containers=[{"name": "c", "ports": [port]}])


def test_host_ports_collide_on_the_same_or_on_all_addresses() -> None:
    nodes = [node("a"), node("b")]
    assert nodes_for(with_port("new", "10.0.0.1"), nodes, [with_port("old", "10.0.0.2", "a")]) == ["a", "b"]
    assert nodes_for(with_port("new", ""), nodes, [with_port("old", "10.0.0.2", "a")]) == ["b"]
    assert nodes_for(with_port("new", "10.0.0.1"), nodes, [with_port("old", "", "a")]) == ["b"]
    assert nodes_for(with_port("new", "", protocol="UDP"), nodes, [with_port("old", "", "a")]) == ["a", "b"]


def test_resources_count_everybodys_pods_and_the_number_of_pods() -> None:
    nodes = [node("a"), node("b", allocatable={"pods": "1"})]
    others = [pod("x", "a", cpu="3", schedulerName="another"), pod("y", "b")]
    assert nodes_for(pod(cpu="1"), nodes, others) == ["a"]
    assert nodes_for(pod(cpu="1001m"), nodes, others) == []
    assert nodes_for(pod(cpu="1001m"), nodes, [pod("x", "a", cpu="3", status={"phase": "Succeeded"})]) == ["a", "b"]


def test_extended_resource_that_a_node_lacks() -> None:
    asks = pod(containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}])
    assert nodes_for(asks, [node("a"), node("b", allocatable={"nvidia.com/gpu": "1"})]) == ["b"]


def term(**labels: str) -> dict[str, object]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}


def anti(**labels: str) -> dict[str, object]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(**labels)]}}


ZONED = [node("a", {"zone": "1"}), node("b", {"zone": "2"}), node("c")]


def test_anti_affinity_counts_both_ways() -> None:
    runs = [pod("x", "a", {"app": "db"})]
    assert nodes_for(pod(affinity=anti(app="db")), ZONED, runs) == ["b", "c"]
    shy = [pod("x", "a", {"app": "db"}, affinity=anti(app="web"))]
    assert nodes_for(pod(labels={"app": "web"}), ZONED, shy) == ["b", "c"]


def test_affinity_follows_and_the_first_of_a_series_may_start() -> None:
    wish = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(app="db")]}}
    assert nodes_for(pod(affinity=wish), ZONED, [pod("x", "b", {"app": "db"})]) == ["b"]
    assert nodes_for(pod(affinity=wish), ZONED) == []
    assert nodes_for(pod(labels={"app": "db"}, affinity=wish), ZONED) == ["a", "b"]


def spread(**more: object) -> list[dict[str, object]]:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return [base | {"labelSelector": {"matchLabels": {"app": "w"}}} | more]


def test_topology_spread_keeps_the_skew() -> None:
    runs = [pod("x", "a", {"app": "w"})]
    new = pod(labels={"app": "w"}, topologySpreadConstraints=spread())
    assert nodes_for(new, ZONED, runs) == ["b"]
    assert nodes_for(new, ZONED, []) == ["a", "b"]
    new = pod(labels={"app": "w"}, topologySpreadConstraints=spread(minDomains=3))
    assert nodes_for(new, ZONED, runs) == ["b"]
    new = pod(labels={"app": "w"}, topologySpreadConstraints=spread(maxSkew=2))
    assert nodes_for(new, ZONED, runs) == ["a", "b"]


def test_what_is_not_supported_is_refused_and_said() -> None:
    found = feasible(pod(volumes=[{"name": "v", "csi": {"driver": "d"}}]), Snapshot.of([node("a")], []))
    assert found == {"a": "a volume of kind csi is not supported by this scheduler"}
    found = feasible(pod(volumes=[CLAIM]), Snapshot.of([node("a")], []))
    assert "not read yet" in str(found["a"])
    assert nodes_for(pod(volumes=[{"name": "v", "emptyDir": {}}]), [node("a")]) == ["a"]
    assert nodes_for(pod(resourceClaims=[{"name": "r"}]), [node("a")]) == []


@pytest.mark.parametrize(
    ("known", "allowed"),
    [
        (storage(), ["b"]),
        (storage(nfs={"server": "s"}), ["a", "b"]),
        (storage(hostPath={}, labels={"topology.kubernetes.io/zone": "z1__z3"}), ["a"]),
        (storage(hostPath={}, labels={"failure-domain.beta.kubernetes.io/zone": "z2"}), ["b"]),
        (storage(hostPath={}, labels={"topology.kubernetes.io/region": "r"}), []),
    ],
)
def test_a_bound_claim_goes_where_its_volume_is(known: Storage, allowed: list[str]) -> None:
    nodes = [node("a", {"topology.kubernetes.io/zone": "z1"}), node("b", {"topology.kubernetes.io/zone": "z2"})]
    found = feasible(pod(volumes=[CLAIM]), Snapshot.of(nodes, [], (), known))
    assert [name for name, why in found.items() if why is None] == allowed


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (Storage(), "does not exist"),
        (storage("Pending"), "not bound"),
        (storage("Lost"), "not there"),
        (Storage(storage().claims), "not there"),
        (storage(rbd={"image": "i"}), "kind that is not supported"),
    ],
)
def test_a_claim_that_we_cannot_serve_is_refused_with_the_reason(known: Storage, why: str) -> None:
    (found,) = feasible(pod(volumes=[CLAIM]), Snapshot.of([node("b")], [], (), known)).values()
    assert why in str(found)


def csi(count: int | None) -> Storage:
    """A claim whose volume is a CSI driver's, and node b, to which that may attach so many."""
    known = storage(csi={"driver": "d", "volumeHandle": "new"})
    limit = {"name": "d", "allocatable": {"count": count}} if count is not None else {"name": "d"}
    node_of = msgspec.convert({"metadata": {"name": "b"}, "spec": {"drivers": [limit]}}, objects.CsiNode)
    other = {"metadata": {"name": "o", "namespace": "default"}, "spec": {"volumeName": "old"}}
    old = {"metadata": {"name": "old"}, "spec": {"csi": {"driver": "d", "volumeHandle": "old"}}}
    source = {"persistentVolumeName": "loose"}
    there = {"metadata": {"name": "va"}, "spec": {"attacher": "d", "nodeName": "b", "source": source}}
    loose = {"metadata": {"name": "loose"}, "spec": {"csi": {"driver": "d", "volumeHandle": "loose"}}}
    return Storage.of(
        [*known.claims.values(), msgspec.convert(other, objects.PersistentVolumeClaim)],
        [*known.volumes.values(), *(msgspec.convert(one, objects.PersistentVolume) for one in (old, loose))],
        [node_of],
        [msgspec.convert(there, objects.VolumeAttachment)],
    )


@pytest.mark.parametrize(("count", "why"), [(None, None), (3, None), (2, "volume limit")])
def test_a_csi_driver_attaches_no_more_volumes_than_it_may(count: int | None, why: str | None) -> None:
    """One is used by a pod there, one is attached and used by nobody: the new one is the third."""
    runs = pod("runs", "b", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "o"}}])
    found = feasible(pod(volumes=[CLAIM]), Snapshot.of([node("b")], [runs], (), csi(count)))
    assert found == {"b": why}
    if count == 2:
        unclear = pod("unclear", "b", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "x"}}])
        found = feasible(pod(volumes=[CLAIM]), Snapshot.of([node("b")], [unclear], (), csi(count)))
        assert found == {"b": "volumes that cannot be counted"}


def test_a_claim_for_one_pod_alone_waits_until_no_other_uses_it() -> None:
    known = storage(modes=("ReadWriteOncePod",))
    runs = pod("runs", "a", volumes=[CLAIM])
    nodes = [node("a"), node("b")]
    found = feasible(pod(volumes=[CLAIM]), Snapshot.of(nodes, [runs], (), known))
    assert set(found.values()) == {"claim in use by another pod"}
    assert feasible(pod(volumes=[CLAIM]), Snapshot.of(nodes, [], (), known))["b"] is None


def drawn_node(draw: random.Random, name: str) -> objects.Node:
    zone = draw.choice(["a", "b", None])
    taints = [{"key": "k", "effect": "NoSchedule"}] if draw.random() < 0.3 else []
    return node(name, {"zone": zone} if zone else {}, taints=taints)


def drawn_pod(draw: random.Random, name: str, where: str) -> objects.Pod:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": draw.choice("xy")}}}
    shy = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return pod(name, where, {"app": draw.choice("xy")}, **(shy if draw.random() < 0.2 else {}))


@pytest.mark.parametrize("seed", range(20))
def test_counts_that_are_kept_follow_every_change(seed: int) -> None:
    """Nodes come, go and change, pods too: what was counted before is as good as counted anew."""
    draw = random.Random(seed)
    spreads = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy,
         "labelSelector": {"matchLabels": {"app": "x"}}}
        for key, policy in (("zone", "Honor"), ("kubernetes.io/hostname", "Ignore"))
    ]  # fmt: skip
    asked = [pod("q", labels={"app": "x"}, topologySpreadConstraints=spreads[:count]) for count in (1, 2)]
    asked.append(pod("r", labels={"app": "y"}, topologySpreadConstraints=spreads, tolerations=[{"operator": "Exists"}]))
    cluster = Snapshot.of([drawn_node(draw, f"n{i}") for i in range(4)], [])
    for step in range(60):
        name = f"n{draw.randrange(6)}"
        view = cluster.nodes.get(name)
        if view is None:
            cluster.nodes[name] = NodeView.of(drawn_node(draw, name))
        elif (act := draw.randrange(5)) == 0:
            del cluster.nodes[name]
        elif act == 1:
            view.node = drawn_node(draw, name)
        elif act == 2 and view.pods:
            view.remove(draw.choice(sorted(view.pods)))
        else:
            view.add(drawn_pod(draw, f"p{step}", name))
        anew = Snapshot({key: one.copy() for key, one in cluster.nodes.items()})
        one = draw.choice(asked)
        assert feasible(one, cluster) == feasible(one, anew)
        found, fresh = spreading.spreads(one, cluster), spreading.spreads(one, anew)
        assert [some.per_domain for some in found] == [some.per_domain for some in fresh]


def test_few_kinds_of_pods_are_kept_and_one_change_counts_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    matching = spreading.matching

    def noted(view: NodeView, selector: objects.LabelSelector | None, namespace: str) -> int:
        looks.append(view.node.metadata.name)
        return matching(view, selector, namespace)

    monkeypatch.setattr(spreading, "matching", noted)
    cluster = Snapshot.of([node(f"n{i}") for i in range(5)], [])
    one = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
           "labelSelector": {"matchLabels": {"app": "x"}}}  # fmt: skip
    asked = pod(labels={"app": "x"}, topologySpreadConstraints=[one])
    spreading.spreads(asked, cluster)
    assert len(looks) == 5
    cluster.nodes["n3"].add(pod("p", "n3", {"app": "x"}))
    assert spreading.spreads(asked, cluster)[0].per_domain["n3"] == 1
    assert looks[5:] == ["n3"]
    for i in range(100):
        spreading.spreads(pod(labels={"app": "x"}, topologySpreadConstraints=[one | {"maxSkew": i + 1}]), cluster)
    assert len(cluster.counted) <= 64
