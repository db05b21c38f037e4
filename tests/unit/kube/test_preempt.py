"""Preemption: the least that must go, never against a budget, and the room is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters.snapshot import Snapshot
from wattflow.kube.preempt import Budget, Preemptor, plan

from .making import node, pod
from .small_api import small_api


def budget(allowed: int, **labels: str) -> Budget:
    raw = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}},
           "status": {"disruptionsAllowed": allowed}}  # fmt: skip
    return msgspec.convert(raw, Budget)


def victims(pods: list[objects.Pod], priority: int = 9, budgets: tuple[Budget, ...] = (), **more: Any) -> Any:
    names = sorted({one.spec.node_name for one in pods})
    cluster = Snapshot.of([node(name) for name in names], pods)
    asked = pod("new", priority=priority, **({"cpu": "2"} | more))
    found = plan(asked, cluster, budgets, lambda one: True)
    return found and (found.node, sorted(one.metadata.name for one in found.victims))


def test_only_lower_priority_goes_and_no_more_than_must() -> None:
    pods = [pod("a", "n", cpu="2", priority=1), pod("b", "n", cpu="1", priority=5), pod("c", "n", cpu="1", priority=9)]
    assert victims(pods) == ("n", ["a"]), "b would not be enough, c is as high"
    assert victims(pods, priority=1) is None
    assert victims(pods, cpu="3") == ("n", ["a", "b"])
    assert victims(pods, cpu="4") is None


def test_the_node_whose_victims_matter_least() -> None:
    pods = [pod("a", "x", cpu="4", priority=5), pod("b", "y", cpu="2", priority=3), pod("c", "y", cpu="2", priority=4),
            pod("d", "z", cpu="4", priority=3)]  # fmt: skip
    assert victims(pods) == ("y", ["b"])
    assert victims([*pods[:1], pods[3], pod("b", "y", cpu="4", priority=2)]) == ("y", ["b"])


def test_budgets_hold() -> None:
    pods = [pod("a", "n", {"app": "w"}, cpu="2", priority=1), pod("b", "n", cpu="2", priority=5)]
    assert victims(pods) == ("n", ["a"])
    assert victims(pods, budgets=(budget(0, app="w"),)) == ("n", ["b"]), "rather one of higher priority"
    assert victims(pods, budgets=(budget(0, app="w"),), cpu="4") is None
    both = [pod(name, "n", {"app": "w"}, cpu="2", priority=1) for name in "ab"]
    assert victims(both, budgets=(budget(1, app="w"),), cpu="4") is None
    assert victims(both, budgets=(budget(2, app="w"),), cpu="4") == ("n", ["a", "b"])


def test_rules_between_pods_count_and_those_who_leave_already_are_not_evicted() -> None:
    shy = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}}]}}  # fmt: skip
    pods = [pod("a", "n", {"app": "w"}, cpu="1", priority=1), pod("b", "n", cpu="1", priority=1)]
    assert victims(pods, affinity=shy) == ("n", ["a"])
    leaving = pod("a", "n", cpu="4", priority=1)
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert victims([leaving]) is None


@pytest.mark.slow
def test_victims_are_evicted_and_the_room_is_kept() -> None:
    async def whole() -> None:
        async with small_api() as (api, access), Client(access) as client:
            decider = EngineDecider("fifo")
            book = Book(decider, owns=lambda one: one.spec.scheduler_name == "ours", power_of=lambda one: None)
            book.on_node("ADDED", node("n"))
            book.on_pod("ADDED", pod("low", "n", cpu="4", priority=1))
            book.on_pod("ADDED", pod("high", schedulerName="ours", cpu="3", priority=9))
            book.on_pod("ADDED", pod("never", schedulerName="ours", cpu="3", priority=10, preemptionPolicy="Never"))
            for uid in book.waiting:
                book.since_s[uid] = 0.0
            preemptor = Preemptor(client, book, Binder(client, "ours"), lambda: 5.0)
            await preemptor.look()
            await preemptor.look()
            writes = [path.rpartition("/pods/")[2] for method, path in api.calls if method in ("POST", "PATCH")]
            assert writes == ["high/status", "low/eviction"], "once"
            book.on_pod("DELETED", pod("low", "n", cpu="4", priority=1))
            book.on_pod("ADDED", pod("late", schedulerName="ours", cpu="2", priority=3))
            assert "kept for" in str(book.assume("uid-late", "n"))
            assert book.assume("uid-high", "n") is None
            assert not book.nominated

    asyncio.run(whole())


def test_a_pod_that_could_go_somewhere_evicts_nobody() -> None:
    book = Book(EngineDecider("fifo"), owns=lambda one: one.spec.scheduler_name == "ours", power_of=lambda one: None)
    for name in "ab":
        book.on_node("ADDED", node(name))
    book.on_pod("ADDED", pod("low", "a", cpu="4", priority=1))
    client = Client(Access("http://127.0.0.1:1"))
    asked = pod("high", schedulerName="ours", cpu="3", priority=9)
    assert Preemptor(client, book, Binder(client, "ours"), lambda: 0.0).plan(asked) is None
