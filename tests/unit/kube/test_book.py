"""The book over a real engine: everybody's pods count, assumptions hold and are undone, counts narrow the choice."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.decide import EngineDecider

from .making import node, pod

pytestmark = pytest.mark.slow
MOMENTS = itertools.count(1)


@pytest.fixture
def decider() -> EngineDecider:
    return EngineDecider("fifo")


@pytest.fixture
def book(decider: EngineDecider) -> Book:
    book = Book(decider, owns=lambda one: one.spec.scheduler_name == "ours", power_of=lambda one: None)
    book.on_node("ADDED", node("a"))
    return book


def ours(name: str, where: str = "", **more: Any) -> objects.Pod:
    return pod(name, where, **({"schedulerName": "ours"} | more))


def decide(book: Book, decider: EngineDecider) -> list[tuple[str, str]]:
    """One round as the scheduler has it: what must not go where it was chosen for is refused."""
    now_s = float(next(MOMENTS))
    book.flush(now_s)
    taken = []
    for choice in decider.step(now_s).choices:
        if book.assume(choice.uid, choice.node) is None:
            taken.append((choice.uid, choice.node))
        else:
            decider.refused(choice.uid, 0.0)
    return taken


def test_only_our_pods_are_wanted_and_everybodys_count(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", pod("theirs", cpu="1"))
    book.on_pod("ADDED", pod("runs", "a", cpu="3"))
    book.on_pod("ADDED", ours("big", cpu="2"))
    book.on_pod("ADDED", ours("small", cpu="1"))
    assert decide(book, decider) == [("uid-small", "a")]
    book.on_pod("DELETED", pod("runs", "a", cpu="3"))
    assert decide(book, decider) == [("uid-big", "a")]


def test_an_assumed_pod_counts_until_it_is_refused(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", cpu="3"))
    book.on_pod("ADDED", ours("y", cpu="3"))
    assert decide(book, decider) == [("uid-x", "a")]
    assert book.cluster.nodes["a"].requested["cpu"] == 3000
    book.forget("uid-x", 0.0)
    decider.refused("uid-x", 0.0)
    assert book.cluster.nodes["a"].requested["cpu"] == 0
    assert decide(book, decider) == [("uid-x", "a")], "it has its old place before y"


def test_bound_elsewhere_by_another_is_load_there(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", cpu="3"))
    assert decide(book, decider) == [("uid-x", "a")]
    book.on_node("ADDED", node("b"))
    book.on_pod("MODIFIED", ours("x", "b", cpu="3"))
    assert book.cluster.nodes["a"].requested["cpu"] == 0
    book.on_pod("ADDED", ours("y", cpu="4"))
    book.on_pod("ADDED", ours("z", cpu="1"))
    assert sorted(decide(book, decider)) == [("uid-y", "a"), ("uid-z", "b")]
    assert not book.waiting


def test_confirmed_resized_and_ended(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", cpu="1"))
    decide(book, decider)
    book.on_pod("MODIFIED", ours("x", "a", cpu="2"))
    assert not book.records["uid-x"].assumed
    book.on_pod("ADDED", ours("y", cpu="3"))
    assert decide(book, decider) == [], "x has grown in place"
    book.on_pod("MODIFIED", ours("x", "a", cpu="2", status={"phase": "Succeeded"}))
    assert decide(book, decider) == [("uid-y", "a")]
    book.on_pod("DELETED", ours("x", "a", cpu="2", status={"phase": "Succeeded"}))


def test_gated_and_leaving_pods_are_not_wanted(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", schedulingGates=[{"name": "carbon"}]))
    assert decide(book, decider) == []
    book.on_pod("MODIFIED", ours("x"))
    gone = ours("x")
    leaving = msgspec.structs.replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    book.on_pod("MODIFIED", msgspec.structs.replace(gone, metadata=leaving))
    assert decide(book, decider) == []
    book.on_pod("ADDED", ours("y"))
    assert decide(book, decider) == [("uid-y", "a")]


def test_a_node_that_comes_late_finds_its_pods(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", pod("fills", "a", cpu="4"))
    book.on_pod("ADDED", pod("early", "b", cpu="4"))
    book.on_node("ADDED", node("b"))
    book.on_pod("ADDED", ours("x", cpu="4"))
    assert decide(book, decider) == []
    book.on_node("DELETED", node("b"))
    book.on_pod("DELETED", pod("fills", "a", cpu="4"))
    assert decide(book, decider) == [("uid-x", "a")]


def anti(**labels: str) -> dict[str, object]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_anti_affinity_within_one_step_is_caught_before_binding(book: Book, decider: EngineDecider) -> None:
    book.on_node("ADDED", node("b"))
    for name in ("x", "y", "z"):
        book.on_pod("ADDED", ours(name, labels={"app": "db"}, affinity=anti(app="db")))
    taken = [*decide(book, decider), *decide(book, decider), *decide(book, decider)]
    assert len(taken) == 2 and {name for _, name in taken} == {"a", "b"}, "two nodes, one of them each"
    (left,) = book.waiting
    uid, where = taken[0]
    book.on_pod("DELETED", ours(uid.removeprefix("uid-"), where, labels={"app": "db"}))
    assert decide(book, decider) == [(left, where)]


def test_pods_that_run_can_refuse_newcomers(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", pod("shy", "a", affinity=anti(app="web")))
    book.on_pod("ADDED", ours("x", labels={"app": "web"}))
    assert decide(book, decider) == []
    book.on_pod("ADDED", ours("y"))
    assert decide(book, decider) == [("uid-y", "a")]


def test_what_we_do_not_support_is_refused_not_ignored(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    assert decide(book, decider) == []
    assert "persistentVolumeClaim" in book.refused["uid-x"]
