"""Sleep with kubelets that really go away: heartbeats end, the real node-lifecycle controller declares nodes unknown.

Beside it a slice of the drawn sequences of `make bench-operator`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kuberig import kwok
from kuberig.api import JSON, Api
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import Cluster

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import operator_stateful as drawn
from operator_kubelets import Kubelets, hook

GRACE_S, NODES = 20, 3  # a busy machine must not declare a node dead that beats
LABELS = {"wattflow.io/sleep": "true", "wattflow.io/power-profile": "ccf.xeon-6338n-xr11"}
CONFIG = """
[sleep]
hook = "{hook}"
wake_s = 2
enter_s = 0.2
[shared]
settle_s = 0.2
[http]
port = PORT
[energy]
profiles = false
[workflows]
argo = false
[lease]
lease_s = 60
renew_s = 40
"""


@pytest.fixture
def silent() -> Iterator[tuple[Cluster, Kubelets, str]]:
    """Nodes with kubelets that beat, and stop when the hook says so."""
    rig = Rig.start(Options(scheduler=False, node_grace_s=GRACE_S), die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        cluster.grant_folder("sleep")
        command, orders = hook(rig.folder)
        kwok.start(rig.folder, rig.processes, rig.users)
        names = kwok.add_nodes(rig.api, NODES, [Shape("nap", cpu="4", labels=LABELS)])
        with Kubelets(Api.of_kubeconfig(rig.kubeconfig), orders, names, wake_s=2.0, beat_s=1.0) as kubelets:
            kwok.await_ready(rig.api, NODES, 120)
            yield cluster, kubelets, command
    finally:
        rig.stop()


def until(true: Callable[[], bool], what: str, limit_s: float = 180.0) -> None:
    ends = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends, what
        time.sleep(0.2)


def unknown(node: JSON) -> bool:
    """Whether the controller has declared it so, with its taint."""
    said = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    taints = {one["key"] for one in node["spec"].get("taints", [])}
    return said["Ready"] == "Unknown" and "node.kubernetes.io/unreachable" in taints


def test_nodes_fall_silent_and_three_pods_wake_three(silent: tuple[Cluster, Kubelets, str]) -> None:
    cluster, kubelets, command = silent
    api, pods = cluster.api, "/api/v1/namespaces/default/pods"
    nodes: Callable[[], list[JSON]] = lambda: api.items("/api/v1/nodes")  # noqa: E731
    api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
    with OurScheduler(cluster.own(), "least-energy:sleep=1", CONFIG.replace("{hook}", command)) as scheduler:
        until(lambda: all(map(unknown, nodes())), "no node fell silent")
        assert {one["metadata"]["annotations"]["wattflow.io/asleep"] for one in nodes()} == {"wattflow"}
        # of unknown length, each as large as a node
        api.create_many(pods, [pod(f"p{i}", "4") for i in range(NODES)])
        api.await_each(pods, bound, NODES, 120)
        placed = {one["spec"]["nodeName"] for one in api.items(pods)}
        assert len(placed) == NODES, "three pods wake three nodes"
        assert all(spans[-1][1] < float("inf") for spans in kubelets.spans.values()), "bound when they were back"
        until(lambda: not any("wattflow.io/asleep" in one["metadata"]["annotations"] for one in nodes()), "marks stay")
        assert all(float(one["metadata"]["annotations"]["wattflow.io/wake-s"]) >= 1.5 for one in nodes())
        for i in range(NODES):
            api.delete(f"{pods}/p{i}", 0)
        until(lambda: all(map(unknown, nodes())), "no second nap")  # off, not only marked
        held = nodes()[0]["metadata"]["name"]
        api.patch(f"/api/v1/nodes/{held}", {"spec": {"unschedulable": True}})
        api.create_many(pods, [pod(f"q{i}", "4") for i in range(NODES)])
        api.await_each(pods, bound, NODES - 1, 120)
        (left,) = [one for one in api.items(pods) if not bound(one)]
        node = api.get(f"/api/v1/nodes/{held}")
        assert node["spec"]["unschedulable"] and node["metadata"]["annotations"]["wattflow.io/asleep"] == "wattflow"
        api.patch(f"/api/v1/nodes/{held}", {"spec": {"unschedulable": None}})
        api.await_one(pods, left["metadata"]["name"], bound, 120)
        events = {one["reason"] for one in api.items("/api/v1/events") if one["involvedObject"]["kind"] == "Node"}
        assert {"Sleeping", "Awake"} <= events
        assert scheduler.process is not None and scheduler.process.poll() is None


def test_the_switch_wakes_all(silent: tuple[Cluster, Kubelets, str]) -> None:
    cluster, _, command = silent
    api = cluster.api
    with OurScheduler(cluster.own(), "least-energy:sleep=1", CONFIG.replace("{hook}", command)):
        until(lambda: all(map(unknown, api.items("/api/v1/nodes"))), "no node fell silent")
        note = {"metadata": {"annotations": {"wattflow.io/sleep": "off"}}}
        api.patch("/api/v1/namespaces/kube-system", note)
        until(lambda: all(map(kwok.is_ready, api.items("/api/v1/nodes"))), "the switch left nodes asleep")
        marked = lambda: [one for one in api.items("/api/v1/nodes") if "wattflow.io/asleep" in str(one["metadata"])]  # noqa: E731
        until(lambda: not marked(), "our marks stayed")


def serving(api: Api, name: str, node: str) -> str:
    """A ReplicaSet of one that has adopted a pod on this node; the pod's uid."""
    labels, pods = {"app": name}, "/api/v1/namespaces/default/pods"
    one = pod(name, "1")
    one["metadata"]["labels"] = labels
    one["spec"].pop("restartPolicy", None)  # a ReplicaSet's pods always start again
    template = {"metadata": {"labels": labels}, "spec": dict(one["spec"])}
    one["spec"]["nodeName"] = node
    made: str = api.create(pods, one)["metadata"]["uid"]
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": name}, "spec": spec})
    api.await_one(pods, name, lambda found: bool(found["metadata"].get("ownerReferences")), 120)
    return made


def test_a_node_that_is_nearly_empty_is_emptied_within_budgets_and_sleeps(
    silent: tuple[Cluster, Kubelets, str],
) -> None:
    cluster, kubelets, command = silent
    api, pods = cluster.api, "/api/v1/namespaces/default/pods"
    cluster.grant_folder("consolidate")
    api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
    uids = {serving(api, name, f"nap-{i}") for i, name in enumerate(("moves", "stays"))}
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stays"}}}}
    api.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    text = CONFIG.replace("{hook}", command).replace("[shared]", "consolidate = true\n[shared]")

    def places() -> dict[str, str]:
        return {one["metadata"]["labels"]["app"]: one["spec"].get("nodeName", "") for one in api.items(pods)}

    with OurScheduler(cluster.own(), "least-energy:sleep=1", text):
        until(lambda: places() == {"moves": "nap-1", "stays": "nap-1"}, "nothing was moved, or not together")
        until(lambda: {"nap-0", "nap-2"} == {name for name, spans in kubelets.spans.items() if spans}, "no node sleeps")
        left = {one["metadata"]["uid"] for one in api.items(pods)} & uids
        assert left == {api.get(f"{pods}/stays")["metadata"]["uid"]}, "a budget keeps it where it is"
        taints: Callable[[], str] = lambda: str([one["spec"].get("taints") for one in api.items("/api/v1/nodes")])  # noqa: E731
        until(lambda: "wattflow.io/emptying" not in taints(), "the mark of emptying stays")


def test_drawn_sequences_of_operators_and_tenants_end_nothing() -> None:
    with drawn.ground(6, "wattflow") as at:
        for seed in range(4):
            done, found = drawn.sequence(at, 500_000 + seed, rare=0.0)
            wrong = {kind: texts for kind, texts in found.items() if texts}
            assert not wrong, (seed, done)
