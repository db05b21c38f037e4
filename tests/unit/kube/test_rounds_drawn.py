"""Drawn rounds of the scheduler's own loop in virtual time: pods, gangs, nodes and machines do what they like."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.binder import BindingEnd, Bound
from wattflow.kube.client import Client
from wattflow.levels.power_hooks import CommandHook
from wattflow.live.protocol import Power

from .making import pod

ROOT = Path(__file__).parents[3]
CONFIG = """
policy = "{policy}"
[lease]
leader_elect = false
[energy]
profiles = false
guess = true
[workflows]
argo = false
[sleep]
hook = "/bin/true"
wake_s = 60
"""
POLICIES = ("wattflow:shield=none:idle=0.25", "least-energy:sleep=5", "wattflow:shield=none")
LABELS: tuple[dict[str, str], ...] = (
    {},
    {"wattflow.io/power-profile": "ccf.xeon-6338n-xr11"},
    {"wattflow.io/speed": "x"},
)
RUNTIMES = (None, "60", "9000", "nan", "-1", "²")
NAMES = [f"n{i}" for i in range(5)]


class Play:
    """One scheduler, and what the cluster knows."""

    def __init__(self, seed: int) -> None:
        import operator_virtual as virtual

        self.draw, self.virtual = random.Random(seed), virtual
        self.live: dict[str, objects.Pod] = {}
        self.bound: dict[str, str] = {}
        self.made = 0
        client, self.clock = Client(Access("http://127.0.0.1:1")), virtual.Clock()
        text = CONFIG.format(policy=self.draw.choice(POLICIES))
        self.scheduler = scheduler_process.make(client, settings.parse(text))
        self.scheduler.clock = self.scheduler.teller.clock = lambda: self.clock.now_s
        busy = lambda name: self.scheduler.book.in_use(name, lambda one: False)  # noqa: E731
        self.machines = self.scheduler.sleeper = virtual.Machines(
            client, "wattflow", CommandHook("true", "true"), busy, self.scheduler._powered, self.scheduler._unwoken,
            at=self.clock, wake_s=60.0, enter_s=1.0,
        )  # fmt: skip
        for name in NAMES:
            self.scheduler._on_node("ADDED", self.node(name))

    def node(self, name: str, cores: int = 0) -> Any:
        return self.virtual.node(name, cores or self.draw.choice([4, 8, 16]), dict(self.draw.choice(LABELS)))

    def pass_time(self, seconds: float) -> None:
        until_s = self.clock.now_s + seconds
        while self.clock.now_s < until_s:
            for what, name in self.clock.take(until_s):
                if what == "off" and name in self.machines.states:
                    self.machines.off(name)
                elif what == "on" and self.machines.states.get(name) is Power.WAKING:
                    self.machines.on(name)

    def act(self) -> None:
        what, name = self.draw.random(), self.draw.choice(NAMES)
        if what < 0.5:
            self.come()
        elif what < 0.7 and self.live:
            self.leave(self.draw.choice(sorted(self.live)))
        elif what < 0.8 and name in self.scheduler.book.cluster.nodes:
            one = self.node(name)
            one.spec.unschedulable = self.draw.random() < 0.3
            self.scheduler._on_node("MODIFIED", one)
        elif what < 0.9:
            self.scheduler._on_node("DELETED", self.node(name))
            for uid in [uid for uid, where in self.bound.items() if where == name]:
                self.leave(uid)
            if self.draw.random() < 0.8:
                self.scheduler._on_node("ADDED", self.node(name))
        elif self.machines.states.get(name) is Power.WAKING:
            self.machines.states[name] = Power.ASLEEP
            self.scheduler._powered(name, Power.ASLEEP)
            self.scheduler._unwoken(name)

    def come(self) -> None:
        self.made += 1
        one = pod(f"p{self.made}", cpu=self.draw.choice(["1", "3", "4", "0"]), schedulerName="wattflow")
        runtime = self.draw.choice(RUNTIMES)
        one.metadata.annotations |= {"wattflow.io/runtime-s": runtime} if runtime else {}
        if self.draw.random() < 0.2:
            one.metadata.annotations |= {"wattflow.io/gang": f"g{self.made // 3}", "wattflow.io/gang-size": "2"}
        self.live[one.metadata.uid] = one
        self.scheduler._on_pod("ADDED", one)

    def leave(self, uid: str) -> None:
        self.scheduler._on_pod("DELETED", self.placed(self.live.pop(uid), self.bound.pop(uid, "")))

    def placed(self, one: objects.Pod, where: str) -> objects.Pod:
        return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=where))

    def decide(self, fails: float) -> None:
        self.scheduler.decide()
        while not self.scheduler._queue.empty():
            for uid, name, _ in self.scheduler._queue.get_nowait():
                record = self.scheduler.book.records.get(uid)
                if record is None or not record.assumed or record.node != name:
                    continue
                assert name not in self.machines.states, "bound to a node that is not on"
                assert uid not in self.bound, "bound twice"
                if self.draw.random() < fails:
                    self.scheduler._report(BindingEnd(uid, self.draw.choice([Bound.FAILED, Bound.CONFLICT]), "drawn"))
                    continue
                self.bound[uid] = name
                self.scheduler._report(BindingEnd(uid, Bound.DONE, ""))
                self.scheduler._on_pod("MODIFIED", self.placed(self.live[uid], name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_all_that_can_be_placed_is_placed_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("benchmarks", "tools/kube-rig"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    play = Play(seed)
    for _ in range(250):
        play.pass_time(play.draw.choice([0.1, 1.0, 5.0, 30.0]))
        play.act()
        play.decide(fails=0.15)
    for name in NAMES:
        play.scheduler._on_node("MODIFIED", play.node(name, cores=64))
    for _ in range(300):
        play.pass_time(1.0)
        play.decide(fails=0.0)
    alone = [
        uid for uid in play.scheduler.book.waiting if "wattflow.io/gang" not in play.live[uid].metadata.annotations
    ]
    assert not alone
    assert all(not one.assumed or uid in play.bound for uid, one in play.scheduler.book.records.items())
