"""What Argo's users asked for: gangs, a workflow's priority among pods that wait, one workflow before the next."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kuberig import argo as argo_part
from kuberig import images
from kuberig.api import JSON
from kuberig.kwok import Shape
from our_scheduler import OurScheduler
from under_test import Cluster

SLOT = Shape("slot", cpu="1", memory="8Gi", pods="20")
CONFIG = "[http]\nport = PORT\n[energy]\nprofiles = false\n[workflows]\nargo = true\nfinish_first = FIRST\n"


def fan(name: str, count: int, priority: int = 0, **annotations: str) -> JSON:
    """A workflow of so many equal pods of one second, each of which takes a whole node."""
    notes = {"rig.wattflow.io/seconds": "1", **annotations}
    requests = {"cpu": "600m", "memory": "32Mi"}
    leaf = {
        "name": "leaf",
        "metadata": {"annotations": notes},
        "nodeSelector": {"node.wattflow.io/class": "slot"},
        "container": {"image": images.BUSYBOX, "command": ["never"], "resources": {"requests": requests}},
    }
    steps = [[{"name": "work", "template": "leaf", "withSequence": {"count": str(count)}}]]
    spec = {
        "entrypoint": "all",
        "schedulerName": "wattflow",
        "serviceAccountName": argo_part.ACCOUNT,
        "priority": priority,
        "templates": [{"name": "all", "steps": steps}, leaf],
    }
    return {"metadata": {"name": name}, "spec": spec}


def begun_ms(cluster: Cluster, namespace: str) -> list[tuple[int, str]]:
    """When each pod began and of which workflow it is, in order of time."""
    found = []
    for pod in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"):
        at = {one["type"]: one.get("message") for one in pod["status"].get("conditions", [])}
        if "rig.wattflow.io/Began" in at:
            workflow = pod["metadata"]["labels"]["workflows.argoproj.io/workflow"]
            found.append((int(at["rig.wattflow.io/Began"] or 0), workflow))
    return sorted(found)


def order_of(cluster: Cluster, namespace: str, *flows: JSON) -> list[str]:
    """Submit workflows one after another, wait for all, and tell in which order their pods began."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = 0
    for flow in flows:
        argo_part.submit(cluster.api, namespace, flow)
        made += int(flow["spec"]["templates"][0]["steps"][0][0]["withSequence"]["count"])
        cluster.api.await_each(pods, lambda one: True, made, 60)
    for flow in flows:
        done = argo_part.await_end(cluster.api, namespace, flow["metadata"]["name"], 120)
        assert done["status"]["phase"] == "Succeeded", done["status"].get("message")
    return [workflow for _, workflow in begun_ms(cluster, namespace)]


def test_a_workflows_priority_counts_among_pods_that_wait(
    cluster: Cluster, argo: None, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(1, [SLOT])
    with OurScheduler(cluster.own(), text=CONFIG.replace("FIRST", "false")):
        order = order_of(cluster, namespace, fan("plain", 6), fan("urgent", 3, priority=10))
    print(order)
    first = order.index("urgent")
    assert order[first : first + 3] == ["urgent"] * 3, "the urgent pods go before those of the other that wait"
    assert order[-1] == "plain"


@pytest.mark.parametrize("first", ["true", "false"])
def test_older_first_if_asked(
    cluster: Cluster, argo: None, kwok_nodes: Callable[..., list[str]], namespace: str, first: str
) -> None:
    kwok_nodes(2, [SLOT])
    config = CONFIG.replace("FIRST", first)
    with OurScheduler(cluster.own(), policy="sjf", text=config):
        # by expected runtime alone the second workflow would overtake the first
        older, newer = fan("older", 6), fan("newer", 4)
        older["spec"]["templates"][1]["metadata"]["annotations"]["wattflow.io/runtime-s"] = "50"
        newer["spec"]["templates"][1]["metadata"]["annotations"]["wattflow.io/runtime-s"] = "1"
        order = order_of(cluster, namespace, older, newer)
    print(order)
    assert (order == ["older"] * 6 + ["newer"] * 4) == (first == "true"), order


def test_a_gang_of_a_workflow_starts_together(
    cluster: Cluster, argo: None, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(3, [SLOT])
    gang = {"wattflow.io/gang": "g", "wattflow.io/gang-size": "3", "rig.wattflow.io/seconds": "2"}
    with OurScheduler(cluster.own(), text=CONFIG.replace("FIRST", "false")):
        order_of(cluster, namespace, fan("loose", 4), fan("together", 3, 0, **gang))
    began = [at for at, workflow in begun_ms(cluster, namespace) if workflow == "together"]
    print(f"the gang began within {max(began) - min(began)} ms")
    assert max(began) - min(began) < 1900, "all three run at once"


def test_priorities_that_know_the_dag(
    cluster: Cluster, argo: None, kwok_nodes: Callable[..., list[str]], namespace: str
) -> None:
    kwok_nodes(1, [SLOT])
    flow = fan("dag", 1, 0, **{"wattflow.io/runtime-s": "1"})
    after = {"root": [], "alone": ["root"], "b": ["root"], "c": ["b"], "d": ["c"]}
    tasks = [{"name": name, "template": "leaf", "dependencies": needs} for name, needs in after.items()]
    flow["spec"]["templates"][0] = {"name": "all", "dag": {"tasks": tasks}}
    with OurScheduler(cluster.own(), policy="heft", text=CONFIG.replace("FIRST", "false")):
        argo_part.submit(cluster.api, namespace, flow)
        done = argo_part.await_end(cluster.api, namespace, "dag", 120)
        assert done["status"]["phase"] == "Succeeded", done["status"].get("message")
    began = {}
    for pod in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"):
        at = {one["type"]: one.get("message") for one in pod["status"]["conditions"]}
        name = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].removeprefix("dag.")
        began[name] = int(at["rig.wattflow.io/Began"])
    order = sorted(began, key=began.__getitem__)
    print(order)
    assert order[:2] == ["root", "b"], "what a long chain waits for goes first, though nothing of the chain exists yet"
