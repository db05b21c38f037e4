"""Clocks that the scheduler orders: a real API server, the levels pod's process on a played tree, our scheduler.

All of `deploy/levels` is applied, and both processes have the rights of their accounts there and no others. The
DaemonSet's pod is KWOK's; what it would run is a process beside, with a token that is bound to that pod.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kuberig import parts
from kuberig.api import Api, ApiError
from kuberig.kwok import Shape
from kuberig.rig import CONTROL_PLANE, Rig
from our_scheduler import SOURCES, OurScheduler
from test_scheduler import bound, pod
from test_scheduler_deploy import documents, path_of
from under_test import Cluster, unavailable

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.kube.level_orders import BY, LASTS_S
from wattflow.kube.node_levels import ORDER, STATUS

NODE, PODS, CAP_W = "/api/v1/nodes/clocked-0", "/api/v1/namespaces/default/pods", 230
CONFIG = """
[http]
port = PORT
[energy]
profiles = false
levels = true
default_profile = "ccf:xeon-6338n-xr11"
[workflows]
argo = false
[lease]
leader_elect = false
"""


@pytest.fixture
def clocked() -> Iterator[Cluster]:
    """A cluster with two nodes that have levels pods, and nothing else that draws."""
    lacking = [part.name for part in parts.missing((*CONTROL_PLANE, "kwok"))]
    if lacking:
        unavailable(f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    rig = Rig.start(die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        for document in (*documents("base"), *documents("levels")):
            if document["kind"] != "Deployment":  # the scheduler is a process of the test's
                rig.api.create(path_of(document), document, exists_ok=True)
        rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
        rig.add_kwok_nodes(2, [Shape("clocked", cpu="4", memory="8Gi", labels={"wattflow.io/levels": "true"})])
        yield cluster
    finally:
        rig.stop()


def until(true: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends, what
        time.sleep(0.1)


def token(api: Api, namespace: str, account: str, pod: dict[str, Any] | None = None) -> str:
    """A token of an account, as a pod of it has it mounted."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    spec: dict[str, Any] = {}
    if pod is not None:
        about = pod["metadata"]
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(api.create(path, asked)["status"]["token"])


def kubeconfig(rig: Rig, told: str, path: Path) -> Path:
    """A file that names the rig's API server and a token."""
    known = json.loads(rig.kubeconfig.read_text())
    known["users"][0]["user"] = {"token": told}
    path.write_text(json.dumps(known))
    return path


def refused(api: Api, path: str, note: str, why: str) -> bool:
    """Whether an annotation of a node may not be written, for this reason."""
    try:
        api.patch(path, {"metadata": {"annotations": {note: str(time.time_ns())}}})
    except ApiError as error:
        assert why in str(error), error
        return True
    return False


def test_a_clock_is_ordered_set_and_given_back_by_real_processes(clocked: Cluster, tmp_path: Path) -> None:
    api, rig = clocked.api, clocked.own()
    tree, at = play_sysfs(tmp_path / "sys"), "/api/v1/namespaces/wattflow-levels/pods"
    api.await_each(at, bound, 2, 60)
    (mine,) = [one for one in api.items(at) if one["spec"]["nodeName"] == "clocked-0"]
    bearer = token(api, "wattflow-levels", "wattflow-levels", mine)
    account = Api(api.server, api._context, bearer)
    # A policy takes effect a while after it was written.
    until(lambda: refused(account, NODE, "wattflow.io/mine", "only the annotation"), "any annotation may be written")
    assert refused(account, NODE.replace("-0", "-1"), STATUS, "only the node that the pod is on")

    def notes() -> dict[str, str]:
        found: dict[str, str] = api.get(NODE)["metadata"].get("annotations", {})
        return found

    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        "KUBECONFIG": str(kubeconfig(rig, bearer, tmp_path / "levels.kubeconfig")),
        "NODE_NAME": "clocked-0",
        "WATTFLOW_SYSFS": str(tree),
        "WATTFLOW_LEVELS": str(tmp_path / "notes"),
    }
    ours = kubeconfig(rig, token(api, "wattflow", "wattflow-scheduler"), tmp_path / "scheduler.kubeconfig")
    policy, more = f"power-cap:watts={CAP_W}", ["--kubeconfig", str(ours)]
    agent = subprocess.Popen([sys.executable, "-m", "wattflow.kube.node_levels"], env=environment)
    try:
        until(lambda: "cpu-policy0.clock_mhz" in notes().get(STATUS, ""), "the levels pod has not answered")
        with OurScheduler(rig, policy, CONFIG, more=more) as scheduler:
            # The other node, whose levels pod does not answer, must not take them.
            api.patch(NODE.replace("-0", "-1"), {"spec": {"unschedulable": True}})
            api.create_many(PODS, [pod(f"p{i}", "1900m") for i in range(2)])
            until(lambda: ceiling_khz(tree) < FULL_KHZ, "no clock was set")
            order = json.loads(notes()[ORDER])
            assert notes()[BY] == "wattflow" and ceiling_khz(tree) == ceiling_khz(tree, 1) <= 1e3 * order["clock_mhz"]
            scheduler.stop(hard=True)
            until_s = json.loads(notes()[ORDER])["until_s"]
            until(lambda: ceiling_khz(tree) == FULL_KHZ, "an order outlives its scheduler", LASTS_S + 15)
            assert time.time() >= until_s, "given back before its end"
            scheduler.start()
            until(lambda: ceiling_khz(tree) < FULL_KHZ, "no clock was set after a restart")
            scheduler.stop()
            until(lambda: ceiling_khz(tree) == FULL_KHZ, "not given back by a scheduler that ends")
            assert ORDER not in notes() and BY not in notes()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0 and STATUS not in notes()
    finally:
        agent.kill()
        agent.wait()
