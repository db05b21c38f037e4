"""A real cluster for tests: the rig of this machine, or any cluster that KUBECONFIG names.

`pytest` and `make test` leave this folder out; `make test-cluster` (or naming it) runs it. Without Go and without a
cluster the tests skip and say so; with WATTFLOW_REQUIRE=1 they fail instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kuberig import argo as argo_part
from kuberig import cgroups, kwok, node, parts
from kuberig.api import Api
from kuberig.rig import CONTROL_PLANE, Rig
from under_test import Cluster, unavailable


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only those who name this folder mean it: a cluster is no part of `make test`."""
    named = any("cluster" in Path(argument.split("::")[0]).parts for argument in config.args)
    if collection_path.name in ("test_image.py", "test_install.py") and not os.environ.get("WATTFLOW_IMAGE"):
        return True  # `make test-image` builds the image, which takes minutes, and names it
    if collection_path.name == "test_karpenter.py" and not os.environ.get("WATTFLOW_KARPENTER"):
        return True  # `make test-karpenter` builds it first: what runs must not depend on what was built before
    if collection_path.name == "test_kueue.py" and not os.environ.get("WATTFLOW_KUEUE"):
        return True  # likewise `make test-kueue`
    if collection_path.name == "test_volcano.py" and not os.environ.get("WATTFLOW_VOLCANO"):
        return True  # likewise `make test-volcano`
    return None if named else True


@pytest.fixture(autouse=True, scope="module")
def _leaves_no_process() -> None:
    """Nothing to look for here: the rig and its nodes run from the first module that needs them to the last."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The rig's control plane with kube-scheduler, or the cluster of KUBECONFIG."""
    named = os.environ.get("KUBECONFIG")
    if named:
        yield Cluster(Api.of_kubeconfig(Path(named)), Path(named), None)
        return
    lacking = [part.name for part in parts.missing(CONTROL_PLANE)]
    if lacking:
        unavailable(f"no cluster: KUBECONFIG is not set and the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    rig = Rig.start(die_with_parent=True)
    try:
        yield Cluster(rig.api, rig.kubeconfig, rig)
    finally:
        rig.stop()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; its pods go with it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:50].strip("-")
    argo_part.prepare_namespace(cluster.api, name)
    yield name
    cluster.api.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    cluster.api.delete(f"/api/v1/namespaces/{name}")
    cluster.api.await_none(f"/api/v1/namespaces/{name}/pods", 120)  # they hold nodes whose names come again


@pytest.fixture
def kwok_nodes(cluster: Cluster) -> Iterator[Callable[..., list[str]]]:
    """`kwok_nodes(n, shapes)` adds simulated nodes, waits for them, and takes them away after the test."""
    rig = cluster.own()
    if parts.missing(("kwok",)):
        unavailable("the rig lacks kwok (`make kube-rig`)")

    def add(count: int, shapes: Sequence[kwok.Shape] = (kwok.Shape(),)) -> list[str]:
        return rig.add_kwok_nodes(count, shapes)

    yield add
    rig.remove_kwok_nodes()


@pytest.fixture(scope="session")
def real_node(cluster: Cluster) -> node.RealNode:
    """A node that really executes pods."""
    rig = cluster.own()
    reason = node.why_not()
    lacking = [part.name for part in parts.missing(("kubelet", "containerd"))]
    if reason or lacking:
        unavailable(reason or f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    return rig.start_real_node(with_argo=not parts.missing(("argo",)))


@pytest.fixture(scope="session")
def argo(cluster: Cluster) -> None:
    """Argo's workflow-controller at the cluster's side."""
    rig = cluster.own()
    if parts.missing(("argo",)):
        unavailable("the rig lacks Argo (`make kube-rig`)")
    rig.start_argo(requeue_s=1.0)


@pytest.fixture
def cpu_times(real_node: node.RealNode) -> Iterator[cgroups.CpuTimes]:
    """CPU seconds per pod of the real node, also of those that have ended since the test began."""
    with cgroups.CpuTimes(real_node.cgroup) as times:
        yield times
