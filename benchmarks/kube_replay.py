"""One workload under one policy, on the rig and in the simulator: the same jobs, nodes, curves and measures.

On the rig the API server, our scheduler and the bindings are real; nodes are KWOK's, and a pod lasts its job's runtime
over the node's speed. Energy of both is each node's curve at its busy cores, idle watts included, from the first
release to the last end; on the rig busy is what the log of begins and ends says.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kube_measure as measure
import numpy as np
import yaml
from kube_measure import OURS, ROOT
from kuberig.api import JSON
from kuberig.kwok import Shape
from kuberig.rig import Rig

from wattflow.kube.engine_decider import as_requested
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workload import Workload
from wattflow.sim import simulate

SECONDS = "rig.wattflow.io/seconds"
PROFILES = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one policy came to."""

    energy_j: float
    makespan_s: float
    mean_s: float
    p95_s: float


def kind_of(node: Node) -> str:
    """Nodes are called KIND-NUMBER."""
    return node.name.rpartition("-")[0]


def prepare(rig: Rig, cluster: Cluster) -> None:
    """Nodes and their curves on the rig."""
    crd = yaml.safe_load((ROOT / "deploy" / "base" / "nodepowerprofile.yaml").read_text())
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    rig.api.create(path, crd, exists_ok=True)
    rig.api.await_one(path, crd["metadata"]["name"], _established, 60)
    for kind, group in itertools.groupby(cluster.nodes, kind_of):
        nodes = list(group)
        first = nodes[0]
        labels = {f"feature-{one}": "true" for one in first.features} | {"wattflow.io/speed": f"{first.speed:g}"}
        shape = Shape(kind, cpu=str(first.cores), memory=str(first.memory_bytes), pods="1000", labels=labels)
        rig.add_kwok_nodes(len(nodes), [shape])
        assert first.power is not None
        spec = {"nodes": [one.name for one in nodes], "busy": list(first.power.busy), "watts": list(first.power.watts)}
        body = {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": kind}}
        rig.api.create(PROFILES, {**body, "spec": spec})


def _established(found: JSON) -> bool:
    said = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Established" and one["status"] == "True" for one in said)


def pod(name: str, workload: Workload, task: int, speeds: Mapping[str, float]) -> JSON:
    """One job as a pod."""
    variant = workload.shapes[workload.shape[task]].variants[0]
    runtime_s = float(workload.runtime_s[task])
    body = measure.pod(name, OURS)
    by_kind = {kind: round(runtime_s / speed, 3) for kind, speed in speeds.items()}
    body["metadata"]["annotations"] = {SECONDS: json.dumps(by_kind), "wattflow.io/runtime-s": f"{runtime_s:.3f}"}
    body["spec"] |= {"restartPolicy": "Never", "nodeSelector": {f"feature-{one}": "true" for one in variant.features}}
    needs = {"cpu": f"{round(1000 * variant.cores)}m", "memory": str(max(1 << 20, variant.memory_bytes))}
    body["spec"]["containers"][0]["resources"]["requests"] = needs
    return body


def on_rig(rig: Rig, policy: str, workload: Workload, cluster: Cluster, patience_s: float) -> Measured:
    """Create the pods as their jobs are released, wait for all, read the log."""
    speeds = {kind_of(node): node.speed for node in cluster.nodes}
    with measure.ours(policy, profiles=True)(rig), measure.namespace(rig, f"replay-{policy}") as space:
        path = f"/api/v1/namespaces/{space}/pods"
        warm = pod("warm", workload, 0, speeds)
        warm["metadata"]["annotations"][SECONDS] = "0.1"
        rig.api.create(path, warm)
        rig.api.await_one(path, "warm", _ended, 240)
        began_s, created_s = time.time(), np.zeros(len(workload))
        for task in range(len(workload)):
            time.sleep(max(0.0, began_s + float(workload.release_s[task]) - time.time()))
            created_s[task] = time.time()
            rig.api.create(path, pod(f"j{task}", workload, task, speeds))
        rig.api.await_each(path, _ended, len(workload) + 1, patience_s)
        found = [one for one in rig.api.items(path) if one["metadata"]["name"] != "warm"]
    rows = [_row(one) for one in found]
    ends = {name: ended for name, _, _, _, ended in rows}
    responses = [ends[f"j{task}"] - created_s[task] for task in range(len(workload))]
    first_s, last_s = float(created_s.min()), max(ends.values())
    joules = energy_j(cluster.nodes, [(node, cores, b, e) for _, node, cores, b, e in rows], first_s, last_s)
    return _measured(joules, last_s - first_s, responses)


def _measured(joules: float, makespan_s: float, responses: Sequence[float]) -> Measured:
    return Measured(joules, makespan_s, statistics.fmean(responses), float(np.percentile(responses, 95)))


def _ended(found: JSON) -> bool:
    return bool(found["status"].get("phase") == "Succeeded")


def _row(found: JSON) -> tuple[str, str, float, float, float]:
    said = {one["type"]: one.get("message") for one in found["status"]["conditions"]}
    began, ended = (int(said[f"rig.wattflow.io/{what}"]) / 1000 for what in ("Began", "Ended"))
    cpu = found["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    cores = int(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    return found["metadata"]["name"], found["spec"]["nodeName"], cores, began, ended


def energy_j(
    nodes: Sequence[Node], rows: Sequence[tuple[str, float, float, float]], first_s: float, last_s: float
) -> float:
    """Joules of all nodes between two moments, from who was busy where and when."""
    total = 0.0
    for node in nodes:
        assert node.power is not None
        own = [row for row in rows if row[0] == node.name]
        changes = [(began, cores) for _, cores, began, _ in own] + [(ended, -cores) for _, cores, _, ended in own]
        busy, at_s = 0.0, first_s
        for when_s, more in [*sorted(changes), (last_s, 0.0)]:
            total += node.power.at(min(max(0.0, busy), float(node.cores))) * (when_s - at_s)
            busy, at_s = busy + more, when_s
    return total


def simulated(policy: str, workload: Workload, cluster: Cluster, seed: int = 0) -> Measured:
    """The same in the simulator, the policy as it runs on Kubernetes."""
    run = simulate(workload, cluster, as_requested(policy), seed=seed)
    responses = run.end_s_by_task() - workload.release_s
    return _measured(run.total_j, float(run.makespan_s), list(map(float, responses)))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, equal values sharing their mean rank."""
    first, second = _ranks(one), _ranks(other)
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]


def write(path: Path, found: Mapping[str, Mapping[str, Measured]]) -> None:
    """All measures, for whoever wants to look closer."""
    path.parent.mkdir(exist_ok=True)
    plain = {
        where: {name: {key: getattr(one, key) for key in one.__slots__} for name, one in policies.items()}
        for where, policies in found.items()
    }
    path.write_text(json.dumps(plain, indent=1) + "\n")


def read(path: Path) -> dict[str, dict[str, Measured]]:
    """What `write` wrote; nothing where there is no file."""
    if not path.exists():
        return {}
    return {
        where: {name: Measured(**one) for name, one in policies.items()}
        for where, policies in json.loads(path.read_text()).items()
    }
