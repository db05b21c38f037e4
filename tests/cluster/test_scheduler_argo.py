"""A real Argo workflow of real programs through our scheduler to containers, and back as WfFormat with energy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberig import argo as argo_part
from kuberig import cgroups, images
from kuberig.api import JSON
from kuberig.node import RealNode
from our_scheduler import SOURCES, OurScheduler
from test_argo import PROGRAMS, expected_report, workflow
from test_scheduler_deploy import applied
from under_test import Cluster

from wattflow import traces
from wattflow.model.workflow import File, Task, Variant, Workflow
from wattflow.traces import documents, wfformat

__all__ = ["applied"]
CONFIG = "[http]\nport = PORT\n[energy]\nprofiles = true\n[workflows]\nargo = true\n"
PROFILES = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"


@pytest.fixture(scope="module")
def ours(cluster: Cluster, argo: None, applied: None) -> Iterator[OurScheduler]:
    with OurScheduler(cluster.own(), text=CONFIG) as scheduler:
        yield scheduler


@pytest.fixture
def profile(cluster: Cluster, real_node: RealNode, applied: None) -> Iterator[None]:
    spec = {"nodes": [real_node.name], "busy": [0, 1, 2], "watts": [40, 60, 70], "source": "made up for the test"}
    kind = {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile"}
    cluster.api.create(PROFILES, kind | {"metadata": {"name": "real"}, "spec": spec})
    yield
    cluster.api.delete(f"{PROFILES}/real")


def run(*words: str, kubeconfig: Path) -> str:
    """The command line as a user has it."""
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-m", "wattflow.cli", *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_real_programs_go_through_our_scheduler_and_come_back_with_energy(
    cluster: Cluster,
    ours: OurScheduler,
    real_node: RealNode,
    profile: None,
    namespace: str,
    tmp_path: Path,
    cpu_times: cgroups.CpuTimes,
) -> None:
    tmp_path.chmod(0o777)
    name = argo_part.submit(cluster.api, namespace, workflow(tmp_path, "wattflow"))
    done = argo_part.await_end(cluster.api, namespace, name, 240)
    assert done["status"]["phase"] == "Succeeded", done["status"].get("message")
    assert [line.split()[0] for line in (tmp_path / "report").read_text().splitlines()] == expected_report()

    cpu, out = tmp_path / "cpu.json", tmp_path / "back.json"
    cpu.write_text(json.dumps(cpu_times.seconds))
    said = run("kube", "collect", name, str(out), "-n", namespace, "--cpu", str(cpu), kubeconfig=cluster.kubeconfig)
    assert "4 tasks" in said and "J modelled" in said
    back = wfformat.read_document(out)
    tasks = {task.id: task for task in back.tasks}
    assert {id: set(task.parents) for id, task in tasks.items()} == {
        id: set(after) for id, (after, _) in PROGRAMS.items()
    }
    pods = {one["metadata"]["annotations"]["workflows.argoproj.io/node-name"].split(".")[1]: one
            for one in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")}  # fmt: skip
    for id, task in tasks.items():
        assert task.machine == real_node.name
        decision = json.loads(pods[id]["metadata"]["annotations"]["wattflow.io/decision"])
        assert decision["added_w"] > 0
        seconds = cpu_times.seconds[pods[id]["metadata"]["uid"]]
        # one busy thread of this node adds 20 W, a second one 10 W more
        assert task.energy_j is not None and 5 * seconds < task.energy_j < 20.5 * seconds, (id, seconds, task.energy_j)
    said = run("kube", "explain", pods["sorted"]["metadata"]["name"], "-n", namespace, kubeconfig=cluster.kubeconfig)
    assert f"on {real_node.name}" in said and "added" in said
    said = run("kube", "status", "--lease", "kube-system/wattflow", kubeconfig=cluster.kubeconfig)
    assert "led by" in said and "W modelled on 1 nodes" in said


def test_a_recorded_workflow_converts_to_a_manifest_that_runs(
    cluster: Cluster, ours: OurScheduler, real_node: RealNode, namespace: str, tmp_path: Path
) -> None:
    small = Variant(cores=0.1, memory_bytes=16 << 20)
    tasks = (
        Task("first one", "a", "make", 1.2, (small,), outputs=("x",)),
        Task("left", "b", "work", 0.3, (small,), parents=("first one",), inputs=("x",)),
        Task("right", "c", "work", 1.0, (small,), parents=("first one",), inputs=("x",)),
        Task("last", "d", "join", 0.2, (small,), parents=("left", "right")),
    )
    recorded = tmp_path / "wf.json"
    traces.save(documents.to_workload([Workflow("small one", tasks, (File("x", 9),))], "w"), recorded)
    manifest = tmp_path / "wf.argo.yaml"
    run("convert", str(recorded), str(manifest), kubeconfig=cluster.kubeconfig)

    import yaml

    document: JSON = yaml.safe_load(manifest.read_text())
    document["spec"] |= {"schedulerName": "wattflow", "nodeSelector": {"node.wattflow.io/class": "real"}}
    document["spec"]["arguments"]["parameters"][0]["value"] = images.BUSYBOX
    name = argo_part.submit(cluster.api, namespace, document)
    done = argo_part.await_end(cluster.api, namespace, name, 240)
    assert done["status"]["phase"] == "Succeeded", done["status"].get("message")
    out = tmp_path / "back.json"
    run("kube", "collect", name, str(out), "-n", namespace, kubeconfig=cluster.kubeconfig)
    back = wfformat.read_document(out)
    assert {task.id: set(task.parents) for task in back.tasks} == {task.id: set(task.parents) for task in tasks}
    assert {task.id: task.function for task in back.tasks} == {task.id: task.function for task in tasks}
    assert back.name == "small one"
    assert all(
        one["spec"]["schedulerName"] == "wattflow" for one in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    )
