"""The book over a real engine: everybody's pods count, assumptions hold and are undone, counts narrow the choice."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters import feasible
from wattflow.kube.filters.volumes import Storage
from wattflow.kube.storage import Shelves

from .making import node, pod, storage

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


def test_pods_that_are_alike_are_asked_for_once_and_the_rule_holds(
    book: Book, decider: EngineDecider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand with a hard spread took longer than a lease holds while each was asked for by itself."""
    asked: list[objects.Pod] = []
    of = feasible.Question.of
    counting = lambda one, cluster: asked.append(one) or of(one, cluster)  # type: ignore[func-returns-value]  # noqa: E731
    monkeypatch.setattr(feasible.Question, "of", counting)
    book.on_node("DELETED", node("a"))
    for name, zone in (("b", "1"), ("c", "2"), ("d", "3")):
        book.on_node("ADDED", node(name, {"zone": zone}))
    rule = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }  # fmt: skip
    for number in range(9):
        one = ours(f"p{number}", labels={"color": "blue"}, cpu="1", topologySpreadConstraints=[rule])
        book.on_pod("ADDED", one)
    assert len(asked) == 1
    book.on_pod("ADDED", ours("other", labels={"color": "red"}, cpu="1", topologySpreadConstraints=[rule]))
    assert len(asked) == 2, "other labels, another question"
    for _ in range(30):
        decide(book, decider)
    at = [record.node for uid, record in book.records.items() if uid != "uid-other"]
    assert sorted(at) == sorted("bcd" * 3)


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


def test_shy_pods_found_running_count_though_the_engine_cannot_hold_them(decider: EngineDecider) -> None:
    book = Book(decider, owns=lambda one: True, power_of=lambda one: None, live=False)
    shy = [ours("large", "a", cpu="5", affinity=anti(app="web")), ours("small", "b", affinity=anti(app="web"))]
    for name in ("a", "b"):
        book.on_node("ADDED", node(name))
    for one in shy:
        book.on_pod("ADDED", one)
    assert book.begin(shy, lambda one: None, 0.0) == 1, "five cores are not on a node of four"
    book.on_pod("ADDED", ours("x", labels={"app": "web"}))
    now_s = float(next(MOMENTS))
    book.flush(now_s)
    assert not decider.step(now_s).choices


def test_what_the_engine_would_count_wrongly_is_caught_before_binding_and_left_to_the_filters(
    book: Book, decider: EngineDecider, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.on_pod("ADDED", ours("shy", labels={"app": "db"}, affinity=anti(app="db")))
    assert decide(book, decider) == [("uid-shy", "a")]
    book.on_pod("ADDED", ours("x", labels={"app": "db"}, affinity=anti(app="db")))
    wanted, want = [], decider.want

    def noted(one: Wanted) -> None:
        wanted.append(one.nodes)
        want(one)

    monkeypatch.setattr(decider, "want", noted)
    assert book.assume("uid-x", "a") == "pod anti-affinity", "as if the engine had chosen it"
    book.on_node("ADDED", node("b"))
    assert decide(book, decider) == [("uid-x", "b")]
    assert wanted == [("b",)], "the filters' own list, once they have contradicted"


def test_a_node_that_is_overbooked_beside_our_pods_takes_those_that_ask_for_none_of_it(
    book: Book, decider: EngineDecider
) -> None:
    book.on_pod("ADDED", ours("x", cpu="2"))
    assert decide(book, decider) == [("uid-x", "a")]
    book.on_pod("ADDED", pod("theirs", "a", cpu="3"))  # five of four cores
    book.on_pod("ADDED", ours("nothing", memory="1Gi"))
    book.on_pod("ADDED", ours("one", cpu="1"))
    book.on_pod("ADDED", ours("two", cpu="2"))
    assert decide(book, decider) == [("uid-nothing", "a")]
    book.on_pod("DELETED", ours("x", "a", cpu="2"))
    assert decide(book, decider) == [("uid-one", "a")], "three are theirs still: one is free, not two"
    book.on_pod("DELETED", pod("theirs", "a", cpu="3"))
    assert decide(book, decider) == [("uid-two", "a")]


def test_pods_that_run_can_refuse_newcomers(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", pod("shy", "a", affinity=anti(app="web")))
    book.on_pod("ADDED", ours("x", labels={"app": "web"}))
    assert decide(book, decider) == []
    book.on_pod("ADDED", ours("y"))
    assert decide(book, decider) == [("uid-y", "a")]


def test_what_we_do_not_support_is_refused_not_ignored(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("x", volumes=[{"name": "v", "csi": {"driver": "d"}}]))
    assert decide(book, decider) == []
    assert "csi" in book.refused["uid-x"]


def test_a_claim_is_waited_for_and_its_pod_goes_where_its_volume_is(book: Book, decider: EngineDecider) -> None:
    shelves = Shelves(Client(Access("http://127.0.0.1:1")), book, lambda: None)
    book.on_node("ADDED", node("b"))
    book.on_pod("ADDED", ours("plain", memory="1Gi"))
    assert not book.claimed.is_set(), "nobody asks for claims before a pod has one"
    assert decide(book, decider)
    book.on_pod("ADDED", ours("x", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    assert book.claimed.is_set() and "not read yet" in book.refused["uid-x"]
    shelves.listed()
    assert "does not exist" in book.refused["uid-x"]
    known = storage()
    (claim,), (volume,) = known.claims.values(), known.volumes.values()
    shelves.on_claim("ADDED", claim)
    assert decide(book, decider) == [] and "not there" in book.refused["uid-x"]
    shelves.on_volume("ADDED", volume)
    assert "uid-x" not in book.refused
    shelves.on_claim("DELETED", claim)
    assert decide(book, decider) == [], "it was wanted, and is no more"
    shelves.on_claim("ADDED", claim)
    assert decide(book, decider) == [("uid-x", "b")], "the one node that reaches the volume"


def test_a_volume_that_goes_between_decision_and_binding_is_seen(book: Book, decider: EngineDecider) -> None:
    shelves = Shelves(Client(Access("http://127.0.0.1:1")), book, lambda: None, storage())
    shelves.listed()
    book.on_node("ADDED", node("b"))
    book.on_pod("ADDED", ours("x", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    book.flush(0.5)
    (choice,) = decider.step(float(next(MOMENTS))).choices
    book.cluster.storage = Storage()
    assert "does not exist" in str(book.assume(choice.uid, choice.node))


def shy(name: str, where: str = "", **more: object) -> objects.Pod:
    """A pod that wants no other of its app on its node."""
    return ours(name, where, labels={"app": "x"}, affinity=apart("podAntiAffinity"), **more)


def apart(kind: str, key: str = "kubernetes.io/hostname") -> dict[str, object]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_the_engine_counts_rules_between_our_own_pods(book: Book, decider: EngineDecider) -> None:
    """Three pods that must be apart and two nodes: one step places two, no list of nodes is made."""
    book.on_node("ADDED", node("b"))
    for name in ("x", "y", "z"):
        book.on_pod("ADDED", shy(name, cpu="1"))
    taken = decide(book, decider)
    assert sorted(where for _, where in taken) == ["a", "b"]
    assert not decide(book, decider)
    left = taken[0][0].removeprefix("uid-")
    book.on_pod("DELETED", shy(left, taken[0][1]))
    assert [where for _, where in decide(book, decider)] == [taken[0][1]]
    assert not book._counted  # nobody asked the filters


def test_pods_that_the_engine_does_not_count_send_their_neighbours_to_the_filters(
    book: Book, decider: EngineDecider
) -> None:
    book.on_node("ADDED", node("b"))
    book.on_pod("ADDED", shy("x", cpu="1"))
    book.on_pod("ADDED", pod("theirs", "a", labels={"app": "x"}))
    assert decide(book, decider) == [("uid-x", "b")]
    book.on_pod("ADDED", ours("plain", labels={"app": "x"}, nodeSelector={"kubernetes.io/hostname": "b"}))
    assert not decide(book, decider)  # x is shy of it
    book.on_pod("DELETED", shy("x", "b"))
    assert decide(book, decider) == [("uid-plain", "b")]


def test_a_pod_that_was_placed_before_a_rule_named_it_keeps_others_away(book: Book, decider: EngineDecider) -> None:
    book.on_pod("ADDED", ours("early", labels={"app": "x"}, cpu="1"))
    assert decide(book, decider) == [("uid-early", "a")]
    book.on_pod("ADDED", shy("late", cpu="1"))
    assert not decide(book, decider)
    book.on_node("ADDED", node("b"))
    assert decide(book, decider) == [("uid-late", "b")]


def test_a_pod_that_has_left_its_group_by_a_change_of_labels_is_in_nobodys_way(
    book: Book, decider: EngineDecider
) -> None:
    book.on_pod("ADDED", shy("x", cpu="1"))
    assert decide(book, decider) == [("uid-x", "a")]
    book.on_pod("MODIFIED", shy("x", "a", cpu="1"))
    book.on_pod("ADDED", ours("y", labels={"app": "y"}, affinity=apart("podAntiAffinity"), cpu="1"))
    assert not decide(book, decider)
    changed = msgspec.structs.replace(shy("x", "a", cpu="1"))
    changed.metadata.labels["app"] = "z"
    changed.spec.affinity = None
    book.on_pod("MODIFIED", changed)
    assert decide(book, decider) == [("uid-y", "a")]


def test_ports_are_counted_by_the_engine_and_at_one_address_by_the_filters(book: Book, decider: EngineDecider) -> None:
    def serving(name: str, **port: object) -> objects.Pod:
        return ours(name, containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, **port}]}])

    book.on_pod("ADDED", serving("one"))
    book.on_pod("ADDED", serving("two"))
    assert len(decide(book, decider)) == 1 and not book._counted
    book.on_node("ADDED", node("b"))
    assert len(decide(book, decider)) == 1
    book.on_node("ADDED", node("c"))
    book.on_pod("ADDED", serving("here", hostIP="10.0.0.1"))
    assert decide(book, decider) == [("uid-here", "c")]
    book.on_pod("ADDED", serving("everywhere"))
    assert not decide(book, decider)
    book.on_pod("ADDED", serving("there", hostIP="10.0.0.2"))
    assert decide(book, decider) == [("uid-there", "c")]


def test_who_wants_company_finds_it_among_ours_and_among_others(book: Book, decider: EngineDecider) -> None:
    book.on_node("ADDED", node("b"))
    book.on_pod("ADDED", ours("fan", labels={"app": "y"}, affinity=apart("podAffinity")))
    assert not decide(book, decider)
    book.on_pod("ADDED", ours("star", labels={"app": "x"}, nodeSelector={"kubernetes.io/hostname": "b"}))
    assert ("uid-star", "b") in decide(book, decider)
    assert ("uid-fan", "b") in [*decide(book, decider), ("uid-fan", book.records["uid-fan"].node)]
    book.on_pod("ADDED", pod("theirs", "a", labels={"app": "x"}))
    book.on_pod("DELETED", ours("star", "b", labels={"app": "x"}))
    book.on_pod("ADDED", ours("second", labels={"app": "y"}, affinity=apart("podAffinity")))
    assert decide(book, decider) == [("uid-second", "a")]
