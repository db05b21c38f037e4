"""Nodes woken for what Kueue cannot admit while they sleep, with its objects as its controller writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.queued_work import ClusterQueue, Flavor, LocalQueue, QueuedWork, Workload
from wattflow.kube.settings import parse
from wattflow.kube.sleeping import Sleeper
from wattflow.live.protocol import Power
from wattflow.model.errors import InvalidInput

from .making import node
from .test_consolidation import Nobody
from .test_sleeping import Patches

POOL = {"pool": "tas"}


class Asleep(Sleeper):
    """A sleeper that only notes whom it is told to wake."""

    def wake(self, name: str) -> None:
        self.states[name] = Power.WAKING


def workload(message: str, count: int = 2, status: str = "False", **spec: Any) -> Workload:
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    raw = {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"queueName": "q", "podSets": [{"count": count, "template": {"spec": requests}}], **spec},
        "status": {"conditions": [{"type": "QuotaReserved", "status": status, "message": message}]},
    }
    return msgspec.convert(raw, Workload)


class Scene:
    """Four nodes that sleep in a pool, one in another, a queue over the first."""

    def __init__(self, topology: str = "blocks") -> None:
        nodes = [node(f"n{i}", POOL) for i in range(4)] + [node("other")]
        book = Book(Nobody(), owns=lambda one: True, power_of=lambda one: None)
        for one in nodes:
            book.on_node("ADDED", one)
        self.nodes = {one.metadata.name: one for one in nodes}
        self.sleeper = Asleep(Patches(), "wattflow", None, lambda name: False, lambda name, state: None)  # type: ignore
        self.sleeper.states = dict.fromkeys(book.cluster.nodes, Power.ASLEEP)
        self.now_s = 0.0
        self.woken: list[str] = []
        self.queued = QueuedWork(Patches(), self.sleeper, book, lambda: self.now_s, 2.0, self.woken.append)
        about = {"name": "q", "namespace": "default"}
        self.queued.local._apply(
            "ADDED", msgspec.convert({"metadata": about, "spec": {"clusterQueue": "cq"}}, LocalQueue)
        )
        groups = {"resourceGroups": [{"flavors": [{"name": "f"}]}]}
        self.queued.queues._apply("ADDED", msgspec.convert({"metadata": {"name": "cq"}, "spec": groups}, ClusterQueue))
        flavor = {"metadata": {"name": "f"}, "spec": {"nodeLabels": POOL, "topologyName": topology}}
        self.queued.flavors._apply("ADDED", msgspec.convert(flavor, Flavor))

    def at(self, now_s: float) -> list[str]:
        """Whom a look at this time wakes."""
        self.now_s = now_s
        before = len(self.woken)
        self.queued.look()
        return self.woken[before:]


LACKS = "couldn't assign flavors to pod set main: topology \"blocks\" doesn't allow to fit any of 2 pod(s)"


def test_as_many_wake_as_the_workload_needs_and_more_where_that_did_not_do() -> None:
    scene = Scene()
    scene.queued.workloads._apply("ADDED", workload(LACKS))
    assert scene.at(0.0) == [] == scene.at(4.0), "Kueue may just be about to"
    assert scene.at(5.0) == ["n0", "n1"] and not scene.queued.awaits(scene.nodes["other"])
    assert all(scene.queued.awaits(scene.nodes[name]) for name in ("n0", "n3")), "on or woken, they stay"
    assert scene.at(6.0) == [] and scene.at(13.0) == ["n2", "n3"], "two of another block, it may be"
    scene.queued.workloads._apply("MODIFIED", workload("", status="True"))
    assert scene.at(1000.0) == [] and not scene.queued.awaits(scene.nodes["n0"])


@pytest.mark.parametrize(
    ("one", "topology"),
    [
        (workload("insufficient unused quota for cpu in flavor f, 4 more needed"), "blocks"),
        (workload(LACKS, active=False), "blocks"),
        (workload(LACKS), ""),
    ],
)
def test_nobody_wakes_for_quota_or_where_pods_will_come(one: Workload, topology: str) -> None:
    scene = Scene(topology)
    scene.queued.workloads._apply("ADDED", one)
    assert scene.at(0.0) == scene.at(100.0) == []


def test_a_deleted_one_counts_no_more() -> None:
    scene = Scene()
    scene.queued.workloads._apply("ADDED", workload(LACKS))
    scene.at(0.0)
    scene.queued.workloads._apply("DELETED", workload(LACKS))
    assert scene.at(100.0) == []


def test_what_is_about_to_be_needed_is_not_put_to_sleep() -> None:
    told: list[tuple[str, Power]] = []
    one = node("n", POOL)
    sleeper = Sleeper(Patches(), "wattflow", _Any(), lambda name: False, lambda *word: told.append(word))
    sleeper.seen("ADDED", one)
    sleeper.expected = lambda known: known is one
    sleeper.sleep("n")
    assert told == [("n", Power.ON)]


class _Any:
    """Covers all; nobody asks it for more."""

    def covers(self, node: str) -> bool:
        return True

    async def suspend(self, node: str) -> None:
        raise AssertionError

    resume = suspend

    async def watts(self, node: str) -> float | None:
        return None


def test_it_needs_something_that_switches() -> None:
    with pytest.raises(InvalidInput, match="say what switches them"):
        parse("[sleep]\nkueue = true")


def test_pods_of_a_workload_are_as_the_api_writes_them() -> None:
    assert isinstance(workload(LACKS).spec.pod_sets[0].template.spec, objects.PodSpec)
