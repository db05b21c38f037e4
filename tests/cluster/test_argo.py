"""A real Argo workflow of real programs: from submission to containers, and back with each pod's CPU time."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberig import argo as argo_part
from kuberig import cgroups, images
from kuberig.api import JSON
from kuberig.kwok import Shape
from kuberig.node import RealNode
from under_test import Cluster

LINES = 60_000
# awk writes pseudo-random numbers, sort and gzip work on them beside each other, sha256sum reports on both.
PROGRAMS = {
    "numbers": (
        [],
        f"awk 'BEGIN {{ x = 1; for (i = 0; i < {LINES}; i++) {{ x = (x * 16807) % 2147483647; print x }} }}' > numbers",
    ),
    "sorted": (["numbers"], "sort -n numbers > sorted"),
    "packed": (["numbers"], "gzip -c numbers > packed.gz"),
    "report": (["sorted", "packed"], "sha256sum sorted > report; gunzip -c packed.gz | sha256sum >> report"),
}


def workflow(folder: Path, scheduler: str) -> JSON:
    """The four tasks as an Argo workflow; they share a folder of the node."""
    tasks = [{"name": n, "template": n, "dependencies": after} for n, (after, _) in PROGRAMS.items()]
    return {
        "metadata": {"generateName": "numbers-"},
        "spec": {
            "entrypoint": "all",
            "schedulerName": scheduler,
            "serviceAccountName": argo_part.ACCOUNT,
            "hostNetwork": True,
            "nodeSelector": {"node.wattflow.io/class": "real"},
            "volumes": [{"name": "shared", "hostPath": {"path": str(folder), "type": "Directory"}}],
            "templates": [
                {"name": "all", "dag": {"tasks": tasks}},
                *(_template(n, s) for n, (_, s) in PROGRAMS.items()),
            ],
        },
    }


def _template(name: str, script: str) -> JSON:
    container = {
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"set -e; cd /shared; {script}"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}},
    }
    return {"name": name, "container": container}


def expected_report() -> list[str]:
    """What the programs must find, worked out here."""
    x, numbers = 1, []
    for _ in range(LINES):
        x = x * 16807 % 2147483647
        numbers.append(x)
    texts = ("".join(f"{n}\n" for n in order) for order in (sorted(numbers), numbers))
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o777)
    yield tmp_path


@pytest.mark.parametrize("scheduler", ["default-scheduler"])
def test_a_workflow_of_real_programs_runs_to_its_end(
    cluster: Cluster,
    argo: None,
    real_node: RealNode,
    namespace: str,
    shared_folder: Path,
    cpu_times: cgroups.CpuTimes,
    scheduler: str,
) -> None:
    name = argo_part.submit(cluster.api, namespace, workflow(shared_folder, scheduler))
    done = argo_part.await_end(cluster.api, namespace, name, 180)
    assert done["status"]["phase"] == "Succeeded", done["status"].get("message")

    report = [line.split()[0] for line in (shared_folder / "report").read_text().splitlines()]
    assert report == expected_report()
    assert len(gzip.decompress((shared_folder / "packed.gz").read_bytes()).splitlines()) == LINES

    pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    used: dict[str, float] = {}
    for pod in pods:
        assert pod["spec"]["nodeName"] == real_node.name
        assert pod["spec"]["schedulerName"] == scheduler
        task = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].removeprefix(f"{name}.")
        used[task] = cpu_times.seconds[pod["metadata"]["uid"]]
    print("CPU seconds by task:", {task: round(seconds, 3) for task, seconds in used.items()})
    assert set(used) == set(PROGRAMS)
    assert all(seconds > 0.01 for seconds in used.values())


def test_tasks_of_a_workflow_on_simulated_nodes_last_as_their_node_says(
    cluster: Cluster, argo: None, kwok_nodes, namespace: str
) -> None:
    kwok_nodes(2, [Shape("slow", labels={"speed": "slow"}), Shape("fast", labels={"speed": "fast"})])
    annotations = {"rig.wattflow.io/seconds": '{"slow": 3, "fast": 1}'}
    container = {"image": images.BUSYBOX, "command": ["never", "run"]}
    templates: list[JSON] = [
        {
            "name": speed,
            "metadata": {"annotations": annotations},
            "nodeSelector": {"speed": speed},
            "container": container,
        }
        for speed in ("slow", "fast")
    ]
    tasks = [
        {"name": "first", "template": "slow"},
        {"name": "second", "template": "fast", "dependencies": ["first"]},
        {"name": "third", "template": "slow", "dependencies": ["first"]},
    ]
    spec = {"entrypoint": "all", "serviceAccountName": argo_part.ACCOUNT}
    document = {
        "metadata": {"generateName": "timed-"},
        "spec": {**spec, "templates": [{"name": "all", "dag": {"tasks": tasks}}, *templates]},
    }
    name = argo_part.submit(cluster.api, namespace, document)
    done = argo_part.await_end(cluster.api, namespace, name, 120)
    assert done["status"]["phase"] == "Succeeded", done["status"].get("message")
    lasted: dict[str, float] = {}
    for pod in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"):
        at = {c["type"]: c.get("message") for c in pod["status"]["conditions"]}
        task = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].removeprefix(f"{name}.")
        lasted[task] = (int(at["rig.wattflow.io/Ended"]) - int(at["rig.wattflow.io/Began"])) / 1000
    for task, wanted in {"first": 3.0, "second": 1.0, "third": 3.0}.items():
        assert wanted <= lasted[task] + 0.005 < wanted + 1.5, lasted
