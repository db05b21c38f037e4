"""Jobs as pods: what a pod says, how its end is told, and which jobs a cluster refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.client import Client
from wattflow.kube.jobs import Job, Jobs, Template, manifest

from .making import pod

NOWHERE = Client(Access("http://127.0.0.1:9"))


def test_a_pod_says_what_its_job_needs_and_who_places_it() -> None:
    template = Template(
        scheduler="wattflow", prefix=("chroot", "/host"), mounts={"/host": "/"}, claims={"/shared": "work"},
        environment={"A": "1", "B": "1"},
    )  # fmt: skip
    job = Job(
        name="j", command=["sh", "-c", "true"], cpus=1.5, memory_bytes=1 << 30, gpus=1, estimate_s=30.0,
        environment={"B": "2"},
    )  # fmt: skip
    body = manifest(job, template)
    (container,) = body["spec"]["containers"]
    assert container["command"] == ["chroot", "/host", "sh", "-c", "true"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": str(1 << 30), "nvidia.com/gpu": "1"}
    assert container["resources"]["limits"] == {"memory": str(1 << 30), "nvidia.com/gpu": "1"}
    assert {one["name"]: one["value"] for one in container["env"]} == {"A": "1", "B": "2"}
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/host", "/shared"}
    assert body["spec"]["schedulerName"] == "wattflow" and body["spec"]["restartPolicy"] == "Never"
    assert body["metadata"]["annotations"] == {"wattflow.io/runtime-s": "30"}
    other = manifest(Job(name="j", command=["x"], scheduler="default-scheduler"), template)
    assert other["spec"]["schedulerName"] == "default-scheduler"


def test_an_end_is_told_once_with_phase_and_code() -> None:
    async def whole() -> None:
        jobs = Jobs(NOWHERE, Template())
        loop = asyncio.get_running_loop()
        done, lost = loop.create_future(), loop.create_future()
        jobs._ends = {"done": done, "lost": lost}
        jobs._on_pod("MODIFIED", pod("done", "n", status={"phase": "Running"}))
        assert not done.done()
        status = {"phase": "Failed", "containerStatuses": [{"name": "m", "state": {"terminated": {"exitCode": 3}}}]}
        jobs._on_pod("MODIFIED", pod("done", "n", status=status))
        assert (done.result().phase, done.result().code) == ("Failed", 3)
        jobs._on_pod("DELETED", pod("done", "n", status=status))
        jobs._on_pod("DELETED", pod("lost", "n", status={"phase": "Running"}))
        assert lost.result().phase == "Deleted" and not jobs._ends

    asyncio.run(whole())


def test_what_no_node_could_hold_is_refused_before_a_pod_is_made(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from wattflow.cli.kube_driver import Pods
    from wattflow.runtime import messages as m
    from wattflow.runtime.executors.process import AttemptWork

    async def whole() -> None:
        pods = Pods(Jobs(NOWHERE, Template()), tmp_path)
        pods.largest = 4.0
        spec = m.Task(key="t", name="t", command=["true"], variants=[m.Variant(cpus=8.0)])
        lease = m.Lease(fence=1, task=1, number=1, node="kubernetes", workflow="w", spec=spec)
        end = await pods.run(lease, AttemptWork(fence=1), None)
        assert end.outcome == "refused" and "largest node has 4" in (end.reason or "")

    asyncio.run(whole())


def test_watts_of_nodes_are_due_where_they_are_missing_or_have_changed() -> None:
    from wattflow.kube.book import Book
    from wattflow.kube.engine_decider import EngineDecider
    from wattflow.kube.power import NodePowerProfile, NodePowerSpec, Watts
    from wattflow.kube.publish import RESOURCE, Publisher

    from .making import node

    watts = Watts(node_cap_w=150.0)
    spec = NodePowerSpec(nodes=["a"], busy=[0, 4], watts=[50, 200.5])
    watts.on_profile("ADDED", NodePowerProfile(metadata=objects.Metadata(name="c"), spec=spec))
    book = Book(EngineDecider("fifo"), lambda one: False, watts.profile_of)
    for name in ("a", "unknown"):
        book.on_node("ADDED", node(name))
    publisher = Publisher(NOWHERE, book, watts)
    assert [(one.metadata.name, number) for one, number in publisher.due()] == [("a", 150)]
    told = node("a", allocatable={RESOURCE: "150"})
    told.status.capacity = {RESOURCE: "150"}
    book.on_node("MODIFIED", told)
    assert publisher.due() == []
    watts.node_cap_w = None
    book.on_node("MODIFIED", node("a", {"changed": "yes"}, allocatable={RESOURCE: "150"}))
    assert [number for _, number in publisher.due()] == [200]
