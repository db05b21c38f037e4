"""A scheduler that begins where another stopped: our pods that run are ours again, workflows go on, curves change."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.kube import accounting, objects, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.argo.watching import Flows
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.estimates import Estimates
from wattflow.model.profile import PowerProfile
from wattflow.policy import registry

from .making import node, pod
from .test_decide import CHEAP, DEAR, add, chosen, flow_pod, submitted, want

pytestmark = pytest.mark.slow


def standby(decider: EngineDecider) -> Book:
    owns = lambda one: one.spec.scheduler_name == "ours"  # noqa: E731
    return Book(decider, owns=owns, power_of=lambda one: CHEAP, live=False)


def ours(name: str, where: str = "", **more: Any) -> objects.Pod:
    return pod(name, where, schedulerName="ours", **more)


def test_who_begins_holds_its_pods_that_run_and_counts_the_others() -> None:
    decider = EngineDecider("fifo")
    book = standby(decider)
    for one in (ours("runs", "a", cpu="2"), pod("theirs", "a", cpu="1"), ours("waits", cpu="1"), ours("big", cpu="2")):
        book.on_pod("ADDED", one)
    book.on_node("ADDED", node("a"))
    assert decider.step(1.0).choices == [], "one who only keeps book decides nothing"
    assert book.begin((), lambda one: 30.0, 2.0) == 1
    assert book.records["uid-runs"].held and not book.records["uid-theirs"].held
    book.flush(3.0)
    assert chosen(decider, 3.0) == {"waits": "a"}, "four cores, three taken"
    assert book.assume("uid-waits", "a") is None
    book.on_pod("DELETED", ours("runs", "a", cpu="2"))
    assert chosen(decider, 4.0) == {"big": "a"}, "what ended gave its room back"


def test_a_pod_where_it_may_not_be_is_load_and_nothing_is_lost() -> None:
    decider = EngineDecider("fifo")
    book = standby(decider)
    book.on_node("ADDED", node("a", unschedulable=True))
    book.on_node("ADDED", node("b"))
    for i in range(3):
        book.on_pod("ADDED", ours(f"p{i}", "a", cpu="2"))  # more than the node has
    book.begin((), lambda one: None, 1.0)
    book.flush(2.0)
    book.on_pod("ADDED", ours("next", cpu="4"))
    assert chosen(decider, 2.0) == {"next": "b"}
    for i in range(3):
        book.on_pod("DELETED", ours(f"p{i}", "a", cpu="2"))
    book.flush(3.0)
    assert decider.step(3.0).choices == []


def test_a_workflow_under_way_goes_on_inside_its_structure() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    book = Book(decider, owns=lambda one: True, power_of=lambda one: CHEAP, live=False)
    submitted(flows)
    book.on_node("ADDED", node("n"))
    ended = msgspec.structs.replace(flow_pod("a"), status=objects.PodStatus(phase="Succeeded"))
    running = flow_pod("c")
    running = msgspec.structs.replace(running, spec=msgspec.structs.replace(running.spec, node_name="n"))
    book.on_pod("ADDED", running)
    assert book.begin([ended], lambda one: 5.0, 1.0) == 1
    open_before = decider.engine.counts["open"]
    assert open_before >= 2, "the task that is to come is known; the one that ended is not opened again"
    book.on_pod("ADDED", flow_pod("b"))
    assert chosen(decider, 2.0) == {"wf-b": "n"}
    assert decider.engine.counts["open"] <= open_before, "the pod took the task that was there for it"


def test_a_gang_that_runs_in_part_does_not_wait_for_those_that_run() -> None:
    notes = {"wattflow.io/gang": "g", "wattflow.io/gang-size": "2"}
    decider = EngineDecider("fifo")
    add(decider, node("n"))
    members = [pod(f"g{i}", cpu="1") for i in range(2)]
    for one in members:
        one.metadata.annotations = notes
    assert decider.adopt([(Wanted(members[0], accounting.pod_requests(members[0])), "n")], 1.0) == {"uid-g0"}
    want(decider, members[1])
    assert chosen(decider, 2.0) == {"g1": "n"}


def gang_member(name: str, made: str, owner: str = "", started: str = "") -> objects.Pod:
    one = pod(name, cpu="1")
    one.metadata.annotations = {"wattflow.io/gang": "g", "wattflow.io/gang-size": "4"}
    one.metadata.annotations |= {"wattflow.io/gang-started": started} if started else {}
    one.metadata.creation_timestamp = made
    if owner:
        one.metadata.owner_references = [objects.OwnerReference(kind="Job", name="j", uid=owner, controller=True)]
    return one


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("owner", ["", "job"])
def test_a_reused_name_is_a_gang_of_its_own_while_one_of_the_old_runs(restart: bool, owner: str) -> None:
    """Room is for three: none of the four new pods may start, also after a restart in between."""
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
    old = [gang_member(f"old{i}", early, owner) for i in range(4)]
    decider = EngineDecider("fifo")
    add(decider, node("n"))
    if restart:
        old[0].metadata.annotations |= {"wattflow.io/gang-started": early}
        assert decider.adopt([(Wanted(old[0], accounting.pod_requests(old[0])), "n")], 1.0) == {"uid-old0"}
    else:
        want(decider, *old)
        for uid in [choice.uid for choice in decider.step(1.0).choices]:
            decider.started(uid)
        for one in old[1:]:
            decider.ended(one.metadata.uid)
    want(decider, *[gang_member(f"new{i}", late, owner and "another job") for i in range(4)])
    assert chosen(decider, 2.0) == {}
    decider.ended("uid-old0")
    assert len(chosen(decider, 3.0)) == 4


@pytest.mark.parametrize("owner", ["", "job"])
def test_the_rest_of_a_gang_follows_after_a_restart_and_is_not_taken_for_another(owner: str) -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
    decider = EngineDecider("fifo")
    add(decider, node("n"))
    runs = [gang_member(f"r{i}", early, owner, early) for i in range(2)]
    assert len(decider.adopt([(Wanted(one, accounting.pod_requests(one)), "n") for one in runs], 1.0)) == 2
    want(decider, gang_member("rest", early, owner))
    assert chosen(decider, 2.0) == {"rest": "n"}
    if owner:  # one in place of a member that failed
        want(decider, gang_member("instead", late, owner))
        assert chosen(decider, 3.0) == {"instead": "n"}


def test_a_gang_that_loses_a_member_before_it_starts_takes_who_waits_beside_it() -> None:
    decider = EngineDecider("fifo")
    add(decider, node("n"))
    load = dict.fromkeys([accounting.CPU], 1000)
    decider.set_load("n", load)
    want(decider, *[gang_member(f"g{i}", "2026-01-01T00:00:00Z") for i in range(4)])
    assert chosen(decider, 1.0) == {}, "three cores for four"
    want(decider, gang_member("fifth", "2026-01-01T00:00:01Z"))
    assert decider.why("uid-fifth") == "its gang has 1 of 4 pods"
    decider.unwant("uid-g1")
    decider.set_load("n", {})
    assert set(chosen(decider, 2.0)) == {"g0", "g2", "g3", "fifth"}


def test_a_wish_told_anew_does_not_leave_the_tasks_after_it_waiting_for_ever() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    submitted(flows)
    want(decider, flow_pod("a"))
    want(decider, flow_pod("a"))  # a label changed while it waited
    assert chosen(decider, 1.0) == {"wf-a": "n"}
    decider.started("uid-wf-a")
    decider.ended("uid-wf-a")
    want(decider, flow_pod("b"))
    assert chosen(decider, 2.0) == {"wf-b": "n"}


def test_the_rest_of_a_runtime_is_what_counts() -> None:
    one = pod("p", status={"startTime": "2026-01-01T00:00:00Z"})
    one.metadata.annotations = {"wattflow.io/runtime-s": "100"}
    began_s = 1767225600.0
    assert Estimates().left(one, began_s + 30) == 70
    assert Estimates().left(one, began_s + 300) == 0
    assert Estimates().left(pod("q"), began_s) is None


def test_another_curve_counts_when_the_node_is_empty() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("x"), CHEAP)
    add(decider, node("y"), PowerProfile((0, 4), (50, 120)))
    want(decider, pod("p0", cpu="1"))
    assert chosen(decider, 1.0) == {"p0": "x"}
    decider.started("uid-p0")
    add(decider, node("x"), DEAR)
    want(decider, pod("p1", cpu="1"))
    assert chosen(decider, 2.0) == {"p1": "x"}, "our pod is there: the old curve stays"
    for uid in ("uid-p0", "uid-p1"):
        decider.ended(uid)
    decider.set_load("x", {"cpu": 3000, "memory": 0, "pods": 1})
    want(decider, pod("p2", cpu="1"))
    assert chosen(decider, 3.0) == {"p2": "y"}, "now x is the dearer"
    want(decider, pod("p3", cpu="3"), pod("p4", cpu="1"))
    assert chosen(decider, 4.0) == {"p3": "y", "p4": "x"}, "and what others use there still counts"


def test_a_shield_goes_by_the_numbers_that_are_configured() -> None:
    """It has a process of its own and loads the policy by name: what it gives back must be what was configured."""
    text = 'policy = "carbon-delay:shield=kubernetes"\n[params]\ndelay_s = 60\n[energy]\nprofiles = false\n'
    scheduler = scheduler_process.make(Client(Access("http://127.0.0.1:1")), settings.parse(text))
    shield = scheduler.decider.rehearsing  # type: ignore[attr-defined]
    assert registry.load(shield.policy).params == scheduler.decider.engine.policy.params  # type: ignore[attr-defined]
    assert registry.load(shield.policy).params["delay_s"] == 60.0
    shield.close()


CAPS = '[energy]\nprofiles = false\ndefault_profile = "{profile}"\n{caps}[workflows]\nargo = false\n'


def test_a_reload_changes_policy_and_caps_and_a_mistake_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from wattflow.clusters import profiles

    name = profiles.list_profiles()[0].name
    old = settings.parse(CAPS.format(profile=name, caps=""))
    scheduler = scheduler_process.make(Client(Access("http://127.0.0.1:1")), old)
    one = node("n", allocatable={"cpu": "8"})
    scheduler.book.on_node("ADDED", one)
    profile = scheduler.watts.profile_of(one)
    assert profile is not None
    cap_w = profile.at(3.0)
    capped = CAPS.format(profile=name, caps=f"node_cap_w = {cap_w}\ncluster_cap_w = {profile.at(2.0)}\n")
    shield = scheduler.decider.rehearsing  # type: ignore[attr-defined]
    assert shield is not None and "wattflow_shield_kept" in scheduler.metrics.gauges, "`wattflow` serves shielded"
    scheduler_process.reload(scheduler, settings.parse('policy = "fifo"\n' + capped))
    assert scheduler.decider.rehearsing is None, "its next answer would bring the policy before back"  # type: ignore[attr-defined]
    assert "wattflow_shield_kept" not in scheduler.metrics.gauges
    assert scheduler.settings.policy == "fifo" == scheduler.decider.engine.policy.name  # type: ignore[attr-defined]
    assert 2900 < scheduler.watts.capped("n", {"cpu": 8000})["cpu"] <= 3001
    for i in range(4):
        scheduler.book.on_pod("ADDED", pod(f"p{i}", cpu="1", schedulerName="wattflow"))
    scheduler.decide()
    assert len(scheduler.book.records) == 2, "the cluster's cap holds the third and fourth back"
    scheduler_process.reload(scheduler, settings.parse(CAPS.format(profile=name, caps=f"node_cap_w = {cap_w}\n")))
    scheduler.decide()
    assert len(scheduler.book.records) == 3, "the node's cap holds the fourth back"
    scheduler_process.reload(scheduler, settings.parse(CAPS.format(profile=name, caps="")))
    scheduler.decide()
    assert len(scheduler.book.records) == 4, "no cap, no limit"
    with caplog.at_level(logging.ERROR):
        scheduler_process.reload(scheduler, settings.parse('name = "other"\n' + CAPS.format(profile=name, caps="")))
    assert "name changed" in caplog.text and scheduler.settings.name == "wattflow"
    scheduler.decider.rehearsing.close()  # type: ignore[attr-defined]
