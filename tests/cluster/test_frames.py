"""A frame as a service on a real API server: several processes, nothing promised twice, work stolen, gangs whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kuberig.api import JSON
from our_scheduler import SOURCES, OurScheduler
from test_scheduler import bound
from test_scheduler_safety import SMALL, requested, small
from under_test import Cluster

FRAMES = Path(__file__).resolve().parents[2] / "experiments" / "kube_frames"
PLACER = "wattflow.io/placer"


def frame(cluster: Cluster, name: str) -> OurScheduler:
    """All processes of a frame, started by one command."""
    return OurScheduler(cluster.own(), "fifo", more=["--frame", str(FRAMES / f"{name}.toml")])


def decided(pods: list[JSON]) -> Counter[int]:
    """How many pods each placer bound."""
    notes = (one["metadata"]["annotations"]["wattflow.io/decision"] for one in pods if bound(one))
    return Counter(json.loads(note)["placer"] for note in notes)


def leads(cluster: Cluster, *names: str) -> None:
    """Waits until each of these leases is held."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    held = lambda one: one["metadata"]["name"] in names and bool(one["spec"].get("holderIdentity"))  # noqa: E731
    cluster.api.await_each(path, held, len(names), 120)


def test_three_placers_on_the_same_nodes_fill_them_exactly(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    cluster.grant("placers", "pods", "nodes")
    kwok_nodes(12, [SMALL])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with frame(cluster, "hashed"):
        leads(cluster, *(f"wattflow-placer-{k}" for k in range(3)))
        members = [small(f"g{i}", cpu="2") for i in range(6)]
        for member in members:
            member["metadata"]["annotations"] = {"wattflow.io/gang": "g", "wattflow.io/gang-size": "6"}
        # 12 cores for the gang, 36 for as many single pods: its last member comes when others have begun
        cluster.api.create_many(pods, [*members[:5], *(small(f"p{i}") for i in range(20)), members[5]])
        cluster.api.await_each(pods, lambda one: bound(one) and one["metadata"]["name"].startswith("g"), 6, 120)
        cluster.api.create_many(pods, [small(f"q{i}") for i in range(50)])
        cluster.api.await_each(pods, bound, 42, 240)
        found = cluster.api.items(pods)
        used, by = requested(found), decided(found)
        print(f"bound by each placer: {dict(by)}")
        assert sum(used.values()) == 48_000
        assert max(used.values()) <= 4000, used
        assert len(by) == 3, by


def test_a_broker_divides_nodes_and_pods_and_idle_placers_steal(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    cluster.grant("placers", "pods", "nodes")
    names = kwok_nodes(6, [SMALL])  # another test's real node may be there, too
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with frame(cluster, "delegated-stealing"):
        ours = lambda one: one["metadata"]["name"] in names and PLACER in one["metadata"]["labels"]  # noqa: E731
        cluster.api.await_each("/api/v1/nodes", ours, 6, 120)
        nodes = [one["metadata"] for one in cluster.api.items("/api/v1/nodes") if ours(one)]
        owners = {one["name"]: one["labels"][PLACER] for one in nodes}
        assert sorted(Counter(owners.values()).items()) == [("0", 2), ("1", 2), ("2", 2)]
        bodies = [small(f"p{i}") for i in range(24)]
        for body in bodies:
            body["metadata"]["annotations"] = {"wattflow.io/object": "3"}  # all for placer 0, which has room for eight
        cluster.api.create_many(pods, bodies)
        cluster.api.await_each(pods, bound, 24, 240)
        found = cluster.api.items(pods)
        by = decided(found)
        print(f"bound by each placer: {dict(by)}")
        assert set(requested(found).values()) == {4000} and dict(by) == {0: 8, 1: 8, 2: 8}
        for one in found:
            assert one["metadata"]["labels"][PLACER] == owners[one["spec"]["nodeName"]]


def test_what_needs_the_kubelet_is_refused_before_anything_starts(cluster: Cluster) -> None:
    words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--frame", "hash-stealing"]
    words += ["--kubeconfig", str(cluster.own().scheduler_kubeconfig)]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "need the kubelet's help" in done.stderr, done.stderr
