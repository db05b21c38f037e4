"""Nodes that are nearly empty: who may be moved, when it is worth it, and what is written."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects, sleeping
from wattflow.kube.access import Access
from wattflow.kube.allowance import Allowance
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import ApiError, Client
from wattflow.kube.consolidation import EMPTYING, Consolidator, stays
from wattflow.kube.power import Watts
from wattflow.kube.preempt import Budget, BudgetSpec, Evictor
from wattflow.levels.power_hooks import CommandHook
from wattflow.live.protocol import Power
from wattflow.model.cluster import Sleep

from .making import node, pod

NOW_S = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC).timestamp()
SLEEPY = {sleeping.MAY_SLEEP: "true"}


class Nobody:
    """Decides nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **more: None


class Writes(Client):
    """Keeps what is written; evictions may be refused by a budget."""

    def __init__(self, refuses: bool = False) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.evicted: list[str] = []
        self.taints: list[list[str]] = []
        self.refuses = refuses
        self.stands: dict[str, object] = {}

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        if method == "GET":
            return msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "spec": {}} | self.stands)
        if path.endswith("/eviction"):
            if self.refuses:
                raise ApiError(429, "TooManyRequests", "a budget")
            self.evicted.append(path.split("/")[-2])
        elif isinstance(body, dict):
            self.taints.append([one["key"] for one in body["spec"]["taints"]])
        return b"{}"


def owned(name: str, where: str, kind: str = "ReplicaSet", cpu: str = "1") -> objects.Pod:
    made = pod(name, where, cpu=cpu)
    made.metadata.owner_references = [objects.OwnerReference(kind=kind, name="o", controller=True)]
    made.status.start_time = "2026-11-18T11:59:00Z"
    return made


def consolidator(client: Client, pods: list[objects.Pod], nodes: int = 3) -> Consolidator:
    watts = Watts(guesses=True)
    book = Book(Nobody(), owns=lambda one: False, power_of=watts.profile_of)
    for i in range(nodes):
        book.on_node("ADDED", node(f"n{i}", SLEEPY))
    for one in pods:
        book.on_pod("ADDED", one)
    sleeper = sleeping.Sleeper(client, "wattflow", CommandHook("true", "true"), lambda name: False, lambda n, s: None)
    sleeper.allowance = Allowance(book.cluster.nodes, sleeper.states, lambda: 0.0)
    binder = Binder(client, "wattflow")
    return Consolidator(
        Evictor(client), book, binder, watts, sleeper, Sleep(1.0, 120.0, 30.0), lambda: 0.0, lambda: NOW_S
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"owner": False}, "anew"),
        ({"volume": "emptyDir"}, "data"),
        ({"volume": "hostPath"}, "data"),
        ({"volume": "emptyDir", "note": ("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")}, None),
        ({"note": ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")}, "says"),
        ({"note": ("karpenter.sh/do-not-disrupt", "true")}, "says"),
    ],
)
def test_who_may_be_moved(change: dict[str, Any], why: str | None) -> None:
    one = owned("p", "n0")
    if "note" in change:
        one.metadata.annotations = dict([change["note"]])
    if "volume" in change:
        one.spec.volumes = [{"name": "v", change["volume"]: objects.VolumeSource()}]
    if change.get("owner") is False:
        one.metadata.owner_references = []
    said = stays(one)
    assert said is None if why is None else why in str(said)


def test_the_node_that_saves_most_is_emptied_onto_nodes_in_use() -> None:
    client = Writes()
    made = consolidator(client, [owned("a", "n0"), owned("b", "n1", cpu="2")])
    found = made.best()
    assert found is not None and found.node == "n0" and found.saved_j > found.moved_j > 0, "the fewer joules to move"
    asyncio.run(made.look())
    assert client.evicted == ["a"] and client.taints == [[EMPTYING]]
    made.sleeper.states["n0"] = Power.ASLEEP
    asyncio.run(made.look())
    assert client.taints[-1] == [] and not made.emptying, "asleep it needs no taint of ours beside"


def test_nothing_is_moved_where_it_would_not_help() -> None:
    assert consolidator(Writes(), [owned("a", "n0")]).best() is None, "another empty node would take its place"
    assert consolidator(Writes(), [owned("a", "n0", cpu="3"), owned("b", "n1", cpu="3")]).best() is None, "no room"
    long = owned("job", "n0", "Job", cpu="3")
    long.status.start_time = "2026-11-10T12:00:00Z"
    made = consolidator(Writes(), [long, owned("b", "n1")])
    found = made.best()
    assert found is not None and found.node == "n1", "eight days of work are worth more than an hour of idling"


def test_budgets_and_the_operator_come_first() -> None:
    made = consolidator(Writes(), [owned("a", "n0"), owned("b", "n1", cpu="2")])
    about = objects.Metadata(name="b", namespace="default")
    tight = Budget(metadata=about, spec=BudgetSpec(selector=objects.LabelSelector()))
    made.evictor.on_budget("ADDED", tight)
    assert made.best() is None
    made.evictor.on_budget("DELETED", tight)
    for name in ("b", "c"):
        loose = Budget(metadata=objects.Metadata(name=name, namespace="default"), spec=tight.spec)
        loose.status.disruptions_allowed = 9
        made.evictor.on_budget("ADDED", loose)
    assert made.best() is None, "the API server evicts nobody whom two budgets cover"
    made.evictor.on_budget("DELETED", tight)
    view = made.book.cluster.nodes["n0"]
    view.node = msgspec.structs.replace(view.node, spec=objects.NodeSpec(unschedulable=True))
    found = made.best()
    assert found is None or found.node != "n0"


def test_a_budget_that_the_server_knows_better_ends_the_emptying() -> None:
    client = Writes(refuses=True)
    made = consolidator(client, [owned("a", "n0"), owned("b", "n1", cpu="2")])
    asyncio.run(made.look())
    asyncio.run(made.look())
    assert not made.emptying and client.taints == [[EMPTYING], []] and client.evicted == []
    again = made.best()
    assert again is None or again.node != "n0", "others are tried first"


@pytest.mark.parametrize(
    "stands",
    [
        {"spec": {"unschedulable": True}},
        {"metadata": {"resourceVersion": "7", "annotations": {"wattflow.io/maintenance": "disk"}}},
        {"spec": {"taints": [{"key": "somebody", "effect": "NoSchedule"}]}},
    ],
)
def test_a_node_that_is_somebodys_by_now_is_not_emptied(stands: dict[str, object]) -> None:
    client = Writes()
    client.stands = stands  # the watch that chose the node has not told of it yet
    one = consolidator(client, [owned("a", "n0"), *(owned(f"b{i}", "n1") for i in range(2))])
    asyncio.run(one.look())
    assert not client.taints and not client.evicted
