"""Beside Volcano: its real controllers and scheduler on the same nodes as ours, and its jobs placed by us.

`make test-volcano` builds Volcano first; without it this file is not collected.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kuberig import volcano
from kuberig.api import JSON, Api
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from test_scheduler_safety import QUICK_LEASE, requested
from under_test import Cluster

NODES, CORES = 8, 4
PODS, JOBS = "/api/v1/namespaces/default/pods", volcano.JOBS.format("default")
THEIRS, OURS = "volcano", "wattflow"
CLAIMS = QUICK_LEASE + "[shared]\nclaim = true\nsettle_s = 3\nrelease_s = 6\n"


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    """Volcano over eight nodes of four cores; no kube-scheduler."""
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        cluster = Cluster(rig.api, rig.kubeconfig, rig)
        cluster.grant_folder("claims")
        rig.add_kwok_nodes(NODES, [Shape("small", cpu=str(CORES), memory="8Gi", pods="20")])
        rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 60)
        volcano.start(rig)
        yield cluster
    finally:
        rig.stop()


@pytest.fixture
def beside(started: Cluster) -> Iterator[Cluster]:
    """The same with nothing on it, before each test."""
    yield started
    api = started.api
    for one in api.items(JOBS):
        api.request("DELETE", f"{JOBS}/{one['metadata']['name']}?propagationPolicy=Background")
    until(lambda: not api.items(JOBS), "its jobs stay")
    api.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    api.await_none(PODS, 120)


def template(scheduler: str, seconds: float, cpu: str = "1", **notes: str) -> JSON:
    """The pods of a job."""
    about = {"annotations": {"rig.wattflow.io/seconds": str(seconds), **notes}}
    return {"metadata": about, "spec": pod("any", cpu, scheduler)["spec"]}


def of_job(api: Api, name: str) -> list[JSON]:
    return api.items(f"{PODS}?labelSelector=volcano.sh/job-name%3D{name}")


def told(one: JSON) -> str:
    """Return the message of a pod that waits."""
    said = [kind for kind in one["status"].get("conditions", []) if kind["type"] == "PodScheduled"]
    return str(said[0].get("message", "")) if said else ""


def until(true: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 120
    while not true():
        assert time.monotonic() < ends, what
        time.sleep(0.1)


def test_both_fill_the_same_nodes_at_once_without_overcommit(beside: Cluster) -> None:
    """Half of what is asked fits: gangs of two by Volcano, single pods by us."""
    api = beside.api
    with OurScheduler(beside.own(), text=CLAIMS):
        for i in range(NODES * CORES // 2):
            api.create(JOBS, volcano.job(f"gang{i}", 2, 2, template(THEIRS, 600)))
            api.create_many(PODS, [pod(f"ours{2 * i + j}", "1", OURS) for j in (0, 1)])
            time.sleep(0.5)  # Volcano decides once a second: both have something under way all along
        ends, most, by = time.monotonic() + 180, Counter[str](), Counter[str]()
        while sum(by.values()) < NODES * CORES and time.monotonic() < ends:
            found = api.items(PODS)
            most |= requested(found)
            by = Counter(one["spec"]["schedulerName"] for one in found if bound(one))
            time.sleep(0.2)
        time.sleep(5)  # what either had under way
        most |= requested(api.items(PODS))
    assert set(most.values()) == {1000 * CORES} and len(most) == NODES, most
    assert min(by[THEIRS], by[OURS]) >= 4, by
    print(f"bound by each: {dict(by)}")


def test_a_job_of_its_that_names_us_is_placed_by_us_and_ends(beside: Cluster) -> None:
    api = beside.api
    with OurScheduler(beside.own()):
        api.create(JOBS, volcano.job("named", 3, 1, template(OURS, 2)))
        until(lambda: volcano.phase(api, "default", "named") == "Completed", "it did not end")
        made = of_job(api, "named")
        assert len(made) == 3 and all("wattflow.io/decision" in one["metadata"]["annotations"] for one in made)


def test_its_pods_start_together_by_our_annotations_alone(beside: Cluster) -> None:
    """Its queue has room for all; the nodes have it for two pods of three, later for three of four."""
    api = beside.api
    api.create_many(PODS, [pod(f"fills{i}", "3", THEIRS) for i in range(NODES - 1)])
    api.await_each(PODS, bound, NODES - 1, 120)
    gang = {"wattflow.io/gang": "whole", "wattflow.io/gang-size": "3"}
    with OurScheduler(beside.own()):
        api.create(JOBS, volcano.job("whole", 3, 3, template(OURS, 600, "2", **gang)))
        until(lambda: len([one for one in of_job(api, "whole") if told(one)]) == 3, "not all were told")
        assert not any(map(bound, of_job(api, "whole"))), "all or none"
        api.delete(f"{PODS}/fills0", grace_s=0)
        until(lambda: all(map(bound, of_job(api, "whole"))), "the third has room now")
        api.delete(f"{PODS}/fills1", grace_s=0)
        api.create(JOBS, volcano.job("apart", 4, 4, template(OURS, 600, "2")))
        until(lambda: len([one for one in of_job(api, "apart") if bound(one)]) == 3, "minAvailable is not ours to read")

        def notes() -> list[str]:
            return [one["note"] for one in api.items("/apis/events.k8s.io/v1/namespaces/default/events")]

        until(lambda: any("scheduling.k8s.io/group-name is not read" in one for one in notes()), "it was not told")
