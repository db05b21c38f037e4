"""Nodes that sleep by leaving their group: a played external gRPC provider over simulated nodes, all else is real."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberig import kwok
from kuberig.api import Api
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_karpenter import until
from test_scheduler import bound, pod
from under_test import Cluster

from played_provider import Played, certificates, stopped

LABELS = {"wattflow.io/sleep": "true", "wattflow.io/power-profile": "ccf.xeon-6338n-xr11"}
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/wattflow/configmaps"
CONFIG = """
[sleep]
node_groups = "{file}"
wake_s = 5
enter_s = 1
[shared]
settle_s = 0.2
[http]
port = PORT
[energy]
profiles = false
[workflows]
argo = false
[lease]
lease_namespace = "wattflow"
lease_s = 60
renew_s = 40
"""


class Cloud:
    """Runs the provider in a thread; its machines are simulated nodes, each with a name of its own."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.api, self.folder = Api.of_kubeconfig(rig.kubeconfig), folder
        self.provider = Played(self._made, self._deleted, least=1)
        self.file = folder / "cloud-config.yaml"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Cloud:
        certificates(self.folder)
        self._thread.start()
        self._server, _ = asyncio.run_coroutine_threadsafe(self.provider.serve(self.folder), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(stopped(self._server), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _made(self, id: str) -> None:
        number = int(id.rpartition("m")[2])
        (name,) = kwok.add_nodes(self.api, 1, [Shape("cloud", cpu="4", labels=LABELS)], number)
        self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"providerID": id}})

    def _deleted(self, id: str) -> None:
        self.api.delete(f"/api/v1/nodes/cloud-{id.rpartition('m')[2]}")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[Cluster, Cloud]]:
    """A cluster of its own, with two machines in the group."""
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        for folder in ("sleep", "node-groups"):
            cluster.grant_folder(folder)
        lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/wattflow-scheduler"
        rig.api.patch(role, {"rules": [*rig.api.get(role)["rules"], lease]})
        kwok.start(rig.folder, rig.processes, rig.users)
        rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
        with Cloud(rig, tmp_path) as made:
            for _ in range(2):
                made.provider.add()
            kwok.await_ready(rig.api, 2, 120)
            yield cluster, made
    finally:
        rig.stop()


def test_an_idle_node_leaves_its_group_and_another_comes_for_a_pod(cloud: tuple[Cluster, Cloud]) -> None:
    cluster, made = cloud
    api, config = cluster.api, CONFIG.replace("{file}", str(made.file))
    names = lambda: {one["metadata"]["name"] for one in api.items("/api/v1/nodes")}  # noqa: E731
    before = names()
    with OurScheduler(cluster.own(), "least-energy:sleep=1", config) as scheduler:
        until(lambda: len(names()) == 1, "no node left its group")
        until(lambda: "has its minimum of 1 nodes" in scheduler.log.read_text(), "the group's minimum was not told")
        assert made.provider.size == 1
        scheduler.stop()  # what is kept outlives the scheduler
        scheduler.start()
        api.create_many(PODS, [pod(f"p{i}", "3") for i in range(2)])
        api.await_each(PODS, bound, 2, 180)
        placed = {one["spec"]["nodeName"] for one in api.items(PODS)}
        assert placed == names() and len(placed - before) == 1, "one of them is new"
        (new,) = placed - before
        until(lambda: "wattflow.io/wake-s" in api.get(f"/api/v1/nodes/{new}")["metadata"]["annotations"], "not learned")
        until(lambda: not [one for one in api.items(MAPS) if "group" in one.get("data", {})], "it is still kept")
        assert made.provider.size == 2 and made.provider.calls.count("NodeGroupIncreaseSize") == 1
