"""Nodes that sleep through a real command: cordoned, never with pods on them, woken for pods and ahead of workflows."""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.kube import (
    accounting,
    late_pods,
    node_switches,
    objects,
    scheduler_process,
    settings,
    sleep_facts,
    sleeping,
)
from wattflow.kube.access import Access
from wattflow.kube.allowance import SWITCH, ZONE, Allowance, windows
from wattflow.kube.argo.watching import Flows
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters import snapshot
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.sleeping import ASLEEP, Sleeper
from wattflow.levels.power_hooks import CommandHook, PowerHook
from wattflow.live.protocol import Power
from wattflow.model.cluster import Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod
from .test_consolidation import Nobody
from .test_decide import add, flow_pod, submitted, want


class Patches(Client):
    """A client that keeps what is written to nodes and says yes; nodes have these taints, and may be cordoned."""

    def __init__(self, taints: list[dict[str, str]] | None = None, cordoned: bool = False) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.patches: list[tuple[str, Any]] = []
        self.spec = {"taints": taints or [], "unschedulable": cordoned}
        self.renewed = "2026-01-01T00:00:00Z"

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        if method == "GET" and "/leases/" in path:
            return json.dumps({"spec": {"renewTime": self.renewed}}).encode()
        if method == "GET":
            return json.dumps({"metadata": {"resourceVersion": "7"}, "spec": self.spec}).encode()
        self.patches.append((path.rsplit("/", 1)[1], body))
        return b"{}"

    def marks(self) -> list[bool]:
        """Whether each write put our mark on."""
        return [body["metadata"]["annotations"][ASLEEP] is not None for _, body in self.patches]


def hook(folder: Path, body: str = "exit 0") -> str:
    """A command that writes down how it was called."""
    path = folder / "hook"
    path.write_text(f'#!/bin/sh\necho "$1 $2" >> {folder}/calls\n{body}\n')
    path.chmod(0o755)
    return str(path)


def switch(folder: Path, body: str = "exit 0") -> PowerHook:
    """The same command as the scheduler uses it."""
    made = node_switches.make(settings.SchedulerSettings(hook=hook(folder, body)), Patches())
    assert made is not None
    return made


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().split("\n")[:-1] if path.exists() else []


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def marked(one: objects.Node, is_ready: bool, beat: str = EARLIER, cordoned: bool = False) -> objects.Node:
    """A node as the API shows it while it sleeps by our order."""
    notes = {ASLEEP: "wattflow"}
    condition = objects.Condition(type="Ready", status="True" if is_ready else "Unknown", last_heartbeat_time=beat)
    gone = ("node.kubernetes.io/unreachable", "node.cloudprovider.kubernetes.io/shutdown")
    keys = (ASLEEP,) if is_ready else (ASLEEP, *gone)
    return msgspec.structs.replace(
        one,
        metadata=msgspec.structs.replace(one.metadata, annotations=notes),
        spec=objects.NodeSpec(unschedulable=cordoned, taints=[objects.Taint(key=key) for key in keys]),
        status=msgspec.structs.replace(one.status, conditions=[condition]),
    )


def test_asleep_and_awake_again(tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []

    async def run() -> None:
        theirs = {"key": "theirs", "effect": "PreferNoSchedule"}
        client = Patches([theirs])
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        assert not sleeper.awake("n")
        await until(lambda: bool(told))
        assert told == [("n", Power.ASLEEP)] and calls(tmp_path) == ["sleep n"]
        mine = {"key": ASLEEP, "value": "wattflow", "effect": "NoSchedule"}
        notes = {"annotations": {ASLEEP: "wattflow"}, "resourceVersion": "7"}
        assert client.patches == [("n", {"metadata": notes, "spec": {"taints": [theirs, mine]}})]
        seen = sleeper.seen("MODIFIED", marked(node("n"), is_ready=False))
        assert seen is not None and not seen.spec.unschedulable and not seen.spec.taints, (
            "one that sleeps by our order may be chosen"
        )
        sleeper.wake("n")
        await until(lambda: len(calls(tmp_path)) == 2)
        assert not sleeper.awake("n"), "awake when its kubelet says so, not when the command has ended"
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True))
        await asyncio.sleep(0.05)
        assert not sleeper.awake("n"), "what its kubelet said before the order does not count"
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=LATER))
        await until(lambda: len(told) == 2)
        assert told[1] == ("n", Power.ON) and sleeper.awake("n") and calls(tmp_path) == ["sleep n", "wake n"]
        assert client.patches[-1][1]["spec"] == {"taints": [theirs]}, "what is not ours stays"

    asyncio.run(run())


def test_a_pod_that_came_meanwhile_and_a_command_that_fails_leave_the_node_on(tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []
    looks = iter([False, True])  # empty when asked, in use after the cordon

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path, "exit 3"), lambda name: next(looks, False),
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        await until(lambda: len(told) == 1)
        assert told == [("n", Power.ON)] and calls(tmp_path) == []
        sleeper.sleep("n")
        await until(lambda: len(told) == 2)
        assert told[1] == ("n", Power.ON) and calls(tmp_path) == ["sleep n"]
        assert client.marks() == [True, False, True, False]

    asyncio.run(run())


def test_a_node_that_does_not_wake_is_told(tmp_path: Path) -> None:
    lost: list[str] = []

    async def run() -> None:
        sleeper = Sleeper(Patches(), "wattflow", switch(tmp_path), lambda name: False, lambda name, state: None,
                          lost.append, settle_s=0.0, wake_limit_s=0.2)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False))
        assert sleeper.states == {"n": Power.ASLEEP}, "of a scheduler before us"
        sleeper.wake("n")
        await until(lambda: bool(lost))
        assert lost == ["n"] and sleeper.states == {"n": Power.ASLEEP}

    asyncio.run(run())


@pytest.mark.slow
def test_many_nodes_that_wake_read_few_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "_LEASE_S", 0.02)
    reads: list[str] = []

    class Counted(Patches):
        async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
            reads.extend([path] if "/leases/" in path else [])
            return await super().call(method, path, body, **more)

    async def run() -> None:
        sleeper = Sleeper(Counted(), "wattflow", switch(tmp_path), lambda name: False, lambda name, state: None)
        for i in range(50):
            sleeper.seen("ADDED", marked(node(f"n{i}"), is_ready=False))
            sleeper.wake(f"n{i}")
        await until(lambda: len(calls(tmp_path)) == 50)
        before, began_s = len(reads), time.monotonic()
        await asyncio.sleep(1.0)
        passed_s = time.monotonic() - began_s  # on a busy machine more than the one that was asked for
        assert len(reads) - before <= 2 * passed_s * sleeping._LEASES_PER_S
        for task in sleeper._tasks:
            task.cancel()

    asyncio.run(run())


def test_a_short_nap_is_over_when_the_lease_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "_LEASE_S", 0.02)
    told: list[tuple[str, Power]] = []

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=True))
        sleeper.wake("n")
        await until(lambda: calls(tmp_path) == ["wake n"])
        await asyncio.sleep(0.1)
        assert not told
        client.renewed = "2026-01-01T00:01:00Z"  # the kubelet lives, its status is told every five minutes only
        await until(lambda: told == [("n", Power.ON)])

    asyncio.run(run())


@pytest.mark.parametrize("go", [True, False])
def test_a_woken_node_is_on_when_the_taints_of_its_sleep_are_gone(
    go: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its first pods are bound and the next ones wake other nodes, until the controller has looked again."""
    monkeypatch.setattr(sleeping, "_LEASE_S", 0.02)
    told: list[Power] = []
    woken = marked(node("n"), is_ready=True, beat=LATER)
    tainted = msgspec.structs.replace(woken, spec=marked(node("n"), is_ready=False).spec)

    async def run() -> None:
        sleeper = Sleeper(Patches(), "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append(state), settle_s=0.0)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False))
        sleeper.wake("n")
        await until(lambda: calls(tmp_path) == ["wake n"])
        sleeper.seen("MODIFIED", tainted)
        await asyncio.sleep(0.1)  # for several looks at the node
        assert not told
        if go:
            sleeper.seen("MODIFIED", woken)
        else:
            monkeypatch.setattr(sleeping, "_TAINTS_S", 0.0)  # as if so long had passed
        await until(lambda: told == [Power.ON])

    asyncio.run(run())


HELD = [
    {"unschedulable": True},
    {"taints": [{"key": "drain", "effect": "NoExecute"}]},
    {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
]


@pytest.mark.parametrize("spec", HELD)
def test_a_node_that_is_somebody_elses_business_is_neither_put_to_sleep_nor_woken(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    told: list[tuple[str, Power]] = []
    unwoken: list[str] = []

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), unwoken.append, settle_s=0.05)  # fmt: skip
        theirs = node("n", **spec)
        views = {"n": snapshot.NodeView.of(theirs, [])}
        sleeper.allowance = Allowance(views, sleeper.states, lambda: 0.0)
        sleeper.seen("ADDED", theirs)
        sleeper.sleep("n")
        assert told == [("n", Power.ON)] and not client.patches, "before"
        views["n"].node = node("n")
        sleeper.seen("MODIFIED", node("n"))
        sleeper.sleep("n")
        views["n"].node = theirs  # while it is about to fall asleep
        await until(lambda: len(told) == 2)
        assert told[1] == ("n", Power.ON) and calls(tmp_path) == []
        asleep = marked(theirs, is_ready=False)
        asleep.spec.unschedulable = theirs.spec.unschedulable
        asleep.spec.taints += theirs.spec.taints
        shown = sleeper.seen("MODIFIED", asleep)
        assert shown is not None and shown.spec.unschedulable == theirs.spec.unschedulable
        assert shown.spec.taints == asleep.spec.taints, "ours too: nobody would wake it for a pod"
        sleeper.wake("n")
        await asyncio.sleep(0.05)
        assert unwoken == ["n"] and calls(tmp_path) == [], "asleep it stays as it is, and its pods go elsewhere"

    asyncio.run(run())


def test_a_cordon_that_comes_while_a_node_wakes_stays(tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False))
        sleeper.wake("n")
        await until(lambda: calls(tmp_path) == ["wake n"])
        client.spec["unschedulable"] = True
        shown = sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=LATER, cordoned=True))
        await until(lambda: bool(told))
        assert shown is not None and shown.spec.unschedulable
        assert all("unschedulable" not in body["spec"] for _, body in client.patches)

    asyncio.run(run())


@pytest.mark.parametrize("from_asleep", [True, False])
def test_a_cordon_that_the_watch_has_not_told_of_wins(from_asleep: bool, tmp_path: Path) -> None:
    """The node is read right before it is switched."""
    told: list[tuple[str, Power]] = []
    unwoken: list[str] = []

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), unwoken.append, settle_s=0.05)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False) if from_asleep else node("n"))
        if from_asleep:
            client.spec["unschedulable"] = True
            sleeper.wake("n")
            await until(lambda: bool(told))
            assert told == [("n", Power.ASLEEP)] and unwoken == ["n"], "its pods go elsewhere"
        else:
            sleeper.sleep("n")
            await until(lambda: client.marks() == [True])
            client.spec["unschedulable"] = True
            await until(lambda: bool(told))
            assert told == [("n", Power.ON)] and client.marks() == [True, False]
        assert calls(tmp_path) == []

    asyncio.run(run())


def test_what_a_late_watch_tells_of_the_time_before_the_order_is_not_believed(tmp_path: Path) -> None:
    class Read(Patches):
        async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
            if method == "GET" and "/leases/" not in path:
                ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:02:00Z"}
                found = {"metadata": {"resourceVersion": "7"}, "spec": self.spec, "status": {"conditions": [ready]}}
                return json.dumps(found).encode()
            return await super().call(method, path, body, **more)

    told: list[Power] = []

    async def run() -> None:
        sleeper = Sleeper(Read(), "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append(state), settle_s=0.0)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=True))
        sleeper.wake("n")
        await until(lambda: calls(tmp_path) == ["wake n"])
        for beat in ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"):
            sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=beat))
            for _ in range(20):
                await asyncio.sleep(0)
        assert not sleeper._ready["n"].is_set()
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=LATER))
        assert sleeper._ready["n"].is_set()
        for task in sleeper._tasks:
            task.cancel()

    asyncio.run(run())


def test_what_an_operator_allows() -> None:
    zones = [{ZONE: "a"}, {ZONE: "a"}, {ZONE: "b"}]
    views = {f"n{i}": snapshot.NodeView.of(node(f"n{i}", labels), []) for i, labels in enumerate(zones)}
    states: dict[str, Power] = {}
    now = [0.0]
    wall = [datetime.datetime(2026, 11, 18, 12, 0)]  # a Wednesday

    def allowance(**limits: Any) -> Allowance:
        return Allowance(views, states, lambda: now[0], lambda: wall[0], **limits)

    assert allowance().against("n0") is None and "gone" in str(allowance().against("x"))
    assert allowance(min_on=1).against("n0") is None
    assert "zone" in str(allowance(min_on=1).against("n2"))
    assert allowance(headroom_m=8000).against("n0") is None
    assert "headroom" in str(allowance(headroom_m=8001).against("n0"))
    states["n1"] = Power.ASLEEP
    assert "zone" in str(allowance(min_on=1).against("n0"))
    states.clear()
    office = allowance(never=windows("Mon-Fri 08:00-18:00; 22:00-06:00"))
    assert "schedule" in str(office.against("n0"))
    for hour, free in ((19, True), (23, False), (3, False), (7, True)):
        wall[0] = wall[0].replace(hour=hour)
        assert (office.against("n0") is None) == free
    limited = allowance(cooldown_s=60.0, per_hour=2)
    limited.switched("n0")
    assert "short while" in str(limited.against("n0")) and limited.against("n1") is None
    now[0] = 61.0
    assert limited.against("n0") is None
    limited.switched("n0")
    assert "this hour" in str(limited.against("n1"))
    now[0] = 3700.0
    assert limited.against("n1") is None
    limited.off = True
    assert "off" in str(limited.against("n1"))
    for bad in ("Mon-Fry 08:00-18:00", "25:00-26:00", "always"):
        with pytest.raises(InvalidInput, match=r"sleep\.never"):
            windows(bad)


def test_what_the_operator_wants_on_is_woken() -> None:
    zones = [{ZONE: "a"}, {ZONE: "a"}, {ZONE: "b"}]
    views = {f"n{i}": snapshot.NodeView.of(node(f"n{i}", labels), []) for i, labels in enumerate(zones)}
    states = {"n0": Power.ASLEEP, "n1": Power.ASLEEP, "n2": Power.ASLEEP}
    wall = [datetime.datetime(2026, 11, 18, 7, 59)]
    asleep = sorted(states)

    def allowance(**limits: Any) -> Allowance:
        return Allowance(views, states, lambda: 0.0, lambda: wall[0], **limits)

    assert allowance().wanted(asleep) == []
    assert allowance(min_on=1).wanted(asleep) == ["n0", "n2"], "one of each zone"
    assert allowance(headroom_m=4001).wanted(asleep) == ["n0", "n1"], "as many as bring the cores"
    states["n0"] = Power.WAKING
    assert allowance(headroom_m=4001).wanted(["n1", "n2"]) == ["n1"], "one on its way counts"
    office = allowance(never=windows("Mon-Fri 08:00-18:00"))
    assert office.wanted(["n1", "n2"]) == []
    wall[0] = wall[0].replace(hour=8, minute=0)
    assert office.wanted(["n1", "n2"]) == ["n1", "n2"], "at eight they are all woken"


def test_a_node_that_is_on_although_it_should_sleep_is_used_again(tmp_path: Path) -> None:
    """Its leader was killed between the mark and the order, or somebody pressed its button."""
    now, label = [1000.0], {sleeping.MAY_SLEEP: "true"}

    async def run() -> None:
        told: list[Power] = []
        client = Patches()
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False, lambda _, state: told.append(state))
        sleeper.clock = lambda: now[0]
        sleeper.seen("ADDED", marked(node("n", label), is_ready=True))
        await sleeper.begin()
        now[0] += 60.0
        sleeper.seen("MODIFIED", marked(node("n", label), is_ready=True, beat=LATER))
        assert not sleeper.awake("n"), "its last words before it is off may come late"
        now[0] += 120.0
        sleeper.seen("MODIFIED", marked(node("n", label), is_ready=True))
        sleeper.seen("MODIFIED", marked(node("n", label), is_ready=False, beat=LATER))
        assert not sleeper.awake("n"), "nothing new, or not ready"
        seen = sleeper.seen("MODIFIED", marked(node("n", label), is_ready=True, beat=LATER))
        assert sleeper.awake("n") and told == [Power.ON] and seen is not None and not seen.spec.taints
        sleeper.keep_on()
        await until(lambda: client.marks() == [False])
        sleeper.seen("MODIFIED", node("n", label))
        sleeper.sleep("n")
        assert sleeper.awake("n"), "what keeps it on may do so again"
        now[0] += 3600.0
        sleeper.sleep("n")
        assert not sleeper.awake("n")

    asyncio.run(run())


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_foreign_taint_wins_before_and_after(effect: str, tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []
    unwoken: list[str] = []
    taint = objects.Taint(key="maintenance.example/window", effect=effect)

    async def run() -> None:
        client = Patches([{"key": taint.key, "effect": effect}])
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), unwoken.append, settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        await until(lambda: bool(told))
        assert told == [("n", Power.ON)] and not client.patches and not calls(tmp_path), "before"
        asleep = marked(node("n"), is_ready=False)
        asleep.spec.taints.append(taint)
        shown = sleeper.seen("MODIFIED", asleep)
        assert shown is not None and {one.key for one in shown.spec.taints} >= {ASLEEP, taint.key}, "none is sent there"
        sleeper.wake("n")
        assert unwoken == ["n"] and not calls(tmp_path), "after"
        views = {"n": snapshot.NodeView.of(asleep, [])}
        sleeper.allowance = Allowance(views, sleeper.states, lambda: 0.0, dedicated=frozenset({taint.key}))
        sleeper.wake("n")
        await until(lambda: calls(tmp_path) == ["wake n"])

    asyncio.run(run())


def test_how_long_a_node_takes_is_learned_and_kept(tmp_path: Path) -> None:
    usual = Sleep(10.0, 120.0, 30.0)
    assert sleep_facts.of(node("n"), usual) == usual

    async def run() -> None:
        client = Patches()
        told: list[Power] = []
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append(state), settle_s=0.0)  # fmt: skip
        asleep = marked(node("n"), is_ready=False)
        asleep.metadata.annotations[sleep_facts.WAKE_S] = "100"
        sleeper.seen("ADDED", asleep)
        sleeper.wake("n")
        await until(lambda: bool(calls(tmp_path)))
        sleeper.seen("MODIFIED", msgspec.structs.replace(
            marked(node("n"), is_ready=True, beat=LATER), metadata=asleep.metadata))  # fmt: skip
        await until(lambda: told == [Power.ON])
        ((_, body),) = client.patches
        assert 65.0 <= float(body["metadata"]["annotations"][sleep_facts.WAKE_S]) < 90.0, "quicker than the 100 s"

    asyncio.run(run())
    assert sleep_facts.learn(node("n"), 300.0, 120.0) == {sleep_facts.WAKE_S: "156.0"}, "counts as twice the usual"
    assert sleep_facts.learn(node("n"), 20.0, 120.0) == {sleep_facts.WAKE_S: "90.0"}, "the first one is not all"
    slow = node("n")
    for _ in range(12):
        slow.metadata.annotations = sleep_facts.learn(slow, 600.0, 120.0)
    assert 550.0 < float(slow.metadata.annotations[sleep_facts.WAKE_S]) <= 600.0, "one that is slow is known in the end"
    kept = node("n")
    kept.metadata.annotations = {sleep_facts.WAKE_S: "40", sleep_facts.SLEEP_W: "3.2"}
    found = sleep_facts.of(kept, usual)
    assert 40.0 <= found.wake_s <= 46.0 and 3.2 <= found.watts <= 3.7, "in steps, so that alike nodes stay alike"
    for hostile in ("²", "-1", "1e30", "nan", "x" * 5000):
        kept.metadata.annotations = {sleep_facts.WAKE_S: hostile, sleep_facts.SLEEP_W: hostile}
        assert sleep_facts.of(kept, usual) == usual


def test_a_late_word_of_the_watch_puts_nobody_to_sleep_again(tmp_path: Path) -> None:
    """The mark was taken off by another connection than the watch's: what still shows it is old."""

    async def run() -> None:
        client = Patches()
        told: list[Power] = []
        sleeper = Sleeper(client, "wattflow", switch(tmp_path), lambda name: False,
                          lambda name, state: told.append(state), settle_s=0.0)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False))
        sleeper.wake("n")
        await until(lambda: bool(calls(tmp_path)))
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=LATER))
        await until(lambda: told == [Power.ON])
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True, beat=LATER))
        assert sleeper.awake("n")
        before = len(client.patches)
        sleeper.keep_on()
        await until(lambda: len(client.patches) > before)
        assert client.marks()[-1] is False, "a mark on a node that is on is taken off"

    asyncio.run(run())


def test_who_stood_by_takes_up_what_stands_on_the_nodes(tmp_path: Path) -> None:
    async def run() -> None:
        sleeper = Sleeper(Patches(), "wattflow", switch(tmp_path), lambda name: False, lambda name, state: None)
        sleeper.seen("ADDED", marked(node("woken"), is_ready=False))
        sleeper.seen("ADDED", node("slept"))
        sleeper.seen("MODIFIED", node("woken"))  # by the leader
        sleeper.seen("MODIFIED", marked(node("slept"), is_ready=False))
        await sleeper.begin()
        assert sleeper.awake("woken") and not sleeper.awake("slept")

    asyncio.run(run())


def test_the_switch_wakes_all_and_a_dry_run_only_tells(tmp_path: Path) -> None:
    events: list[str] = []

    async def run() -> None:
        sleeper = Sleeper(Patches(), "wattflow", switch(tmp_path), lambda name: False, lambda name, state: None,
                          settle_s=0.0, told=lambda node, reason, text: events.append(reason))  # fmt: skip
        sleeper.allowance = Allowance({"n": snapshot.NodeView.of(node("n"), [])}, sleeper.states, lambda: 0.0)
        sleeper.seen("ADDED", marked(node("m"), is_ready=False))
        space = objects.Namespace(metadata=objects.Metadata(name="wattflow", annotations={SWITCH: "off"}))
        sleeper.on_namespace(space)
        assert sleeper.keep_on() == ["m"]
        await until(lambda: calls(tmp_path) == ["wake m"])
        sleeper.sleep("n")
        assert sleeper.awake("n")
        sleeper.on_namespace(objects.Namespace(metadata=objects.Metadata(name="wattflow")))
        sleeper.dry_run = True
        sleeper.sleep("n")
        assert sleeper.awake("n") and events == ["WouldSleep"]

    asyncio.run(run())


def test_daemons_do_not_keep_a_node_awake() -> None:
    one = pod("d", "n")
    assert not sleeping.is_daemon(one)
    one.metadata.owner_references = [objects.OwnerReference(kind="DaemonSet", name="d")]
    assert sleeping.is_daemon(one)


CONFIG = """
policy = "least-energy:sleep=30"
[sleep]
hook = "{hook}"
wake_s = 60
enter_s = 0
[shared]
settle_s = 0.001
[lease]
leader_elect = false
[energy]
profiles = false
default_profile = "{profile}"
[workflows]
argo = false
"""


@pytest.mark.slow
def test_an_idle_node_sleeps_and_is_woken_for_a_pod(tmp_path: Path) -> None:
    from wattflow.clusters import profiles

    name = profiles.list_profiles()[0].name
    chosen = settings.parse(CONFIG.format(hook=hook(tmp_path), profile=name))
    now = [0.0]

    async def run() -> None:
        scheduler: Scheduler = scheduler_process.make(Patches(), chosen)
        scheduler.clock = lambda: now[0]
        scheduler._on_node("ADDED", node("n", {sleeping.MAY_SLEEP: "true"}))
        scheduler._on_node("ADDED", node("always"))
        scheduler._on_pod("ADDED", pod("theirs", "always", cpu="4"))
        for now_s in (1.0, 40.0, 80.0):
            now[0] = now_s
            scheduler.decide()
            await asyncio.sleep(0.05)
        await until(lambda: calls(tmp_path) == ["sleep n"])
        await until(lambda: "n" in scheduler.watts.asleep_w)
        scheduler._on_node("MODIFIED", marked(node("n", {sleeping.MAY_SLEEP: "true"}), is_ready=False))
        scheduler._on_pod("ADDED", pod("p", cpu="2", schedulerName="wattflow"))
        now[0] = 90.0
        scheduler.decide()
        await until(lambda: len(calls(tmp_path)) == 2)
        assert calls(tmp_path)[1] == "wake n"
        assert scheduler._queue.empty(), "nothing is bound to a node that is not up"
        scheduler._on_node("MODIFIED", marked(node("n", {sleeping.MAY_SLEEP: "true"}), is_ready=True, beat=LATER))
        await until(lambda: not scheduler._queue.empty())
        assert scheduler._queue.get_nowait()[0][:2] == ("uid-p", "n")

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cordoned", "deleted"])
def test_who_waits_for_a_node_that_somebody_takes_goes_elsewhere(what: str, tmp_path: Path) -> None:
    """The node was chosen minutes ago: what the operator did to it meanwhile wins."""
    from wattflow.clusters import profiles

    name = profiles.list_profiles()[0].name
    chosen = settings.parse(CONFIG.format(hook=hook(tmp_path), profile=name))
    now = [0.0]
    label = {sleeping.MAY_SLEEP: "true"}

    async def run() -> None:
        scheduler: Scheduler = scheduler_process.make(Patches(), chosen)
        scheduler.clock = lambda: now[0]
        assert scheduler.sleeper is not None
        scheduler._on_node("ADDED", marked(node("n", label), is_ready=False))
        scheduler._powered("n", Power.ASLEEP)
        scheduler._on_pod("ADDED", pod("p", cpu="2", schedulerName="wattflow"))
        now[0] = 10.0
        scheduler.decide()
        await until(lambda: calls(tmp_path) == ["wake n"])
        if what == "deleted":
            scheduler._on_node("DELETED", marked(node("n", label), is_ready=False))
        else:
            scheduler._on_node("MODIFIED", marked(node("n", label), is_ready=True, beat=LATER, cordoned=True))
            await until(lambda: scheduler.sleeper is not None and scheduler.sleeper.awake("n"))
            # as the watch would tell once our mark is off: the cordon alone is left
            bare = msgspec.structs.replace(node("n", label), spec=objects.NodeSpec(unschedulable=True))
            scheduler._on_node("MODIFIED", bare)
        scheduler._on_node("ADDED", node("other"))
        for now_s in (11.0, 20.0, 40.0):
            now[0] = now_s
            scheduler.decide()
        await until(lambda: not scheduler._queue.empty())
        assert scheduler._queue.get_nowait()[0][:2] == ("uid-p", "other")

    asyncio.run(run())


@pytest.mark.slow
def test_workflows_tell_what_is_coming() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    submitted(flows)
    first = flow_pod("a")
    want(decider, first)
    decider.step(1.0)
    assert decider._structure is not None
    inside = decider._structure._inside["default/wf"]
    inside.estimates_s = dict.fromkeys(inside.tasks, 100.0)
    decider.started("uid-wf-a")
    assert decider.coming_m(50.0) == 0, "its parent runs for longer"
    assert decider.coming_m(150.0) == 1100, "one task of 1.1 cores waits for the one that runs"
    decider.ended("uid-wf-a")
    assert decider.coming_m(150.0) == 0, "its pod is due now; it is no news any more"


@pytest.mark.slow
@pytest.mark.parametrize("estimates_s", [(None, None, None), (30.0, 30.0, 30.0), (None, 30.0, 30.0)])
def test_pods_of_unknown_length_wake_as_many_nodes_as_they_need(estimates_s: tuple[float | None, ...]) -> None:
    decider = EngineDecider("wattflow", sleep_of=lambda one: Sleep(10.0, 120.0, 30.0))
    for i in range(4):
        add(decider, node(f"n{i}"))
    decider.step(0.0)
    for i in range(4):
        decider.powered(f"n{i}", Power.ASLEEP)
    decider.step(1.0)
    for i, estimate_s in enumerate(estimates_s):
        one = pod(f"p{i}", cpu="4")
        decider.want(Wanted(one, accounting.pod_requests(one), None, estimate_s))
    woken = [name for now_s in (2.0, 3.0, 10.0, 60.0, 100.0) for name in decider.step(now_s).wake]
    assert len(set(woken)) == 3, "none waits for a pod that may never end while nodes sleep"


def test_a_pod_that_waits_too_long_gets_a_node_once_in_a_while() -> None:
    book = Book(Nobody(), owns=lambda one: True, power_of=lambda one: None)
    for i in range(4):
        book.on_node("ADDED", node(f"n{i}"))
    states = {f"n{i}": Power.ASLEEP for i in range(1, 4)}
    book.on_pod("ADDED", pod("runs", "n0", cpu="3"))
    for name, cpu in (("wide", "4"), ("half", "2"), ("other-half", "2"), ("fits", "1")):
        book.on_pod("ADDED", pod(name, cpu=cpu))
        book.since_s[f"uid-{name}"] = 0.0
    late = late_pods.Late(book)
    assert not late.pods(late_pods.PATIENCE_S - 1)
    asleep = late_pods.asleep(states, lambda view: view.node.metadata.name != "n1", book)
    found = late_pods.for_pods(late.pods(late_pods.PATIENCE_S), book.cluster.nodes, states, asleep)
    names = {node: [one.metadata.name for one in pods] for node, pods in found.items()}
    assert names == {"n2": ["wide"], "n3": ["half", "other-half"]}, "not the one that is held, none for who has room"
    for pods in found.values():
        late.helped(pods)
    again = {one.metadata.name for one in late.pods(late_pods.PATIENCE_S + 1)}
    assert again == {"fits"}, "who got a node is given time to use it"
    assert len(late.pods(2 * late_pods.PATIENCE_S)) == 4, "and is late again where others took it"


def test_frugal_nodes_are_woken_first() -> None:
    """By watts a thread when full, not by name; a node whose watts nobody knows comes last."""
    watts = {"n0": None, "n1": 200.0, "n2": 100.0, "n3": 150.0}

    def power_of(one: objects.Node) -> PowerProfile | None:
        full_w = watts[one.metadata.name]
        return None if full_w is None else PowerProfile.from_form("linear", 4, 50.0, full_w)

    book = Book(Nobody(), owns=lambda one: True, power_of=power_of)
    for name in watts:
        book.on_node("ADDED", node(name))
    states = dict.fromkeys(watts, Power.ASLEEP)
    assert late_pods.asleep(states, lambda view: True, book) == ["n2", "n3", "n1", "n0"]


@pytest.mark.slow
def test_who_is_cancelled_while_a_command_runs_ends_whenever_that_comes() -> None:
    """Else a scheduler that is told to end would wait for a node to wake, a quarter of an hour."""

    async def wake_and_wait() -> None:
        await CommandHook("true {node}", "true {node}").resume("n")
        await asyncio.Event().wait()

    async def run() -> None:
        for turns in range(24):  # of the event loop: from before the command starts to after its end is known
            task = asyncio.create_task(wake_and_wait())
            for _ in range(turns):
                await asyncio.sleep(0)
                time.sleep(0.01)  # the loop stands still, so that whatever the command does is there at the next turn
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.cancelled(), f"cancelled after {turns} turns"

    asyncio.run(run())
