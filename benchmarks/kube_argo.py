"""Argo with kube-scheduler and Argo with ours: makespan and energy of the same workflows, from the same kind of log.

Real: workflow-controller, API server, schedulers. Simulated: the nodes, on which a task lasts its recorded runtime
divided by the node's speed (KWOK). One log per run holds when each pod began and ended and where; makespan and energy
both come from it. Energy is modelled: each node's curve at its busy cores, idle watts included, over the makespan of
that run. kube-scheduler runs with its client limit lifted; all runs have the same controller settings.

`wattflow-sleep` is ours as it is meant to run: idle nodes are put to sleep through the power hook (assumed watts and
times, see `kube_naps`) and woken ahead of need. kube-scheduler knows no such thing, so its nodes stay on. `wattflow`,
only when asked for, is ours with all nodes on. A run takes minutes, so `--only` and `--who` do a portion; figures come
from all logs that are in the folder.
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
import kube_naps
import kube_sections
from kube_measure import DEFAULT, LABEL, OURS, figure
from kube_naps import Naps
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
KUBE, SLEEPS = "kube-scheduler", "wattflow-sleep"
WHO = (KUBE, OURS, SLEEPS)


@dataclass(frozen=True, slots=True)
class Class:
    """Nodes of one kind; the speed is assumed, the curve is of the named machine. `count`: for each of `--each`."""

    name: str
    cores: int
    profile: str
    speed: float
    count: int = 1

    def shape(self) -> Shape:
        """What the rig makes of it."""
        curve = self.profile.replace(":", ".").replace("/", ".")
        labels = {LABEL: curve, SPEED: f"{self.speed:g}", "wattflow.io/sleep": "true"}
        return Shape(self.name, cpu=str(self.cores), memory="256Gi", labels=labels)


CLASSES = (
    Class("old", 8, "ichnos:gpgnode-05/performance", 1.0, 2),
    Class("mid", 8, "ccf:xeon-6338n-xr11", 1.2),
    Class("new", 16, "ccf:epyc-7763-dl325", 1.6),
)


PARAMS = ("margin = 0.2", "spare = 0.0", "merit = 1.0", "sleep = 0.5")
"""Of our policy, for users who wait for their workflows, and nodes that sleep; docs/kube.md tells why these."""


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
    cores = arguments.each * sum(one.cores * one.count for one in CLASSES)
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


KEPT = ("task-id", "runtime-s")


def manifest(workflow: Workflow, scheduler: str, scale: float) -> JSON:
    """The workflow as Argo's, each task with its duration on each class of nodes.

    What only real containers need (processor time, programs, bytes) is left out: the controller carries every argument
    of every task twice in an object that it writes again and again.
    """
    document: JSON = dict(manifests.manifest(workflow))
    spec = document["spec"]
    spec |= {"schedulerName": scheduler, "serviceAccountName": argo.ACCOUNT, "nodeSelector": {"type": "kwok"}}
    dag, *templates = spec["templates"]
    functions = {task["template"]: _values(task)["function"] for task in dag["dag"]["tasks"]}
    for template in templates:
        template["inputs"]["parameters"] = [{"name": name} for name in (*KEPT, "rig-seconds")]
        notes = {f"{manifests.PREFIX}{name}": f"{{{{inputs.parameters.{name}}}}}" for name in KEPT}
        notes |= {f"{manifests.PREFIX}function": functions[template["name"]]}
        notes |= {SECONDS: "{{inputs.parameters.rig-seconds}}"}
        template["metadata"]["annotations"] = notes
        template["container"] |= {"command": ["true"], "args": []}
    for task in dag["dag"]["tasks"]:
        values = _values(task)
        runtime_s = float(values["runtime-s"]) * scale
        by_class = {one.name: round(runtime_s / one.speed, 3) for one in CLASSES}
        told = {"task-id": values["task-id"], "runtime-s": f"{runtime_s:.6g}", "rig-seconds": json.dumps(by_class)}
        task["arguments"]["parameters"] = [{"name": name, "value": value} for name, value in told.items()]
    return kube_sections.nest(document)


def _values(task: JSON) -> dict[str, str]:
    return {one["name"]: one["value"] for one in task["arguments"]["parameters"]}


@dataclass(frozen=True, slots=True)
class Log:
    """What one run left: its pods, and when nodes slept, in seconds since the workflows were submitted."""

    rows: list[Row]
    asleep: dict[str, list[tuple[float, float]]]

    @classmethod
    def read(cls, path: Path) -> Log:
        head, *lines = path.read_text().splitlines()
        return cls([Row(**json.loads(line)) for line in lines], json.loads(head)["asleep"])

    def write(self, path: Path) -> None:
        """One line about the nodes, then one for each pod."""
        lines = [json.dumps({slot: getattr(row, slot) for slot in Row.__slots__}) for row in self.rows]
        path.write_text("\n".join([json.dumps({"asleep": self.asleep}), *lines]) + "\n")


def run(rig: Rig, batch: list[Workflow], who: str, label: str, arguments: argparse.Namespace) -> Log:
    """Submits workflows together to one scheduler and returns their log."""
    scale = scale_of(batch, arguments.seconds if len(batch) == 1 else arguments.recorded_seconds, arguments)
    naps = Naps.at(Path(arguments.out, f"{label}-{who}.naps"), scale)
    start = measure.kube_scheduler(1e5)
    if who != KUBE:
        params = ["[params]", *arguments.params]
        more = lambda rig: params + (naps.lines(rig) if who == SLEEPS else [])  # noqa: E731
        start = measure.ours(arguments.policy, workflows=True, more=more)
    with start(rig), measure.namespace(rig, f"argo-{label}-{who}") as namespace:
        argo.prepare_namespace(rig.api, namespace)
        documents_ = [manifest(workflow, DEFAULT if who == KUBE else OURS, scale) for workflow in batch]
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
    return Log(rows, kube_naps.asleep(naps.log, submitted_ms / 1000))


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


def energy_j(log: Log, nodes: list[str]) -> float:
    """Joules of all nodes, idle ones included, from submission to the end of the last task."""
    ends_s = makespan_s(log.rows)
    curves = {one.name: resolve_profile(one.profile, one.cores) for one in CLASSES}
    total = 0.0
    for node in nodes:
        curve = curves[node.rpartition("-")[0]]
        steps = sorted(
            change
            for row in log.rows
            if row.node == node
            for change in ((row.began_s, row.cores), (row.ended_s, -row.cores))
        )
        busy, at_s = 0.0, 0.0
        for when_s, more in [*steps, (ends_s, 0.0)]:
            total += curve.at(max(0.0, busy)) * (when_s - at_s)
            busy, at_s = busy + more, when_s
        slept_s = sum(max(0.0, min(ends_s, end) - max(0.0, begin)) for begin, end in log.asleep.get(node, ()))
        total -= (curve.at(0.0) - kube_naps.ASLEEP_W) * slept_s
    return total


def between_s(rows: list[Row], batch: list[Workflow]) -> float:
    """Median of the seconds from the end of a task's last parent to its beginning: what everybody but nodes took."""
    ends = {(row.workflow, row.task): row.ended_s for row in rows}
    names = {_name(workflow): {task.id: task.parents for task in workflow.tasks} for workflow in batch}
    return statistics.median(
        row.began_s - max((ends[row.workflow, parent] for parent in names[row.workflow][row.task]), default=0.0)
        for row in rows
    )


def _name(workflow: Workflow) -> str:
    document: JSON = dict(manifests.manifest(workflow))
    return str(document["metadata"]["name"])


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


def measure_all(rig: Rig, arguments: argparse.Namespace) -> None:
    """Every batch that was asked for under every scheduler that was; logs go to the folder."""
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    for label, batch in batches(arguments).items():
        for who in arguments.who if arguments.only in ("both", label) else ():
            run(rig, batch, who, label, arguments).write(folder / f"{label}-{who}.jsonl")
            print(f"{label}: {who} has run", flush=True)


def tell(nodes: list[str], arguments: argparse.Namespace) -> None:
    """Figures from all logs that are there: what each run of ours saves against kube-scheduler's."""
    saved: dict[str, dict[str, list[float]]] = {who: {"makespan": [], "energy": []} for who in WHO if who != KUBE}
    for label, batch in batches(arguments).items():
        paths = {who: Path(arguments.out, f"{label}-{who}.jsonl") for who in WHO}
        logs = {who: Log.read(path) for who, path in paths.items() if path.exists()}
        for who, log in logs.items():
            figure(f"kube_argo_{label}_{who}_makespan", makespan_s(log.rows), "s")
            figure(f"kube_argo_{label}_{who}_energy", energy_j(log, nodes) / 1000, "kJ")
            figure(f"kube_argo_{label}_{who}_between_tasks", between_s(log.rows, batch), "s")
        for who in [one for one in saved if one in logs and KUBE in logs]:
            for workflow in batch:
                before, after = (_span_s(logs[one], _name(workflow)) for one in (KUBE, who))
                saved[who]["makespan"].append(100 * (before - after) / before)
                figure(f"kube_argo_{_name(workflow)}_{who}_makespan_saved", saved[who]["makespan"][-1], "%")
            before, after = (energy_j(logs[one], nodes) for one in (KUBE, who))
            saved[who]["energy"].append(100 * (before - after) / before)
            figure(f"kube_argo_{label}_{who}_energy_saved", saved[who]["energy"][-1], "%")
    for who, kinds in saved.items():
        for what, values in kinds.items():
            if values:
                mean = statistics.fmean(values)
                figure(f"kube_argo_{who}_mean_{what}_saved", mean, "%", ">=15", mean >= 15)


def _span_s(log: Log, workflow: str) -> float:
    return makespan_s([row for row in log.rows if row.workflow == workflow])


def main() -> None:
    """Runs what is asked for and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="of the Montage-like workflow")
    parser.add_argument(
        "--instances",
        nargs="*",
        metavar="WFFORMAT",
        help="recorded workflows, submitted together; else Nextflow's nine",
    )
    parser.add_argument(
        "--seconds", type=float, default=390.0, help="how long the generated one should take at speed 1"
    )
    parser.add_argument("--recorded-seconds", type=float, default=430.0, help="the same of the recorded ones together")
    parser.add_argument("--scale", type=float, default=0.0, help="runtimes are multiplied by this instead")
    parser.add_argument("--each", type=int, default=1, help="the cluster, so many times")
    parser.add_argument("--only", choices=("montage", "recorded", "both"), default="both", help="a part of the run")
    parser.add_argument(
        "--who", nargs="*", choices=WHO, default=[KUBE, SLEEPS], help="a part of the run; none: figures only"
    )
    parser.add_argument("--policy", default="wattflow")
    parser.add_argument("--requeue", type=float, default=0.5, help="seconds between looks of the controller")
    parser.add_argument("--params", nargs="*", default=PARAMS, help="lines of our scheduler's [params]")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that one workflow may take")
    parser.add_argument("--out", default="out/kube-argo", help="where the logs go")
    arguments = parser.parse_args()
    if arguments.only != "montage" and not instances(arguments):
        parser.error("no recorded workflows: name them with --instances, set WATTFLOW_DATA, or ask for --only montage")
    if arguments.who:
        first, *others = CLASSES
        with measure.rig_of(arguments.each * first.count, [first.shape()], "kube_argo", resting=False) as (rig, _):
            for one in others:
                rig.add_kwok_nodes(arguments.each * one.count, [one.shape()])
            rig.start_argo(requeue_s=arguments.requeue)
            measure.grant_nodes(rig, "sleep")
            measure_all(rig, arguments)
    tell([f"{one.name}-{i}" for one in CLASSES for i in range(arguments.each * one.count)], arguments)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
