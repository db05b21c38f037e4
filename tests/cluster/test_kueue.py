"""Beside Kueue: its real controller says when and within which quota and topology, our scheduler says where.

`make test-kueue` builds Kueue (four minutes) first; without it this file is not collected.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kuberig import kueue, kwok
from kuberig.api import JSON, Api
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import Cluster

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from operator_kubelets import Kubelets, hook

QUEUE = "kueue.x-k8s.io/queue-name"
BLOCK, HOST, POOL = "example.com/block", "kubernetes.io/hostname", "example.com/pool"
PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = f"{kueue.GROUP}/namespaces/default/workloads"
PROFILE = {"wattflow.io/power-profile": "ccf.xeon-6338n-xr11"}
SECTIONS = """
[http]
port = PORT
[energy]
profiles = false
[workflows]
argo = false
[lease]
lease_s = 60
renew_s = 40
"""
SLEEP = """
[sleep]
hook = "{hook}"
wake_s = 2
enter_s = 0.2
[shared]
settle_s = 0.2
"""


def block(number: int, pool: str, **labels: str) -> Shape:
    """Nodes of four cores in one block."""
    return Shape(f"{pool}-b{number}", cpu="4", labels=PROFILE | {BLOCK: f"b{number}", POOL: pool} | labels)


@pytest.fixture(scope="module")
def queued() -> Iterator[tuple[Cluster, str]]:
    """Kueue over three pools of four nodes in two blocks each: by quota alone, by topology, and those that sleep."""
    rig = Rig.start(Options(scheduler=False, node_grace_s=60), die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        cluster.grant_folder("sleep")
        cluster.grant_folder("kueue")
        command, orders = hook(rig.folder)
        kwok.start(rig.folder, rig.processes, rig.users)
        naps = {"wattflow.io/sleep": "true"}
        shapes = [
            block(n, pool, **(naps if pool == "naps" else {})) for pool in ("plain", "tas", "naps") for n in (1, 2)
        ]
        names = kwok.add_nodes(rig.api, 12, shapes)
        with Kubelets(Api.of_kubeconfig(rig.kubeconfig), orders, names, wake_s=2.0, beat_s=2.0):
            kwok.await_ready(rig.api, 12, 120)
            rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
            kueue.start(rig)
            kueue.queue(rig.api, "plain", "4", {"nodeLabels": {POOL: "plain"}})
            kueue.topology(rig.api, "blocks", [BLOCK, HOST])
            for pool in ("tas", "naps"):
                kueue.queue(rig.api, pool, "16", {"nodeLabels": {POOL: pool}, "topologyName": "blocks"})
            kueue.queue(rig.api, "dozing", "16", {"nodeLabels": {POOL: "naps"}})
            yield cluster, command
    finally:
        rig.stop()


def until(true: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    ends = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends, what
        time.sleep(0.2)


def job(name: str, queue: str, count: int, cpu: str, seconds: float, **notes: str) -> JSON:
    """A Job whose pods ask for us."""
    one = pod(name, cpu)
    about = {"annotations": {"rig.wattflow.io/seconds": str(seconds), **notes}}
    spec = {"parallelism": count, "completions": count, "template": {"metadata": about, "spec": one["spec"]}}
    return {"metadata": {"name": name, "labels": {QUEUE: queue}}, "spec": spec}


def ended(found: JSON) -> bool:
    return any(one["type"] == "Complete" for one in found.get("status", {}).get("conditions", []))


def nodes_of(api: Api, name: str) -> list[str]:
    """Nodes of a Job's pods, those that are bound."""
    mine = api.items(f"{PODS}?labelSelector=job-name%3D{name}")
    return sorted(one["spec"]["nodeName"] for one in mine if bound(one))


def clean(api: Api, *jobs: str) -> None:
    for name in jobs:
        api.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
    api.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    api.await_none(PODS, 120)


def test_jobs_wait_for_their_quota_and_are_then_bound_by_us(queued: tuple[Cluster, str]) -> None:
    cluster, _ = queued
    api = cluster.api
    with OurScheduler(cluster.own(), "least-energy", SECTIONS):
        for name in ("first", "second"):  # two pods of 1.5 cores each, where four cores are allowed
            api.create(JOBS, job(name, "plain", 2, "1500m", 4.0))
        most, left = 0, {"first", "second"}
        ends = time.monotonic() + 180
        while left and time.monotonic() < ends:
            running = [
                one for one in api.items(PODS) if bound(one) and one["status"]["phase"] in ("Pending", "Running")
            ]
            most = max(most, len(running))
            left -= {one["metadata"]["name"] for one in api.items(JOBS) if ended(one)}
            time.sleep(0.1)
        assert not left and most == 2, "never both at once"
        for name in ("first", "second"):
            assert all(one.startswith("plain") for one in nodes_of(api, name)), "the flavor's labels are obeyed"
    clean(api, "first", "second")


def test_plain_pods_stay_behind_the_gate_until_they_are_admitted(queued: tuple[Cluster, str]) -> None:
    cluster, _ = queued
    api = cluster.api
    with OurScheduler(cluster.own(), "least-energy", SECTIONS) as scheduler:
        for name in ("a", "b"):
            one = pod(name, "3", labels={QUEUE: "plain"})
            one["metadata"]["annotations"] = {"rig.wattflow.io/seconds": "5"}
            made = api.create(PODS, one)
            assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]
        until(lambda: any(map(bound, api.items(PODS))), "none was admitted")
        (waits,) = [one for one in api.items(PODS) if not bound(one)]
        assert waits["spec"]["schedulingGates"], "three of four cores are taken"
        # who stands behind a gate is nobody's to place, and is not counted among those that wait
        assert 'scheduler_pending_pods{queue="unschedulable"} 0' in scheduler.metrics()
        api.await_one(PODS, waits["metadata"]["name"], bound, 120)
    clean(api)


def test_its_topology_is_obeyed(queued: tuple[Cluster, str]) -> None:
    cluster, _ = queued
    api = cluster.api
    with OurScheduler(cluster.own(), "least-energy", SECTIONS):
        notes = {"kueue.x-k8s.io/podset-required-topology": BLOCK}
        api.create(JOBS, job("block", "tas", 4, "2", 20.0, **notes))
        until(lambda: len(nodes_of(api, "block")) == 4, "not all were bound")
        at = nodes_of(api, "block")
        (work,) = [one for one in api.items(WORKLOADS) if one["metadata"]["ownerReferences"][0]["name"] == "block"]
        assigned = work["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
        assert HOST in assigned["levels"] and len({one.rpartition("-")[0] for one in at}) == 1, at
        for one in api.items(f"{PODS}?labelSelector=job-name%3Dblock"):
            assert one["spec"]["nodeSelector"][HOST] == one["spec"]["nodeName"], "where Kueue said"
        assert sorted(at) == sorted([at[0]] * 2 + [at[-1]] * 2) and at[0] != at[-1], "two of two cores on each"
    clean(api, "block")


@pytest.mark.parametrize("queue", ["dozing", "naps"])
def test_nodes_that_sleep_are_woken_for_what_is_queued(queued: tuple[Cluster, str], queue: str) -> None:
    """By quota alone pods come and wake them; by topology Kueue counts only nodes that are on, so they are first."""
    cluster, command = queued
    api = cluster.api

    def asleep() -> int:
        return sum("wattflow.io/asleep" in one["metadata"].get("annotations", {}) for one in api.items("/api/v1/nodes"))

    text = SLEEP.replace("{hook}", command).replace("wake_s = 2", "kueue = true\nwake_s = 2") + SECTIONS
    with OurScheduler(cluster.own(), "least-energy:sleep=1", text) as scheduler:
        until(lambda: asleep() == 4, "nobody fell asleep")
        notes = {"kueue.x-k8s.io/podset-preferred-topology": BLOCK} if queue == "naps" else {}
        api.create(JOBS, job(queue, queue, 2, "3", 10.0, **notes))
        until(lambda: len(nodes_of(api, queue)) == 2, "no node woke for them")
        assert all(one.startswith("naps") for one in nodes_of(api, queue)) and asleep() >= 1, "no more than are needed"
        until(lambda: ended(api.get(f"{JOBS}/{queue}")), "its pods did not run")
        until(lambda: asleep() == 4, "they did not sleep again")
        assert scheduler.process is not None and scheduler.process.poll() is None
    clean(api, queue)
