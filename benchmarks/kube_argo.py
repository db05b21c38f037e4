"""Argo with kube-scheduler and Argo with ours: makespan and energy of the same workflows, from the same kind of log.

Real: workflow-controller, API server, schedulers. Simulated: the nodes, on which a task lasts its recorded runtime
divided by the node's speed (KWOK). One log per run holds when each pod began and ended and where; makespan and energy
both come from it. Energy is modelled: each node's curve at its busy cores, idle watts included, over the makespan of
that run. kube-scheduler runs with its client limit lifted; both runs have the same controller settings.
"""

from __future__ import annotations

import argparse
import graphlib
import json
import os
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
from wattflow.model.workflow import Task, Workflow
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
    workflow: str = ""


def scale_of(batch: list[Workflow], lasts_s: float, arguments: argparse.Namespace) -> float:
    """What runtimes are multiplied by: as asked, or so that the batch lasts about so long on nodes of speed 1.

    That is the longer of the longest chain and the work spread over all cores.
    """
    if arguments.scale:
        return float(arguments.scale)
    work_s = sum((task.runtime_s or 0.0) * _cores(task) for workflow in batch for task in workflow.tasks)
    cores = arguments.each * sum(one.cores for one in CLASSES)
    return float(lasts_s / max(work_s / cores, *(_chain_s(workflow) for workflow in batch)))


def _cores(task: Task) -> float:
    return task.variants[0].cores if task.variants else 1.0


def _chain_s(workflow: Workflow) -> float:
    """Runtime along the longest path."""
    ends: dict[str, float] = {}
    known = {task.id: task for task in workflow.tasks}
    for id in graphlib.TopologicalSorter({task.id: task.parents for task in workflow.tasks}).static_order():
        begins = max((ends[parent] for parent in known[id].parents), default=0.0)
        ends[id] = begins + (known[id].runtime_s or 0.0)
    return max(ends.values())


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


def run(rig: Rig, batch: list[Workflow], scheduler: str, label: str, arguments: argparse.Namespace) -> list[Row]:
    """Submits workflows together and returns their log."""
    scale = scale_of(batch, arguments.seconds if len(batch) == 1 else arguments.recorded_seconds, arguments)
    with measure.namespace(rig, label) as namespace:
        argo.prepare_namespace(rig.api, namespace)
        documents_ = [manifest(workflow, scheduler, scale) for workflow in batch]
        submitted_ms = time.time() * 1000
        names = [argo.submit(rig.api, namespace, document) for document in documents_]
        for name in names:
            done = argo.await_end(rig.api, namespace, name, arguments.patience)
            if done["status"]["phase"] != "Succeeded":
                raise RuntimeError(f"{label}: {done['status']['phase']}: {done['status'].get('message')}")
        pods = rig.api.items(f"/api/v1/namespaces/{namespace}/pods")
    rows = [_row(pod, submitted_ms) for pod in pods]
    count = sum(len(workflow.tasks) for workflow in batch)
    if len(rows) != count:
        raise RuntimeError(f"{label}: {len(rows)} pods for {count} tasks")
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
    whose = pod["metadata"]["labels"]["workflows.argoproj.io/workflow"]
    times = (began - submitted_ms) / 1000, (ended - submitted_ms) / 1000
    return Row(task, pod["spec"]["nodeName"], cores, *times, whose)


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


def batches(arguments: argparse.Namespace) -> dict[str, list[Workflow]]:
    """The generated workflow by itself, the recorded ones together."""
    made = generate.workload("montage", tasks=arguments.tasks, seed=1)
    found = {"montage": list(documents.of_workload(made)[0])}
    recorded = [one for path in instances(arguments) for one in documents.of_workload(wfformat.read(path))[0]]
    return found | ({"recorded": recorded} if recorded else {})


def instances(arguments: argparse.Namespace) -> list[Path]:
    """The files given, else the nine recorded workflows of Nextflow in the folder of real data."""
    if arguments.instances is not None:
        return [Path(one) for one in arguments.instances]
    folder = os.environ.get("WATTFLOW_DATA")
    return sorted(Path(folder, "wfinstances", "nextflow").glob("*.json.gz")) if folder else []


def compare(rig: Rig, nodes: list[str], arguments: argparse.Namespace) -> None:
    """Every batch under both schedulers, and the means over workflows."""
    saved: dict[str, list[float]] = {"makespan": [], "energy": []}
    for label, batch in batches(arguments).items():
        spans: dict[str, dict[str, float]] = {}
        joules: dict[str, float] = {}
        for who, scheduler, start in (
            ("kube-scheduler", DEFAULT, measure.kube_scheduler(1e5)),
            (OURS, OURS, measure.ours(arguments.policy, workflows=True)),
        ):
            with start(rig):
                rows = run(rig, batch, scheduler, f"argo-{label}-{who}", arguments)
            by = {name: [row for row in rows if row.workflow == name] for name in {row.workflow for row in rows}}
            spans[who] = {name: makespan_s(own) for name, own in by.items()}
            joules[who] = energy_j(rows, nodes)
            print(f"{label} ({len(rows)} tasks), {who}: {spans[who]} s, {joules[who]:.0f} J", flush=True)
        for name in sorted(spans[OURS]):
            before, after = spans["kube-scheduler"][name], spans[OURS][name]
            saved["makespan"].append(100 * (before - after) / before)
            figure(f"kube_argo_{name}_makespan_saved", saved["makespan"][-1], "%")
        saved["energy"].append(100 * (joules["kube-scheduler"] - joules[OURS]) / joules["kube-scheduler"])
        figure(f"kube_argo_{label}_energy_saved", saved["energy"][-1], "%")
    for what, values in saved.items():
        mean = statistics.fmean(values)
        figure(f"kube_argo_mean_{what}_saved", mean, "%", ">=15", mean >= 15)


def main() -> None:
    """Runs all workflows twice and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="of the Montage-like workflow")
    parser.add_argument(
        "--instances",
        nargs="*",
        metavar="WFFORMAT",
        help="recorded workflows, submitted together; else Nextflow's nine",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the generated one should take at speed 1")
    parser.add_argument("--recorded-seconds", type=float, default=110.0, help="the same of the recorded ones together")
    parser.add_argument("--scale", type=float, default=0.0, help="runtimes are multiplied by this instead")
    parser.add_argument("--each", type=int, default=1, help="nodes of each class")
    parser.add_argument("--policy", default="wattflow")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that one workflow may take")
    parser.add_argument("--out", default="out/kube-argo", help="where the logs go")
    arguments = parser.parse_args()
    count = arguments.each * len(CLASSES)
    with measure.rig_of(count, [one.shape() for one in CLASSES], "kube_argo", resting=False) as (rig, nodes):
        rig.start_argo(requeue_s=0.5)
        compare(rig, nodes, arguments)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
