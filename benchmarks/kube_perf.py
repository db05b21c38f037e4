"""Workloads of Kubernetes' scheduler_perf on the rig, under kube-scheduler (client limit lifted) and under ours.

Upstream runs them inside one process against an API server of its own; here the same operations (nodes, namespaces,
pods, in that order, from the same files of the rig's version) are played by the rig's load program against the real
one, so rates are lower for both and only their ratio counts. Workloads with other operations (churn, drivers, updates)
are not played, nor templates that count (`{{.Index}}`); they are named. Nodes and their pods are only objects: no
kubelet, not even a simulated one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import kube_measure as measure
import yaml
from kuberig import load
from kuberig.api import JSON
from kuberig.parts import HERE
from kuberig.rig import Rig

OPERATIONS = {"createNodes", "createPods", "createNamespaces", "createPodSets", "barrier"}
FIELDS = {
    "opcode", "count", "countParam", "namespace", "collectMetrics", "podTemplatePath", "nodeTemplatePath", "prefix",
    "namespaceTemplatePath", "createPodsOp", "namespacePrefix", "labelNodePrepareStrategy",
}  # fmt: skip
KUBE, OURS = "kube-scheduler", "wattflow"
_READY = [{"type": "Ready", "status": "True"}]


@dataclass(frozen=True, slots=True)
class Workload:
    """One test of a file with the numbers of one of its workloads."""

    name: str
    folder: Path
    operations: list[JSON]
    template: str
    params: dict[str, int]
    size: str

    def count(self, operation: JSON) -> int:
        """How many an operation makes."""
        return int(
            self.params[operation["countParam"].lstrip("$")] if "countParam" in operation else operation["count"]
        )

    def read(self, path: str) -> JSON:
        """A template of the suite."""
        found: JSON = yaml.safe_load((self.folder / path).read_text())
        return found


def folder() -> Path:
    """scheduler_perf of the module that the rig's Kubernetes is built from."""
    words = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    found = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "test" / "integration" / "scheduler_perf"


def workloads(sizes: Sequence[str]) -> tuple[list[Workload], list[str]]:
    """Of each test that can be played the first of these sizes that it has; the other tests, with what they lack."""
    found, other = [], []
    for path in sorted(folder().rglob("performance-config.yaml")):
        for test in yaml.safe_load(path.read_text()):
            operations, name = test["workloadTemplate"], f"{path.parent.name}/{test['name']}"
            strange = {one["opcode"] for one in operations} - OPERATIONS
            strange |= {key for one in operations for key in one} - FIELDS
            strange |= {"counted template" for one in _templates(path.parent, test) if "{{" in one.read_text()}
            named = {one["name"]: one["params"] for one in test["workloads"]}
            size = next((one for one in sizes if one in named), None)
            if strange or size is None:
                lacks = ", ".join(sorted(strange)) or f"has {', '.join(named)}"
                other.append(f"{name} ({lacks})")
                continue
            template = test.get("defaultPodTemplatePath", "")
            found.append(Workload(name, path.parent, operations, template, named[size], size))
    return found, other


def _templates(where: Path, test: JSON) -> list[Path]:
    """Files that a test makes objects from."""
    named = [one[key] for one in test["workloadTemplate"] for key in one if key.endswith("TemplatePath")]
    return [
        where / str(name) for name in (test.get("defaultPodTemplatePath", ""), *named) if (where / str(name)).is_file()
    ]


@dataclass(slots=True)
class Player:
    """Plays one workload for one scheduler on a fresh rig."""

    rig: Rig
    workload: Workload
    scheduler: str
    nodes: int = 0
    spaces: int = 0
    rates: list[float] = field(default_factory=list)

    def play(self) -> float:
        """Pods a second of what the workload measures."""
        for operation in self.workload.operations:
            getattr(self, f"_{operation['opcode']}")(operation)
        return self.rates[-1]

    def _barrier(self, operation: JSON) -> None:
        """Everything before has been waited for."""

    def _createNodes(self, operation: JSON) -> None:
        template = self.workload.read(operation.get("nodeTemplatePath", "../templates/node-default.yaml"))
        labels = operation.get("labelNodePrepareStrategy", {})
        values = labels.get("labelValues", [""])
        bodies = []
        for number in range(self.nodes, self.nodes + self.workload.count(operation)):
            body: JSON = json.loads(json.dumps(template))
            name = f"perf-{number}"
            about = body["metadata"].get("labels", {}) | {"kubernetes.io/hostname": name}
            if labels:
                about[labels["labelKey"]] = values[number % len(values)]
            body["metadata"] = {"name": name, "labels": about}
            room = body["status"]["capacity"]
            body["status"] = {"capacity": room, "allocatable": room, "conditions": _READY}
            bodies.append(body)
        self.nodes += len(bodies)
        measure.all_taken(load.send(self.rig, [load.create("/api/v1/nodes", one) for one in bodies]))

    def _createNamespaces(self, operation: JSON) -> None:
        path = operation.get("namespaceTemplatePath")
        labels = self.workload.read(path)["metadata"].get("labels", {}) if path else {}
        for number in range(self.workload.count(operation)):
            self._space(f"{operation['prefix']}-{number}", labels)

    def _space(self, name: str, labels: JSON) -> None:
        self.rig.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}, exists_ok=True)
        self.rig.api.await_one(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True, 60)

    def _createPodSets(self, operation: JSON) -> None:
        for number in range(self.workload.count(operation)):
            inner = operation["createPodsOp"] | {"namespace": f"{operation['namespacePrefix']}-{number}"}
            self._createPods(inner)

    def _createPods(self, operation: JSON) -> None:
        space, count = operation.get("namespace") or f"space-{self.spaces}", self.workload.count(operation)
        self.spaces += 1
        self._space(space, {})
        body = self.workload.read(operation.get("podTemplatePath", self.workload.template))
        body["spec"]["schedulerName"] = self.scheduler
        body["metadata"].pop("generateName", None)
        bodies = []
        for number in range(count):
            body["metadata"]["name"] = f"pod-{self.spaces}-{number}"
            bodies.append(load.create(f"/api/v1/namespaces/{space}/pods", json.loads(json.dumps(body))))
        with measure.watching(self.rig, space) as binds:
            measure.all_taken(load.send(self.rig, bodies))
            binds.await_all(count, self.scheduler)
        if operation.get("collectMetrics"):
            self.rates.append(binds.rate())


def measured(workload: Workload, who: str) -> float:
    """Pods a second of a workload under one scheduler. Raises NotBound."""
    rig = Rig.start(measure.OPTIONS, die_with_parent=True)
    try:
        start = measure.kube_scheduler(1e5) if who == KUBE else measure.ours()
        with start(rig):
            return Player(rig, workload, measure.DEFAULT if who == KUBE else measure.OURS).play()
    finally:
        rig.stop()


def main(words: Sequence[str]) -> int:
    """Play what is asked for and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = ["500Nodes", "500pods_500nodes"]
    parser.add_argument(
        "--size", nargs="*", default=sizes, help="which of each test's workloads, the first that is there"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="tests by name (misc/SchedulingBasic)")
    parser.add_argument("--out", type=Path, default=Path("out/conformance/perf.json"), metavar="FILE")
    asked = parser.parse_args(words)
    played, other = workloads(asked.size)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for workload in [one for one in played if not asked.only or one.name in asked.only]:
        key = f"{workload.name}/{workload.size}"
        for who in (KUBE, OURS):
            if who not in kept.setdefault(key, {}):
                began = time.monotonic()
                try:
                    kept[key][who] = measured(workload, who)
                except measure.NotBound as error:  # a figure too; the others are played all the same
                    kept[key][who] = 0.0
                    print(f"{key} {who}: {error}", flush=True)
                asked.out.write_text(json.dumps(kept, indent=1))
                print(f"{key} {who}: {kept[key][who]:.0f} pods/s ({time.monotonic() - began:.0f} s)", flush=True)
    for name in other:
        print(f"not played: {name}")
    both = {key: one[OURS] / one[KUBE] for key, one in kept.items() if len(one) == 2}
    for key, ratio in sorted(both.items()):
        measure.figure(f"perf_{key.replace('/', '_')}_over_kube_scheduler", ratio, "x", "1", ratio >= 1)
    measure.figure("perf_workloads_played", len(both), "workloads", str(len(played)), len(both) == len(played))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
