"""The way in and out by the commands of docs/install.md: shadow, what it would have saved, on for one class, off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from kuberig.api import JSON
from kuberig.kwok import Shape
from our_scheduler import SOURCES, OurScheduler
from test_scheduler import bound, pod
from test_scheduler_safety import ONLY_THERE
from under_test import Cluster

from wattflow.kube.power import name_as_label

FRUGAL, HUNGRY = "ccf:epyc-9654p-dl325", "ccf:xeon-8480-rx2540"
SECTIONS = "[http]\nport = PORT\n[energy]\nprofiles = false\n[workflows]\nargo = false\n"


def typed(cluster: Cluster, *words: str, code: int = 0) -> str:
    """What `wattflow kube …` prints for the administrator, on its error output where it ends with another code."""
    line = [sys.executable, "-m", "wattflow.cli", "kube", *words, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(
        line, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(SOURCES)}, timeout=120
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def plain(name: str, **labels: str) -> JSON:
    return pod(name, scheduler="default-scheduler", nodeSelector=ONLY_THERE, labels=labels)


def test_from_an_empty_cluster_to_a_saving_and_back(
    cluster: Cluster, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    label = "wattflow.io/power-profile"
    shapes = [Shape("small", cpu="8", labels={label: name_as_label(HUNGRY)} | ONLY_THERE),
              Shape("small-frugal", cpu="8", labels={label: name_as_label(FRUGAL)} | ONLY_THERE)]  # fmt: skip
    kwok_nodes(4, shapes)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    assert "ccf-coefficients" in typed(cluster, "profiles")
    shadow = f'mode = "shadow"\nshadow_namespace = "{namespace}"\n' + SECTIONS
    with OurScheduler(cluster.own(), "least-energy", shadow) as scheduler:
        cluster.api.create_many(pods, [plain(f"before{i}", **{"class": "batch"}) for i in range(8)])
        cluster.api.await_each(pods, bound, 8, 60)
        for _ in range(60):  # what was bound is compared when the watch has told of it
            said = typed(cluster, "savings", "--scheduler", scheduler.url)
            if "8 pods compared" in said:
                break
        assert "8 pods compared" in said and "would have saved" in said
    offered = cluster.api.get("/apis/admissionregistration.k8s.io/v1")["resources"]
    if not any(one["name"] == "mutatingadmissionpolicies" for one in offered):  # before 1.36 (`make test-versions`)
        said = typed(cluster, "enable", namespace, "--selector", "class=batch", code=2)
        assert "is not served (Kubernetes 1.36" in said and "set schedulerName by hand" in said, said
        assert "is not served" in typed(cluster, "disable", namespace, "--selector", "class=batch", code=2)
        return
    with OurScheduler(cluster.own(), "least-energy", SECTIONS):
        assert "go to wattflow" in typed(cluster, "enable", namespace, "--selector", "class=batch")
        try:
            assert f"enabled for {namespace} class=batch wattflow" in typed(cluster, "status")
            taken = _until(cluster, pods, "wattflow")
            decided = cluster.api.await_one(pods, taken, bound, 60)["metadata"]["annotations"]
            assert "wattflow.io/decision" in decided
            other = cluster.api.create(pods, plain("web", **{"class": "web"}))
            assert other["spec"]["schedulerName"] == "default-scheduler", "only the class that was named"
        finally:
            said = typed(cluster, "disable", namespace, "--selector", "class=batch")
        assert "new pods go to the default scheduler" in said
        _until(cluster, pods, "default-scheduler")


def _until(cluster: Cluster, pods: str, scheduler: str) -> str:
    """Make pods of the class until one asks for a scheduler: a policy takes effect a while after it was written."""
    for turn in range(300):
        name = f"{scheduler}-{turn}"
        made = cluster.api.create(pods, plain(name, **{"class": "batch"}))
        if made["spec"]["schedulerName"] == scheduler:
            return name
        cluster.api.delete(f"{pods}/{name}", 0)
        time.sleep(0.3)
    raise AssertionError(f"no pod asked for {scheduler}")
