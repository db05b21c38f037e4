"""The rig's control plane: quick to start, gone when stopped, and strict about who may do what."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberig.api import JSON, Api, ApiError
from kuberig.control import Options
from kuberig.machine import Machine, process_cpu_s
from kuberig.parts import HERE, KUBERNETES
from kuberig.processes import wait_until
from kuberig.rig import CONTROL_PLANE, Rig
from under_test import Cluster


def test_the_api_server_says_its_version(cluster: Cluster) -> None:
    version = cluster.api.get("/version")
    assert version["major"] == "1"
    if cluster.rig:
        assert version["gitVersion"] == f"v{KUBERNETES}"


def test_the_control_plane_is_up_within_five_seconds(cluster: Cluster) -> None:
    """Five seconds of a machine of its own: the share of the CPUs that other work took meanwhile is taken off."""
    cluster.own()
    machine = Machine()
    rig = Rig.start(die_with_parent=True)
    try:
        others = machine.others_share(process_cpu_s(process.pid for process in rig.processes.running))
        own_s = rig.start_s * (1 - others)
        print(f"control plane up in {rig.start_s:.2f} s, others had {others:.0%} of the CPUs: {own_s:.2f} s")
        assert own_s <= 5.0
    finally:
        rig.stop()


def test_stopping_leaves_no_process_and_no_folder(cluster: Cluster) -> None:
    cluster.own()
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    started = list(rig.processes.running)
    assert [process.name for process in started] == list(CONTROL_PLANE[:3])
    assert all(process.alive for process in started)
    rig.stop()
    assert not any(process.alive for process in started)
    assert not rig.folder.exists()


def test_everything_ends_with_a_parent_that_is_killed(cluster: Cluster) -> None:
    cluster.own()
    program = "import sys, time; from kuberig.rig import Rig; print(Rig.start(die_with_parent=True).folder, flush=True)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{program}; time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert parent.stdout is not None
    rig = Rig.attach(Path(parent.stdout.readline().strip()))
    started = list(rig.processes.running)
    assert len(started) == len(CONTROL_PLANE) and all(process.alive for process in started)
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: not any(process.alive for process in started), 10)
    rig.stop()


def test_the_schedulers_account_may_bind_and_nothing_more(cluster: Cluster, namespace: str) -> None:
    api = Api.of_kubeconfig(cluster.own().scheduler_kubeconfig)
    assert api.items("/api/v1/nodes") is not None
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("DELETE", f"{pods}/any"),
        ("DELETE", "/api/v1/nodes/any"),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ):
        with pytest.raises(ApiError) as refused:
            api.request(method, path)
        assert refused.value.status == 403, (method, path)
    with pytest.raises(ApiError) as refused:
        api.create(pods, {"metadata": {"name": "intruder"}, "spec": {"containers": [{"name": "a", "image": "b"}]}})
    assert refused.value.status == 403
    with pytest.raises(ApiError) as missing:  # allowed to ask, but there is no such pod
        api.create(f"{pods}/none/binding", {"metadata": {"name": "none"}, "target": {"kind": "Node", "name": "n"}})
    assert missing.value.status == 404


def test_no_token_no_entry(cluster: Cluster) -> None:
    rig = cluster.own()
    stranger = Api(rig.api.server, rig.api._context)
    with pytest.raises(ApiError) as refused:
        stranger.get("/api/v1/nodes")
    assert refused.value.status == 401


def test_a_watch_that_the_server_ends_goes_on_where_it_was(cluster: Cluster, namespace: str) -> None:
    """As when a reader falls behind: the server closes the stream, and no event may be lost or come twice."""

    class Cut(Api):
        def _watch_once(self, path: str, timeout_s: float, query: dict[str, str]) -> Iterator[JSON]:
            yield next(super()._watch_once(path, timeout_s, query))

    api = Cut.of_kubeconfig(cluster.kubeconfig)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    names = [f"map-{i}" for i in range(10)]
    seen: list[str] = []
    cluster.api.create(maps, {"metadata": {"name": names[0]}})
    for event in api.watch(maps, 30):
        if event["object"]["metadata"]["name"] in names:
            seen.append(event["object"]["metadata"]["name"])
            if len(seen) == len(names):
                break
            cluster.api.create(maps, {"metadata": {"name": names[len(seen)]}})
    assert seen == names
