"""The rig's real node put to sleep and woken: its kubelet and containers really go, and really come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from kuberig import node, parts
from kuberig.api import JSON
from kuberig.control import Options
from kuberig.rig import Rig
from operator_kubelets import hook
from our_scheduler import OurScheduler
from test_real_node import has_ended, real_pod
from test_sleep import CONFIG, GRACE_S, LABELS, unknown, until
from under_test import Cluster, unavailable

NODE, PODS = "real-0", "/api/v1/namespaces/default/pods"


class Machine:
    """Carries the hook's orders out on the real node; keeps when each was given and done."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.node = rig, rig.start_real_node(NODE, with_argo=False)
        self.command, self.orders = hook(rig.folder)
        self.done: list[tuple[str, float, float]] = []
        self.wrong: list[BaseException] = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    @property
    def runs(self) -> bool:
        return self.rig.processes.find(f"kubelet-{NODE}") is not None

    def _follow(self) -> None:
        while not self.ends.wait(0.1):
            lines = self.orders.read_text().split("\n")[:-1]
            for what, _, at in map(str.split, lines[len(self.done) :]):
                try:
                    if what == "sleep":
                        node.switch_off(self.node, self.rig.processes)
                    else:
                        node.switch_on(self.node, self.rig.processes, self.rig.users)
                except BaseException as error:
                    self.wrong.append(error)
                self.done.append((what, float(at), time.time()))


@pytest.fixture
def machine() -> Iterator[Machine]:
    reason, lacking = node.why_not(), [one.name for one in parts.missing(("kubelet", "containerd"))]
    if reason or lacking:
        unavailable(reason or f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    # not with the calling thread: the one that switches the node on is another, and ends before the test does
    rig = Rig.start(Options(scheduler=False, node_grace_s=GRACE_S))
    try:
        found = Machine(rig)
        yield found
        found.ends.set()
        found.thread.join(60)
    finally:
        rig.stop()


def at_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_a_kubelet_goes_away_and_a_pod_brings_it_back(machine: Machine) -> None:
    rig, api = machine.rig, machine.rig.api
    cluster = Cluster(api, rig.kubeconfig, rig)
    cluster.grant_folder("sleep")
    api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
    api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": LABELS}})
    this = lambda: api.get(f"/api/v1/nodes/{NODE}")  # noqa: E731
    with OurScheduler(rig, "least-energy:sleep=1", CONFIG.replace("{hook}", machine.command)):
        until(lambda: unknown(this()), "the real node did not fall silent")
        assert not machine.runs, "its kubelet has ended"
        assert this()["metadata"]["annotations"]["wattflow.io/asleep"] == "wattflow"
        body: JSON = real_pod("wakes", "echo awake")
        body["spec"]["schedulerName"] = "wattflow"
        api.create(PODS, body)
        done = api.await_one(PODS, "wakes", has_ended, 180)
        assert done["status"]["phase"] == "Succeeded", done["status"]
        assert machine.node.logs("default", "wakes", done["metadata"]["uid"])["main"].strip() == "awake"
        assert not machine.wrong
        assert [what for what, _, _ in machine.done] == ["sleep", "wake"]
        _, ordered_s, up_s = machine.done[1]
        bound_s = next(
            at_s(one["lastTransitionTime"]) for one in done["status"]["conditions"] if one["type"] == "PodScheduled"
        )
        assert bound_s >= int(up_s), "bound before its kubelet was there"
        ready = next(one for one in this()["status"]["conditions"] if one["type"] == "Ready")
        assert ready["status"] == "True" and at_s(ready["lastTransitionTime"]) >= int(ordered_s), "an old word"
        api.delete(f"{PODS}/wakes", 0)
        until(lambda: not machine.runs and unknown(this()), "no second sleep")
