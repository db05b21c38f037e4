"""Argo with kube-scheduler and Argo with ours: makespan and energy of the same workflows, from the same kind of log.

Real: workflow-controller, API server, schedulers. Simulated: the nodes, on which a task lasts its recorded runtime
divided by the node's speed (KWOK). One log per run holds when each pod began and ended and where; makespan and energy
both come from it. Energy is modelled: each node's curve at its busy cores, idle watts included, over the makespan of
that run. kube-scheduler runs with its client limit lifted; both runs have the same controller settings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import kube_measure as measure
from kube_measure import DEFAULT, LABEL, OURS, figure
from kuberig import argo
from kuberig.api import JSON
from kuberig.kwok import Shape
from kuberig.rig import Rig

from wattflow import generate
from wattflow.clusters import resolve_profile
from wattflow.model.workflow import Workflow
from wattflow.traces import argo as manifests
from wattflow.traces import documents, wfformat

SECONDS = "rig.wattflow.io/seconds"
SPEED = "wattflow.io/speed"


@dataclass(frozen=True, slots=True)
class Class:
    """Nodes of one kind; the speed is assumed, the curve is of the named machine."""

    name: str
    cores: int
    profile: str
    speed: float

    def shape(self) -> Shape:
        """What the rig makes of it."""
        labels = {LABEL: self.profile.replace(":", ".").replace("/", "."), SPEED: f"{self.speed:g}"}
        return Shape(self.name, cpu=str(self.cores), memory="256Gi", labels=labels)


CLASSES = (
    Class("old", 8, "ichnos:gpgnode-05/performance", 1.0),
    Class("mid", 8, "ccf:xeon-6338n-xr11", 1.2),
    Class("new", 16, "ccf:epyc-7763-dl325", 1.6),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One pod of a run's log. Seconds since the workflow was submitted."""

    task: str
    node: str
    cores: float
    began_s: float
    ended_s: float


def manifest(workflow: Workflow, scheduler: str, scale: float) -> JSON:
    """The workflow as Argo's, each task with its duration on each class of nodes."""
    document: JSON = dict(manifests.manifest(workflow))
    spec = document["spec"]
    spec |= {"schedulerName": scheduler, "serviceAccountName": argo.ACCOUNT, "nodeSelector": {"type": "kwok"}}
    dag, *templates = spec["templates"]
    for template in templates:
        template["inputs"]["parameters"].append({"name": "rig-seconds"})
        template["metadata"]["annotations"][SECONDS] = "{{inputs.parameters.rig-seconds}}"
    for task in dag["dag"]["tasks"]:
        values = {one["name"]: one for one in task["arguments"]["parameters"]}
        runtime_s = float(values["runtime-s"]["value"]) * scale
        values["runtime-s"]["value"] = f"{runtime_s:.6g}"
        by_class = {one.name: round(runtime_s / one.speed, 3) for one in CLASSES}
        task["arguments"]["parameters"].append({"name": "rig-seconds", "value": json.dumps(by_class)})
    return document


def run(rig: Rig, workflow: Workflow, scheduler: str, label: str, arguments: argparse.Namespace) -> list[Row]:
    """Submits a workflow and returns its log."""
    with measure.namespace(rig, label) as namespace:
        argo.prepare_namespace(rig.api, namespace)
        document = manifest(workflow, scheduler, arguments.scale)
        submitted_ms = time.time() * 1000
        name = argo.submit(rig.api, namespace, document)
        done = argo.await_end(rig.api, namespace, name, arguments.patience)
        if done["status"]["phase"] != "Succeeded":
            raise RuntimeError(f"{label}: {done['status']['phase']}: {done['status'].get('message')}")
        pods = rig.api.items(f"/api/v1/namespaces/{namespace}/pods")
    rows = [_row(pod, submitted_ms) for pod in pods]
    if len(rows) != len(workflow.tasks):
        raise RuntimeError(f"{label}: {len(rows)} pods for {len(workflow.tasks)} tasks")
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({slot: getattr(row, slot) for slot in Row.__slots__}) for row in rows)
    (folder / f"{label}.jsonl").write_text("\n".join(lines) + "\n")
    return rows


def _row(pod: JSON, submitted_ms: float) -> Row:
    at = {c["type"]: c.get("message") for c in pod["status"]["conditions"]}
    began, ended = (int(at[f"rig.wattflow.io/{what}"]) for what in ("Began", "Ended"))
    main = next(c for c in pod["spec"]["containers"] if c["name"] == "main")
    cpu = main["resources"]["requests"]["cpu"]
    cores = int(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    task = pod["metadata"]["annotations"]["wattflow.io/task-id"]
    return Row(task, pod["spec"]["nodeName"], cores, (began - submitted_ms) / 1000, (ended - submitted_ms) / 1000)


def makespan_s(rows: list[Row]) -> float:
    """From submission to the end of the last task."""
    return max(row.ended_s for row in rows)


def energy_j(rows: list[Row], nodes: list[str]) -> float:
    """Joules of all nodes, idle ones included, from submission to the end of the last task."""
    ends_s = makespan_s(rows)
    curves = {one.name: resolve_profile(one.profile, one.cores) for one in CLASSES}
    total = 0.0
    for node in nodes:
        curve = curves[node.rpartition("-")[0]]
        steps = sorted(
            change
            for row in rows
            if row.node == node
            for change in ((row.began_s, row.cores), (row.ended_s, -row.cores))
        )
        busy, at_s = 0.0, 0.0
        for when_s, more in [*steps, (ends_s, 0.0)]:
            total += curve.at(max(0.0, busy)) * (when_s - at_s)
            busy, at_s = busy + more, when_s
    return total


def workflows(arguments: argparse.Namespace) -> list[Workflow]:
    """The generated workflow and the given instances."""
    made = generate.workload("montage", tasks=arguments.tasks, seed=1)
    found = list(documents.of_workload(made)[0])
    for path in arguments.instances:
        found += documents.of_workload(wfformat.read(Path(path)))[0]
    return found


def compare(rig: Rig, nodes: list[str], arguments: argparse.Namespace) -> None:
    """Every workflow under both schedulers, and the means."""
    saved: dict[str, list[float]] = {"makespan": [], "energy": []}
    for number, workflow in enumerate(workflows(arguments)):
        results = {}
        for who, scheduler, start in (
            ("kube-scheduler", DEFAULT, measure.kube_scheduler(1e5)),
            (OURS, OURS, measure.ours(arguments.policy, workflows=True)),
        ):
            with start(rig):
                rows = run(rig, workflow, scheduler, f"argo-{number}-{who}", arguments)
            results[who] = {"makespan": makespan_s(rows), "energy": energy_j(rows, nodes)}
            print(f"{workflow.name} ({len(rows)} tasks), {who}: {results[who]}", flush=True)
        for what, values in saved.items():
            before, after = (results[who][what] for who in ("kube-scheduler", OURS))
            values.append(100 * (before - after) / before)
            figure(f"kube_argo_{number}_{what}_saved", values[-1], "%")
    for what, values in saved.items():
        mean = statistics.fmean(values)
        figure(f"kube_argo_mean_{what}_saved", mean, "%", ">=15", mean >= 15)


def main() -> None:
    """Runs all workflows twice and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="of the Montage-like workflow")
    parser.add_argument("--instances", nargs="*", default=[], metavar="WFFORMAT", help="recorded workflows beside it")
    parser.add_argument("--scale", type=float, default=1.0, help="runtimes are multiplied by this")
    parser.add_argument("--each", type=int, default=4, help="nodes of each class")
    parser.add_argument("--policy", default="wattflow")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds that one workflow may take")
    parser.add_argument("--out", default="out/kube-argo", help="where the logs go")
    arguments = parser.parse_args()
    count = arguments.each * len(CLASSES)
    with measure.rig_of(count, [one.shape() for one in CLASSES], "kube_argo", resting=False) as (rig, nodes):
        rig.start_argo(requeue_s=0.5)
        compare(rig, nodes, arguments)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
