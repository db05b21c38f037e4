"""A registered cluster: the drivers' conformance suite on a real kubelet, and jobs of a real server as pods."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kuberig import images
from kuberig.node import RealNode
from our_scheduler import SOURCES, OurScheduler
from under_test import Cluster

from wattflow.cli.kube_driver import make_agent
from wattflow.kube import access, jobs
from wattflow.kube.access import Access
from wattflow.kube.client import Client
from wattflow.kube.jobs import Template
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.transport import DirectTransport
from wattflow.store.objects import Objects
from wattflow.testing.check_driver import CHECKS, check_driver

ENVIRONMENT = {"PYTHONPATH": str(SOURCES), "HOME": "/tmp", "PATH": os.environ["PATH"]}


class KubeDriver(AgentsDriver):
    """One cluster as a driver by itself, without a server between, to be put through the conformance suite."""

    name = "kubernetes"

    def __init__(self, objects: Objects, where: Access, template: jobs.Template, folder: Path, **about: Any) -> None:
        super().__init__(lost_after_s=60.0)
        self._objects, self._access, self._template, self._about = objects, where, template, about
        self._folder = folder
        self._running: asyncio.Task[None] | None = None
        self._client: Client | None = None

    async def start(self, sink: Sink) -> None:
        """Connect to the cluster."""
        await super().start(sink)
        self._client = await Client(self._access).__aenter__()
        transport = DirectTransport(self, self._objects)
        agent = await make_agent(transport, self._client, self._template, self._folder, "kubernetes", **self._about)
        self._running = asyncio.create_task(agent.run())

    async def stop(self) -> None:
        """Let go of the cluster."""
        await super().stop()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)


def template(namespace: str, scheduler: str) -> Template:
    """Pods that see this machine's files, since the rig's only image has no Python."""
    return Template(
        namespace=namespace, image=images.BUSYBOX, pull="Never", scheduler=scheduler, prefix=("chroot", "/host"),
        mounts={"/host": "/"}, environment=ENVIRONMENT, host_network=True,
        node_selector={"node.wattflow.io/class": "real"},
    )  # fmt: skip


@pytest.mark.parametrize("scheduler", ["default-scheduler"])
def test_a_registered_cluster_keeps_the_drivers_contract(
    cluster: Cluster, real_node: RealNode, namespace: str, tmp_path: Path, scheduler: str
) -> None:
    where = access.find(cluster.kubeconfig)
    make: Any = lambda objects: KubeDriver(objects, where, template(namespace, scheduler), tmp_path / "pods")  # noqa: E731
    passed = asyncio.run(check_driver(make, tmp_path, 240))
    assert len(passed) == len(CHECKS)
    assert not cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"), "its pods were taken away"


def test_a_job_of_the_server_becomes_a_pod_of_the_asked_scheduler(
    cluster: Cluster, real_node: RealNode, namespace: str, tmp_path: Path
) -> None:
    environment = os.environ | ENVIRONMENT | {"WATTFLOW_HOME": str(tmp_path / "home")}
    wattflow = [sys.executable, "-m", "wattflow.cli"]

    def call(*words: str) -> str:
        done = subprocess.run([*wattflow, *words], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    call("up", "--port", "0", "--no-agent")
    registered = None
    try:
        from wattflow.runtime.home import Home

        home = Home(tmp_path / "home")
        words = ["kube", "register", "--server", home.url(), "--token-file", str(home.token_file("agent"))]
        words += [
            "--folder",
            str(tmp_path / "pods"),
            "--kubeconfig",
            str(cluster.kubeconfig),
            "--python",
            sys.executable,
        ]
        words += ["--image", images.BUSYBOX, "--prefix", f"chroot /host env PYTHONPATH={SOURCES}"]
        words += ["--host-path", "/:/host", "-n", namespace, "--host-network"]
        words += ["--node-selector", "node.wattflow.io/class=real"]
        with (tmp_path / "registered.log").open("wb") as log:
            registered = subprocess.Popen([*wattflow, *words], env=environment, stderr=log)
        with OurScheduler(cluster.own()):
            seen = _schedulers(cluster, namespace, call, environment)
        assert seen == {"wattflow", "default-scheduler"}
    finally:
        if registered is not None:
            registered.terminate()
            registered.wait(20)
        call("down")


def _schedulers(cluster: Cluster, namespace: str, call: Any, environment: dict[str, str]) -> set[str]:
    """Submit two commands, one for each scheduler, and see whose their pods were."""
    script = (
        "from wattflow.runtime.client import Client\n"
        "with Client(name='both') as c:\n"
        "    c.run(['sleep', '2'])\n"
        "    c.run(['sleep', '2'], environment={'WATTFLOW_SCHEDULER': 'default-scheduler'})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE)
    seen: set[str] = set()
    ends = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < ends:
        seen |= {one["spec"]["schedulerName"] for one in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")}
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    told = process.communicate()[1].decode()
    pods = [one["status"] for one in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")]
    assert process.returncode == 0, f"{told}\n{pods}"
    return seen
