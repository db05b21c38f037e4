"""The Go harness answers with kube-scheduler's own filters: one hand-made case per filter."""

from __future__ import annotations

import json
import subprocess

import pytest
from kuberig import parts
from kuberig.api import JSON
from under_test import unavailable

ZONE = "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", pods: str = "10", **spec: object) -> JSON:
    amount = {"cpu": cpu, "memory": "8Gi", "pods": pods, "example.com/gpu": "1"}
    labels = {"kubernetes.io/hostname": name, ZONE: f"z-{name}"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": amount}}


def pod(name: str = "new", node: str | None = None, cpu: str = "1", **spec: object) -> JSON:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    body: JSON = {"containers": [container], **spec}
    if node:
        body["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}}, "spec": body}


def port(number: int) -> list[JSON]:
    return [{"name": "main", "image": "i", "ports": [{"containerPort": number, "hostPort": number}]}]


def apart(key: str) -> JSON:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


SPREAD = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
SPREAD[0]["labelSelector"] = {"matchLabels": {"app": "a"}}
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
VOLUME: list[JSON] = [
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
        "status": {"phase": "Bound"},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "hostPath": {"path": "/v"},
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"kind": "PersistentVolumeClaim", "name": "c", "namespace": "default"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
                    ]
                }
            },
        },
        "status": {"phase": "Bound"},
    },
]

CASES: dict[str, JSON] = {
    "everything fits": {"pod": pod(), "nodes": [node("a"), node("b")], "expect": {}},
    "a node is cordoned": {
        "pod": pod(),
        "nodes": [node("a", unschedulable=True), node("b")],
        "expect": {"a": "NodeUnschedulable"},
    },
    "a taint": {
        "pod": pod(),
        "nodes": [node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), node("b")],
        "expect": {"a": "TaintToleration"},
    },
    "a selector": {
        "pod": pod(nodeSelector={"kubernetes.io/hostname": "b"}),
        "nodes": [node("a"), node("b")],
        "expect": {"a": "NodeAffinity"},
    },
    "another's CPUs": {
        "pod": pod(cpu="2"),
        "nodes": [node("a"), node("b")],
        "pods": [pod("old", "a", cpu="3")],
        "expect": {"a": "NodeResourcesFit"},
    },
    "pods that have ended hold nothing": {
        "pod": pod(cpu="2"),
        "nodes": [node("a")],
        "pods": [{**pod("old", "a", cpu="3"), "status": {"phase": "Succeeded"}}],
        "expect": {},
    },
    "the count of pods": {
        "pod": pod(),
        "nodes": [node("a", pods="1"), node("b")],
        "pods": [pod("old", "a")],
        "expect": {"a": "NodeResourcesFit"},
    },
    "a port": {
        "pod": pod(containers=port(80)),
        "nodes": [node("a"), node("b")],
        "pods": [pod("old", "a", containers=port(80))],
        "expect": {"a": "NodePorts"},
    },
    "anti-affinity": {
        "pod": pod(affinity=apart("kubernetes.io/hostname")),
        "nodes": [node("a"), node("b")],
        "pods": [pod("old", "a")],
        "expect": {"a": "InterPodAffinity"},
    },
    "the anti-affinity of a pod that is there": {
        "pod": pod(),
        "nodes": [node("a"), node("b")],
        "pods": [pod("old", "a", affinity=apart("kubernetes.io/hostname"))],
        "expect": {"a": "InterPodAffinity"},
    },
    "topology spread": {
        "pod": pod(topologySpreadConstraints=SPREAD),
        "nodes": [node("a"), node("b")],
        "pods": [pod("old", "a")],
        "expect": {"a": "PodTopologySpread"},
    },
    "a volume that only one node can reach": {
        "pod": pod(volumes=[CLAIM]),
        "nodes": [node("a"), node("b")],
        "objects": VOLUME,
        "expect": {"a": "VolumeBinding"},
    },
    "a claim that does not exist": {
        "pod": pod(volumes=[CLAIM]),
        "nodes": [node("a")],
        "expect": {"a": "VolumeRestrictions"},
    },
    "a gate": {
        "pod": pod(schedulingGates=[{"name": "g"}]),
        "nodes": [node("a")],
        "expect": {"a": "SchedulingGates"},
    },
}


def ask(lines: list[str]) -> list[JSON]:
    if parts.missing(("parity",)):
        unavailable("the rig lacks the parity harness (`make kube-rig`)")
    done = subprocess.run([parts.program("parity")], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def answers() -> dict[str, JSON]:
    lines = [json.dumps({"id": name, **case}) for name, case in CASES.items()]
    return {answer["id"]: answer for answer in ask(lines)}


@pytest.mark.parametrize("name", CASES)
def test_each_filter_speaks(answers: dict[str, JSON], name: str) -> None:
    answer = answers[name]
    assert "error" not in answer, answer
    assert {node: why["plugin"] for node, why in answer["rejected"].items()} == CASES[name]["expect"], answer
    names = [n["metadata"]["name"] for n in CASES[name]["nodes"]]
    assert answer["feasible"] == [n for n in names if n not in CASES[name]["expect"]]


def test_a_broken_case_is_an_answer_with_an_error_in_its_place() -> None:
    good = {"id": 1, "pod": pod(), "nodes": [node("a")]}
    bad = {"id": 2, "pod": {"spec": 5}, "nodes": []}
    found = ask([json.dumps(good), "nonsense", json.dumps(bad), json.dumps({**good, "id": 3})])
    assert [answer["id"] for answer in found] == [1, None, 2, 3]
    assert ["error" in answer for answer in found] == [False, True, True, False]
