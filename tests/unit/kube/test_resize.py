"""Guarantees of long-running pods: raised into free room, given back to who waits, never past cap, limit or class."""

from __future__ import annotations

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.power import NodePowerProfile, NodePowerSpec, Watts
from wattflow.kube.resize import Raiser

from .making import node, pod

CURVE = NodePowerSpec(nodes=["n"], busy=[0, 2, 4], watts=[100, 160, 200])


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def flexible(name: str, limit: str, request: str, phase: str = "Running", where: str = "n") -> objects.Pod:
    needs = {"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}}
    containers = [{"name": "main", "resources": needs}]
    labels = {"wattflow.io/guarantee": "hpe"}
    return pod(name, where, labels, containers=containers, schedulerName="wattflow", status={"phase": phase})


@pytest.fixture
def made() -> tuple[Raiser, Clock]:
    watts, clock = Watts(), Clock()
    watts.on_profile("ADDED", NodePowerProfile(metadata=objects.Metadata(name="c"), spec=CURVE))
    book = Book(EngineDecider("fifo"), lambda one: one.spec.scheduler_name == "wattflow", watts.profile_of)
    book.on_node("ADDED", node("n"))
    return Raiser(Client(Access("http://127.0.0.1:9")), book, watts, clock), clock


def planned(raiser: Raiser, clock: Clock, at_s: float) -> dict[str, int]:
    clock.now_s = at_s
    return {change.pod.metadata.name: change.cpu_m for change in raiser.plan(at_s)}


def test_a_pod_that_has_run_for_a_while_gets_what_is_free_but_never_its_whole_limit(made: tuple[Raiser, Clock]) -> None:
    raiser, clock = made
    raiser.book.on_pod("ADDED", flexible("a", "2", "1600m", phase="Pending"))
    raiser.book.on_pod("MODIFIED", flexible("a", "2", "1600m"))
    assert planned(raiser, clock, 0) == {}, "it has just come"
    assert planned(raiser, clock, 61) == {"a": 1999}, "2000 would make it a pod of another class"
    raiser.book.on_pod("ADDED", pod("theirs", "n", cpu="2300m"))
    assert planned(raiser, clock, 62) == {"a": 1700}, "the room that is left"
    raiser.book.on_pod("ADDED", pod("more", "n", cpu="99m"))
    assert planned(raiser, clock, 63) == {}, "a milli-core is not worth a write"


def test_it_is_given_back_to_a_pod_that_waits_where_that_helps(made: tuple[Raiser, Clock]) -> None:
    raiser, clock = made
    for name in ("a", "b"):
        raiser.book.on_pod("ADDED", flexible(name, "2", "1999m"))
    assert planned(raiser, clock, 0) == {}
    raiser.book.on_pod("ADDED", pod("big", cpu="3", schedulerName="wattflow"))
    assert planned(raiser, clock, 61) == {}, "800 m would not be enough for it"
    raiser.book.on_pod("DELETED", pod("big", cpu="3", schedulerName="wattflow"))
    raiser.book.on_pod("ADDED", pod("small", cpu="700m", schedulerName="wattflow"))
    assert planned(raiser, clock, 62) == {"a": 1600, "b": 1600}


def test_a_cap_holds_and_pending_resizes_are_waited_for(made: tuple[Raiser, Clock]) -> None:
    raiser, clock = made
    spec = msgspec.structs.replace(CURVE, cap_w=160.0)
    raiser.watts.on_profile("ADDED", NodePowerProfile(metadata=objects.Metadata(name="c"), spec=spec))
    raiser.book.on_node("MODIFIED", node("n", {"changed": "yes"}))
    raiser.book.on_pod("ADDED", flexible("a", "3", "1900m"))
    planned(raiser, clock, 0)
    assert planned(raiser, clock, 61) == {"a": 2000}, "160 W are two cores"
    pending = flexible("a", "3", "1900m")
    pending.status.conditions = [objects.Condition(type="PodResizePending", status="True", reason="Deferred")]
    raiser.book.on_pod("MODIFIED", pending)
    assert planned(raiser, clock, 62) == {}


def test_watts_of_a_pod_follow_the_filling_of_its_node(made: tuple[Raiser, Clock]) -> None:
    raiser, clock = made
    raiser.book.on_pod("ADDED", flexible("a", "2.5", "2"))
    planned(raiser, clock, 0)
    assert {one.metadata.name: watts for one, watts in raiser.pod_watts()} == {"a": 60.0}
    raiser.book.on_pod("ADDED", pod("theirs", "n", cpu="2"))
    assert {one.metadata.name: watts for one, watts in raiser.pod_watts()} == {"a": 50.0}, "half of 100 above idle"
    raiser.book.on_pod("DELETED", pod("theirs", "n", cpu="2"))
    assert {one.metadata.name: watts for one, watts in raiser.pod_watts()} == {"a": 60.0}
