"""Nodes that sleep through a real command: cordoned, never with pods on them, woken for pods and ahead of workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects, process, settings, sleeping
from wattflow.kube.access import Access
from wattflow.kube.argo.watching import Flows
from wattflow.kube.client import Client
from wattflow.kube.decide import EngineDecider
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.sleeping import ASLEEP, Sleeper
from wattflow.live.protocol import Power

from .making import node, pod
from .test_decide import add, flow_pod, submitted, want


class Patches(Client):
    """A client that keeps what is written to nodes and says yes."""

    def __init__(self) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.patches: list[tuple[str, Any]] = []

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        self.patches.append((path.rsplit("/", 1)[1], body))
        return b"{}"


def hook(folder: Path, body: str = "exit 0") -> str:
    """A command that writes down how it was called."""
    path = folder / "hook"
    path.write_text(f'#!/bin/sh\necho "$1 $2" >> {folder}/calls\n{body}\n')
    path.chmod(0o755)
    return str(path)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().split("\n")[:-1] if path.exists() else []


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def marked(one: objects.Node, is_ready: bool) -> objects.Node:
    """A node as the API shows it while it sleeps by our order."""
    notes = {ASLEEP: "wattflow"}
    condition = objects.Condition(type="Ready", status="True" if is_ready else "Unknown")
    return msgspec.structs.replace(
        one,
        metadata=msgspec.structs.replace(one.metadata, annotations=notes),
        spec=objects.NodeSpec(unschedulable=True, taints=[objects.Taint(key="node.kubernetes.io/unreachable")]),
        status=msgspec.structs.replace(one.status, conditions=[condition]),
    )


def test_asleep_and_awake_again(tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", hook(tmp_path), lambda name: False,
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        assert not sleeper.awake("n")
        await until(lambda: bool(told))
        assert told == [("n", Power.ASLEEP)] and calls(tmp_path) == ["sleep n"]
        assert client.patches == [
            ("n", {"metadata": {"annotations": {ASLEEP: "wattflow"}}, "spec": {"unschedulable": True}})
        ]
        seen = sleeper.seen("MODIFIED", marked(node("n"), is_ready=False))
        assert not seen.spec.unschedulable and not seen.spec.taints, "one that sleeps by our order may be chosen"
        sleeper.wake("n")
        await until(lambda: len(calls(tmp_path)) == 2)
        assert not sleeper.awake("n"), "awake when its kubelet says so, not when the command has ended"
        sleeper.seen("MODIFIED", marked(node("n"), is_ready=True))
        await until(lambda: len(told) == 2)
        assert told[1] == ("n", Power.ON) and sleeper.awake("n") and calls(tmp_path) == ["sleep n", "wake n"]
        assert client.patches[-1][1]["spec"] == {"unschedulable": False}

    asyncio.run(run())


def test_a_pod_that_came_meanwhile_and_a_command_that_fails_leave_the_node_on(tmp_path: Path) -> None:
    told: list[tuple[str, Power]] = []
    looks = iter([False, True])  # empty when asked, in use after the cordon

    async def run() -> None:
        client = Patches()
        sleeper = Sleeper(client, "wattflow", hook(tmp_path, "exit 3"), lambda name: next(looks, False),
                          lambda name, state: told.append((name, state)), settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        await until(lambda: len(told) == 1)
        assert told == [("n", Power.ON)] and calls(tmp_path) == []
        sleeper.sleep("n")
        await until(lambda: len(told) == 2)
        assert told[1] == ("n", Power.ON) and calls(tmp_path) == ["sleep n"]
        assert [body["spec"]["unschedulable"] for _, body in client.patches] == [True, False, True, False]

    asyncio.run(run())


def test_a_node_that_does_not_wake_is_told(tmp_path: Path) -> None:
    lost: list[str] = []

    async def run() -> None:
        sleeper = Sleeper(Patches(), "wattflow", hook(tmp_path), lambda name: False, lambda name, state: None,
                          lost.append, settle_s=0.0, wake_limit_s=0.2)  # fmt: skip
        sleeper.seen("ADDED", marked(node("n"), is_ready=False))
        assert sleeper.states == {"n": Power.ASLEEP}, "of a scheduler before us"
        sleeper.wake("n")
        await until(lambda: bool(lost))
        assert lost == ["n"] and sleeper.states == {"n": Power.ASLEEP}

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

    name = next(one.name for one in profiles.list_profiles() if one.shipped)
    chosen = settings.parse(CONFIG.format(hook=hook(tmp_path), profile=name))
    now = [0.0]

    async def run() -> None:
        scheduler: Scheduler = process.make(Patches(), chosen)
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
        scheduler._on_node("MODIFIED", marked(node("n", {sleeping.MAY_SLEEP: "true"}), is_ready=True))
        await until(lambda: not scheduler._queue.empty())
        assert scheduler._queue.get_nowait()[0][:2] == ("uid-p", "n")

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
