"""kube-scheduler asks our extender: it binds, by our policy's choice, within our caps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from kuberig.kwok import LABEL, VALUE, Shape
from kuberig.rig import Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import Cluster

DEAR, CHEAP = "ccf.xeon-8480-rx2540", "ccf.altra-q80-30"
PLAYED = {LABEL: VALUE}  # another test's real node may be there
CONFIG = """mode = "extender"
[http]
port = PORT
[energy]
profiles = false
{more}
[workflows]
argo = false
"""


@pytest.fixture
def extended(cluster: Cluster) -> Iterator[Callable[[str], OurScheduler]]:
    """`extended(more)` starts our extender and a kube-scheduler that asks it; the usual one comes back afterwards."""
    rig: Rig = cluster.own()
    with contextlib.ExitStack() as stack:
        yield lambda more: _start(rig, stack, more)


def _start(rig: Rig, stack: contextlib.ExitStack, more: str) -> OurScheduler:
    ours = stack.enter_context(OurScheduler(rig, text=CONFIG.format(more=more)))
    # on a busy machine five seconds may be too few, and kube-scheduler goes by its own scores without an answer
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 10, "httpTimeout": "60s"}
    rig.stop_scheduler()
    stack.callback(rig.start_scheduler)
    stack.callback(rig.stop_scheduler)
    rig.start_scheduler(extenders=[{"urlPrefix": f"{ours.url}/extender", "nodeCacheCapable": True, **verbs}])
    return ours


def test_pods_of_kube_scheduler_go_where_our_policy_wants_them(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], extended: Callable[..., OurScheduler]
) -> None:
    labels = "wattflow.io/power-profile"
    dear, cheap = Shape("dear", cpu="4", labels={labels: DEAR}), Shape("cheap", cpu="4", labels={labels: CHEAP})
    kwok_nodes(4, (dear, cheap))
    extended("")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    kinds = []
    for i in range(10):
        cluster.api.create(pods, pod(f"p{i}", cpu="1", scheduler="default-scheduler", nodeSelector=PLAYED))
        kinds.append(cluster.api.await_one(pods, f"p{i}", bound, 120)["spec"]["nodeName"].rsplit("-", 1)[0])
    # eight cores are cheap; what is left over goes to the dear ones, since it is kube-scheduler that filters
    assert kinds == ["cheap"] * 8 + ["dear"] * 2


def test_a_cap_keeps_pods_of_kube_scheduler_waiting_with_the_reason(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], extended: Callable[..., OurScheduler]
) -> None:
    kwok_nodes(1, (Shape("dear", cpu="4", labels={"wattflow.io/power-profile": DEAR}),))
    extended("node_cap_w = 100")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, pod("capped", cpu="1", scheduler="default-scheduler", nodeSelector=PLAYED))

    def told(found: dict[str, object]) -> bool:
        conditions = found["status"].get("conditions", [])  # type: ignore[attr-defined]
        return any("power cap" in one.get("message", "") for one in conditions)

    assert not bound(cluster.api.await_one(pods, "capped", told, 120))
