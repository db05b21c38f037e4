"""Preemption: the least that must go, never against a budget, and the room is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.accounting import pod_requests
from wattflow.kube.binder import Binder
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters.snapshot import Snapshot
from wattflow.kube.last_look import Nominated
from wattflow.kube.preempt import Budget, Evictor, Preemptor, plan

from .making import node, pod
from .small_api import refusal, small_api


def budget(allowed: int, name: str = "b", **labels: str) -> Budget:
    raw = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}},
           "status": {"disruptionsAllowed": allowed}}  # fmt: skip
    return msgspec.convert(raw, Budget)


def victims(pods: list[objects.Pod], priority: int = 9, budgets: tuple[Budget, ...] = (), **more: Any) -> Any:
    names = sorted({one.spec.node_name for one in pods})
    cluster = Snapshot.of([node(name) for name in names], pods)
    asked = pod("new", priority=priority, **({"cpu": "2"} | more))
    found = plan(asked, cluster, budgets, lambda one: True)
    return found and (found.node, sorted(one.metadata.name for one in found.evicted))


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


def test_several_budgets() -> None:
    pods = [
        pod("a", "x", {"app": "w", "tier": "t"}, cpu="4", priority=1),
        pod("b", "y", {"app": "v"}, cpu="4", priority=2),
    ]
    both = (budget(1, "one", app="w"), budget(1, "two", tier="t"))
    assert victims(pods) == ("x", ["a"])
    assert victims(pods, budgets=both) == ("y", ["b"]), "the API server evicts nobody whom two budgets cover"
    assert victims(pods, budgets=(*both, budget(0, "three", app="v"))) is None
    assert victims(pods, budgets=(both[0], budget(0, "three", app="v"))) == ("x", ["a"])
    tied = [pod("a", "n", {"app": "w"}, cpu="2", priority=5), pod("b", "n", {"app": "w"}, cpu="2", priority=1)]
    assert victims(tied, budgets=(budget(1, app="w"),)) == ("n", ["a"]), (
        "as kube-scheduler: one budget, first a, then b"
    )


def test_of_equal_victims_those_that_started_last() -> None:
    pods = [pod(name, name, cpu="4", priority=1) for name in "xyz"]
    for one, hour in zip(pods, (7, 9, 8), strict=True):
        one.status.start_time = f"2026-01-01T0{hour}:00:00Z"
    assert victims(pods) == ("y", ["y"])


def test_rules_between_pods_count_and_those_who_leave_already_are_not_evicted() -> None:
    shy = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}}]}}  # fmt: skip
    pods = [pod("a", "n", {"app": "w"}, cpu="1", priority=1), pod("b", "n", cpu="1", priority=1)]
    assert victims(pods, affinity=shy) == ("n", ["a"])
    leaving = pod("a", "n", cpu="4", priority=1)
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert victims([leaving]) == ("n", []), "room is kept where it comes by itself, and nobody is evicted for it"


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
            preemptor = Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: 5.0)
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
    assert Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: 0.0).plan(asked) is None


def ours(name: str, priority: int, cpu: str = "3") -> objects.Pod:
    return pod(name, schedulerName="ours", cpu=cpu, priority=priority)


def full_book(*names: str) -> Book:
    """Nodes of four cores with one pod of low priority on each."""
    book = Book(EngineDecider("fifo"), owns=lambda one: one.spec.scheduler_name == "ours", power_of=lambda one: None)
    for name in names:
        book.on_node("ADDED", node(name))
        book.on_pod("ADDED", pod(f"low-{name}", name, cpu="4", priority=1))
    return book


def wait(book: Book, *pods: objects.Pod) -> None:
    for one in pods:
        book.on_pod("ADDED", one)
        book.since_s[one.metadata.uid] = 0.0


@pytest.mark.slow
def test_nobody_else_is_evicted_while_a_victim_takes_its_time_to_end() -> None:
    async def whole() -> None:
        async with small_api() as (api, access), Client(access) as client:
            book, now_s = full_book("x", "y"), [5.0]
            wait(book, ours("high", 9))
            preemptor = Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: now_s[0])
            await preemptor.look()
            leaving = pod("low-x", "x", cpu="4", priority=1)
            leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
            book.on_pod("MODIFIED", leaving)
            now_s[0] += 60
            await preemptor.look()
            assert [path for _, path in api.calls if "eviction" in path] == [
                "/api/v1/namespaces/default/pods/low-x/eviction"
            ]

    asyncio.run(whole())


@pytest.mark.slow
def test_a_victim_that_is_gone_already_is_no_failure() -> None:
    async def whole() -> None:
        async with small_api() as (api, access), Client(access) as client:
            book = full_book("x")
            wait(book, ours("high", 9))
            api.faults.append(("low-x/eviction", lambda: refusal(404, "NotFound")))
            await Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: 5.0).look()
            assert book.nominated["uid-high"].node == "x"

    asyncio.run(whole())


@pytest.mark.slow
def test_pods_that_wait_together_each_get_a_node_of_their_own_in_one_look() -> None:
    async def whole() -> None:
        async with small_api() as (api, access), Client(access) as client:
            book = full_book("x", "y")
            wait(book, ours("a", 9), ours("b", 9), ours("c", 9))
            await Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: 5.0).look()
            evicted = [path.split("/")[-2] for _, path in api.calls if "eviction" in path]
            assert evicted == ["low-x", "low-y"], "one node each, and nobody for c, for whom no room would be left"
            assert {uid: one.node for uid, one in book.nominated.items()} == {"uid-a": "x", "uid-b": "y"}

    asyncio.run(whole())


def test_kept_room_is_closed_to_equals_and_they_go_elsewhere() -> None:
    book = full_book("x")
    book.on_node("ADDED", node("y"))
    book.on_pod("DELETED", pod("low-x", "x", cpu="4", priority=1))
    wait(book, ours("first", 9), ours("late", 9))
    first = book.waiting["uid-first"]
    book.nominated["uid-first"] = Nominated("x", first, pod_requests(first))
    book.flush(0.0)
    assert "kept for" in str(book.assume("uid-late", "x"))
    book.flush(1.0)
    chosen = {choice.uid: choice.node for choice in book.decider.step(1.0).choices}
    assert chosen.get("uid-late") in (None, "y"), "never x again"
    assert book.assume("uid-late", "y") is None
    assert book.assume("uid-first", "x") is None


@pytest.mark.slow
def test_room_that_is_kept_no_longer_is_given_to_those_whom_it_was_kept_from() -> None:
    async def whole() -> None:
        async with small_api() as (_, access), Client(access) as client:
            book = full_book("x")
            book.on_pod("DELETED", pod("low-x", "x", cpu="4", priority=1))
            wait(book, ours("a", 9), ours("b", 9))
            for uid, one in book.waiting.items():
                book.nominated[uid] = Nominated("x", one, pod_requests(one))
            for uid in list(book.waiting):
                assert "kept for" in str(book.assume(uid, "x")), "each is kept off by the other"
            book.flush(1.0)
            assert not book.decider.step(1.0).choices
            await Preemptor(Evictor(client), book, Binder(client, "ours"), lambda: 5.0).look()
            assert list(book.nominated) == ["uid-b"], "nothing helps a, so b may go"
            book.flush(6.0)
            assert [choice.uid for choice in book.decider.step(6.0).choices] == ["uid-b"]

    asyncio.run(whole())
