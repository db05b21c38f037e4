"""A frame's parts on Kubernetes, each alone: whose a pod is, what is refused, what broker and thief do."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from wattflow.frames.library import frame_names, load_frame, parse_frame
from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.frame import fleet
from wattflow.kube.frame.broker import Broker
from wattflow.kube.frame.reservations import Entry, Page, Reservations
from wattflow.kube.frame.role import PLACER, Role, against, check, refusals
from wattflow.kube.frame.theft import Thief
from wattflow.kube.leader import Leader
from wattflow.kube.settings import SchedulerSettings
from wattflow.model.errors import InvalidInput

from .making import node, pod

HASHED = parse_frame('name = "h"\narchitecture = "decentralised"\n[placers]\ncount = 3\n[stealing]\nplacers = 2\n', "h")
DELEGATED = parse_frame(
    'name = "d"\narchitecture = "delegated"\n[broker]\nsplit = "round-robin"\n'
    '[placers]\ncount = 2\npartition = "disjoint"\n',
    "d",
)
NOWHERE = Client(Access("http://127.0.0.1:9"))


def gang(name: str, of: str, size: int) -> objects.Pod:
    made = pod(name)
    made.metadata.annotations = {"wattflow.io/gang": of, "wattflow.io/gang-size": str(size)}
    return made


def test_each_pod_has_one_owner_and_labels_go_before_hashes() -> None:
    roles = [Role(HASHED, k) for k in range(3)]
    for i in range(60):
        assert sum(role.owns(pod(f"p{i}")) for role in roles) == 1
    owners = Counter(roles[0].owner_of(pod(f"p{i}")) for i in range(300))
    assert set(owners) == {0, 1, 2} and min(owners.values()) > 60, owners
    assert roles[0].owner_of(pod("p", labels={PLACER: "2"})) == 2
    assert roles[0].owner_of(pod("p", labels={PLACER: "7"})) == roles[0].owner_of(pod("p")), "nobody is number 7"
    assert len({roles[0].owner_of(gang(f"g{i}", "g", 5)) for i in range(5)}) == 1, "a gang has one placer"


def test_behind_a_broker_nobody_owns_what_has_no_label() -> None:
    role = Role(DELEGATED, 1)
    assert role.owner_of(pod("p")) is None and not role.serves(node("n"))
    assert role.owns(pod("p", labels={PLACER: "1"})) and role.serves(node("n", {PLACER: "1"}))
    assert not role.shared and Role(HASHED, 0).shared


def test_what_needs_the_kubelet_is_refused_with_the_reason() -> None:
    told = {name: {problem.where for problem in refusals(load_frame(name))} for name in frame_names()}
    assert not told["centralised"] and not told["kubernetes"]
    assert {"placers.binding", "stealing"} <= told["hash-stealing"]
    assert told["borg-cells"] == {"preemption"}
    suspends = parse_frame('name = "s"\n[preemption]\nkind = "threshold"\n', "s")
    with pytest.raises(InvalidInput, match="not halt it and go on later"):
        check(suspends, SchedulerSettings())
    with pytest.raises(InvalidInput, match="kubelet's help"):
        check(load_frame("hash-stealing"), SchedulerSettings())


def test_what_needs_one_who_sees_all_is_refused_with_several_placers() -> None:
    chosen = SchedulerSettings(cluster_cap_w=100.0, hook="true", claim=True)
    assert {one.where for one in against(chosen, HASHED)} == {"energy.cluster_cap_w", "sleep.hook", "shared.claim"}
    assert not list(against(chosen, load_frame("centralised")))


def test_parts_have_leases_and_ports_of_their_own() -> None:
    parts = [fleet.placer_settings(SchedulerSettings(), k) for k in range(3)]
    assert [one.lease for one in parts] == ["wattflow-placer-0", "wattflow-placer-1", "wattflow-placer-2"]
    assert fleet.broker_settings(SchedulerSettings()).lease == "wattflow-broker"
    words = [" ".join(part) for part in fleet.roles(DELEGATED, 10359)]
    assert words == ["--placer 0 --port 10359", "--placer 1 --port 10360", "--broker"]


def broker(split: str) -> Broker:
    frame = parse_frame(
        f'name = "d"\narchitecture = "delegated"\n[broker]\nsplit = "{split}"\n[placers]\ncount = 3\n', "d"
    )
    return Broker(NOWHERE, SchedulerSettings(), frame, Leader(NOWHERE, "kube-system", "b", "me"))


@pytest.mark.parametrize("split", ["round-robin", "random", "hash", "shortest-queue", "object"])
def test_every_split_keeps_gangs_together(split: str) -> None:
    dealt = broker(split)
    chosen = {dealt.choose(gang(f"g{i}", "g", 4)) for i in range(4)}
    assert len(chosen) == 1 and chosen <= {0, 1, 2}


def test_round_robin_deals_in_turn_and_the_shortest_queue_comes_first() -> None:
    assert [broker("round-robin").choose(pod(f"p{i}")) for i in range(1)] == [0]
    turn = broker("round-robin")
    assert [turn.choose(pod(f"p{i}")) for i in range(4)] == [0, 1, 2, 0]
    short = broker("shortest-queue")
    for i in range(4):
        short._on_pod("ADDED", pod(f"q{i}", labels={PLACER: str(i % 2)}, schedulerName="wattflow"))
    assert short.choose(pod("p")) == 2
    objects_of = broker("object")
    same = [pod(f"p{i}") for i in range(3)]
    for one in same:
        one.metadata.annotations = {"wattflow.io/object": "genome"}
    assert len({objects_of.choose(one) for one in same}) == 1


def test_a_broker_that_comes_later_keeps_gangs_where_they_are() -> None:
    later = broker("round-robin")
    first = gang("g0", "g", 3)
    first.metadata.labels = {PLACER: "2"}
    first.spec = msgspec.structs.replace(first.spec, scheduler_name="wattflow")
    later._on_pod("ADDED", first)
    assert [later.choose(gang(f"g{i}", "g", 3)) for i in (1, 2)] == [2, 2]


def page(node_name: str, version: int, entries: dict[str, Entry]) -> Page:
    notes = {"wattflow.io/node": node_name, "wattflow.io/promised": msgspec.json.encode(entries).decode()}
    return Page(metadata=objects.Metadata(name=f"on-{node_name}", resource_version=str(version), annotations=notes))


def test_what_others_promise_counts_wherever_it_stands_until_it_is_bound_or_gone() -> None:
    book = Book(EngineDecider("fifo"), owns=lambda one: False, power_of=lambda one: None)
    book.live = False
    for name in ("a", "b"):
        book.on_node("ADDED", node(name))
    ledger = Reservations(NOWHERE, "kube-system", "wattflow", 0, 2, book, lambda key: None)

    def used() -> list[int]:
        return [book.cluster.nodes[name].requested.get("cpu", 0) for name in ("a", "b")]

    promised = {"uid-p": Entry(1, "default/p", {"cpu": 3000, "pods": 1})}
    ledger.on_page("ADDED", page("a", 5, promised))
    assert used() == [3000, 0]
    ledger.on_page("ADDED", page("b", 6, promised))
    assert used() == [3000, 3000], "its placer decided anew; both pages may still come true"
    ledger.on_page("MODIFIED", page("a", 4, {}))
    assert used() == [3000, 3000], "an older page changes nothing"
    ledger.on_page("MODIFIED", page("a", 7, {}))
    assert used() == [0, 3000]
    bound = pod("p", "b", cpu="3")
    ledger.on_pod("MODIFIED", bound)
    book.on_pod("MODIFIED", bound)
    ledger.on_page("MODIFIED", page("b", 8, promised))
    assert used() == [0, 3000], "counted once, as itself"
    ledger.on_pod("DELETED", bound)
    book.on_pod("DELETED", bound)
    ledger.on_page("MODIFIED", page("b", 9, promised))
    assert used() == [0, 0], "it has ended, whatever the page still says"
    assert not book.records
    ledger.on_page("MODIFIED", page("a", 10, {"uid-x": Entry(7, "default/x", {"cpu": 1000})}))
    ledger.begin([])
    assert ledger._withdrawn == {"uid-x": "a"}, "nobody else would take back what placer 7 left"


def test_the_broker_gives_nodes_to_the_poorest() -> None:
    dealt = Broker(NOWHERE, SchedulerSettings(), DELEGATED, Leader(NOWHERE, "kube-system", "b", "me"))
    dealt._on_node("ADDED", node("big", {PLACER: "0"}, allocatable={"cpu": "64"}))
    dealt._on_node("ADDED", node("new"))
    assert dealt.poorest() == 1 and set(dealt._bare) == {"new"}
    dealt._on_node("DELETED", node("big", {PLACER: "0"}))
    assert dealt.poorest() == 0


def test_a_thief_takes_half_of_what_fits_and_no_gangs() -> None:
    role = Role(HASHED, 0)
    book = Book(EngineDecider("fifo"), owns=role.owns, power_of=lambda one: None)
    book.live = False
    book.on_node("ADDED", node("n"))
    thief = Thief(NOWHERE, "wattflow", role, book, rng=random.Random(1))
    theirs = [pod(f"p{i}", cpu="1", labels={PLACER: "1"}, schedulerName="wattflow") for i in range(20)]
    member = gang("g0", "g", 2)
    member.metadata.labels = {PLACER: "1"}
    member.spec = msgspec.structs.replace(member.spec, scheduler_name="wattflow")
    mine = pod("mine", labels={PLACER: "0"}, schedulerName="wattflow")
    everyone = [*theirs, member, mine]
    assert thief.victims(everyone, 0.0) == {}, "they have just come"
    queues = thief.victims(everyone, 1.0)
    assert {k: len(v) for k, v in queues.items()} == {1: 20}
    assert len(thief.choose(queues)) == 4, "half would be ten, the node has four cores"
    assert len(thief.choose({1: theirs[:3]})) == 2
