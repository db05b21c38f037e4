"""The HPE paper's CPU experiment as pods on the rig: default, default without requests, energy-aware; both readings.

Real: the API server, kube-scheduler (its client limit lifted) for the first two rows, our scheduler with the policy
`hpe` for the third, and the admission policy of `deploy/hpe-guarantee` that makes a request of 80 % of a limit. Played
here: the machines. Jobs of a node share its hardware threads as docs/physics.md says, progress is kept job by job, and
a pod is ended when its work is done, `--speedup` times as fast as in the paper. Joules and watts are each node's
calibrated curve at its running jobs. What a scheduler takes counts `--speedup` times, too.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import kube_measure as measure
import numpy as np
import yaml
from kube_measure import DEFAULT, OURS, ROOT, figure
from kuberig.api import JSON, ApiError
from kuberig.kwok import Shape
from kuberig.rig import Rig

from research.papers import experiment, hpe_model, hpe_pictures, hpe_readings, hpe_table1
from research.papers.hpe_model import ROWS, Setting
from wattflow.lab.figures.power_series import power_curve
from wattflow.model.cluster import Cluster, Node
from wattflow.sim import SimOptions, simulate

DEPLOY = ROOT / "deploy"
_TICK_S = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row. Seconds and joules are the paper's, not the rig's."""

    makespan_s: float
    energy_wh: float
    peak_w: float
    stretch_p50: float
    stretch_max: float
    started_at_once: int


@dataclass
class Machines:
    """The nodes that are played: who runs where, how much work is left, joules so far."""

    nodes: dict[str, Node]
    left_s: dict[str, float]
    where: dict[str, str] = field(default_factory=dict)
    began_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    joules: float = 0.0
    peak_w: float = 0.0

    def running(self, node: str) -> list[str]:
        return [name for name, on in self.where.items() if on == node and name not in self.ended_s]

    def advance(self, now_s: float, step_s: float) -> list[str]:
        """Let so much time pass; returns the jobs that end in it."""
        done, watts = [], 0.0
        for name, node in self.nodes.items():
            jobs = self.running(name)
            assert node.power is not None
            watts += node.power.at(min(len(jobs), node.cores * node.threads_per_core))
            watts += sum(device.power.watts[0] for device in node.devices)  # its GPUs have nothing to do
            rate = throughput(node, len(jobs)) / len(jobs) if jobs else 0.0
            for job in jobs:
                self.left_s[job] -= rate * step_s
                if self.left_s[job] <= 0:
                    # it ended within the step
                    self.ended_s[job] = now_s + self.left_s[job] / rate
                    done.append(job)
        self.joules += watts * step_s
        self.peak_w = max(self.peak_w, watts)
        return done


def throughput(node: Node, demand: float) -> float:
    """X(D) of docs/physics.md: what the node's jobs get done together each second."""
    cores, threads = node.cores, node.cores * node.threads_per_core
    full = threads / node.smt_slowdown if threads > cores else float(cores)
    if demand <= cores:
        return float(demand)
    return full if demand >= threads else cores + (demand - cores) * (full - cores) / (threads - cores)


def job_pod(name: str, row: str, memory_bytes: int) -> JSON:
    """A job as the row's pods are: a request of one core, none, or the guarantee made at admission of a limit."""
    ours = row == "energy_aware"
    body = measure.pod(name, OURS if ours else DEFAULT)
    memory = {"memory": str(memory_bytes)}
    resources: JSON = {"requests": {"cpu": "1", **memory}}
    if row == "no_request":
        resources = {}
    elif ours:
        resources = {"limits": {"cpu": "1", **memory}}
        body["metadata"]["labels"] = {"wattflow.io/guarantee": "hpe"}
    body["spec"]["containers"][0]["resources"] = resources
    body["spec"]["restartPolicy"] = "Never"
    return body


@contextmanager
def bound_pods(rig: Rig, namespace: str) -> Iterator[dict[str, str]]:
    """Pods that have a node, as a watch tells."""
    found: dict[str, str] = {}
    done = threading.Event()

    def follow() -> None:
        try:
            path = f"/api/v1/namespaces/{namespace}/pods"
            for event in rig.api.watch(path, 3600, fieldSelector="spec.nodeName!="):
                if done.is_set():
                    return
                found[event["object"]["metadata"]["name"]] = event["object"]["spec"]["nodeName"]
        except (OSError, ApiError):
            if not done.is_set():
                raise

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield found
    finally:
        done.set()


def play(rig: Rig, row: str, setting: Setting, cluster: Cluster, label: str, speedup: float) -> Outcome:
    """One row on the rig."""
    work_s = hpe_model.durations_s(setting.jobs, setting.calibration, 0)
    names = [f"job-{i:03}" for i in range(setting.jobs.count)]
    machines = Machines({node.name: node for node in cluster.nodes}, dict(zip(names, map(float, work_s), strict=True)))
    start = measure.ours("hpe", profiles=True) if row == "energy_aware" else measure.kube_scheduler(1e5)
    with measure.namespace(rig, f"{label}-{row}") as space, bound_pods(rig, space) as bound, start(rig):
        path = f"/api/v1/namespaces/{space}/pods"
        with ThreadPoolExecutor(8) as pool:
            rig.api.create_many(path, [job_pod(name, row, setting.jobs.memory_bytes) for name in names])
            began = last = time.monotonic()
            while len(machines.ended_s) < len(names):
                time.sleep(_TICK_S)
                now = time.monotonic()
                if now - began > 600 / speedup + 60:
                    raise RuntimeError(f"{row}: {len(names) - len(machines.ended_s)} jobs have not ended")
                for name, node in list(bound.items()):
                    if name in machines.left_s and name not in machines.where:
                        machines.where[name], machines.began_s[name] = node, speedup * (last - began)
                for name in machines.advance(speedup * (now - began), speedup * (now - last)):
                    pool.submit(_end, rig, f"{path}/{name}/status")
                last = now
    stretch = [(machines.ended_s[n] - machines.began_s[n]) / float(w) for n, w in zip(names, work_s, strict=True)]
    first = sum(value < 60.0 for value in machines.began_s.values())
    return Outcome(max(machines.ended_s.values()), machines.joules / 3600, machines.peak_w,
                   float(np.median(stretch)), max(stretch), first)  # fmt: skip


def _end(rig: Rig, path: str) -> None:
    rig.api.request("PATCH", path, {"status": {"phase": "Succeeded"}}, "application/merge-patch+json")


def prepare(rig: Rig, cluster: Cluster) -> None:
    """Nodes, their curves, and the guarantee at admission."""
    crd = yaml.safe_load((DEPLOY / "base" / "nodepowerprofile.yaml").read_text())
    rig.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, exists_ok=True)
    group = "/apis/admissionregistration.k8s.io/v1"
    for one in yaml.safe_load_all((DEPLOY / "hpe-guarantee" / "policy.yaml").read_text()):
        kind = (
            "mutatingadmissionpolicies"
            if one["kind"] == "MutatingAdmissionPolicy"
            else "mutatingadmissionpolicybindings"
        )
        rig.api.create(f"{group}/{kind}", one, exists_ok=True)
    for node in cluster.nodes:
        kind = node.name.rpartition("-")[0]
        cores = f"{node.allocatable_cores or node.cores * node.threads_per_core:g}"
        shape = Shape(kind, cpu=cores, memory=str(node.memory_bytes), pods="250")
        rig.add_kwok_nodes(1, [shape], first=int(node.name.rpartition("-")[2]))
        assert node.power is not None
        spec = {"nodes": [node.name], "busy": list(node.power.busy), "watts": list(node.power.watts)}
        body = {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": node.name}}
        rig.api.create("/apis/wattflow.io/v1alpha1/nodepowerprofiles", {**body, "spec": spec})
    rig.stop_program("kwok")
    _await_guarantee(rig)


def _await_guarantee(rig: Rig) -> None:
    """An admission policy takes effect a while after it was written."""
    ends = time.monotonic() + 120
    with measure.namespace(rig, "guarantee") as space:
        for i in itertools.count():
            body = job_pod(f"try-{i}", "energy_aware", 1 << 20)
            body["spec"]["schedulerName"] = "nobody"
            made = rig.api.create(f"/api/v1/namespaces/{space}/pods", body)
            if made["spec"]["containers"][0]["resources"]["requests"].get("cpu") == "800m":
                return
            if time.monotonic() > ends:
                raise RuntimeError("the guarantee is not made at admission")
            time.sleep(0.2)


def numbered(cluster: Cluster) -> Cluster:
    """The same nodes under names that the rig can give."""
    return replace(cluster, nodes=tuple(replace(node, name=f"hpe-{i}") for i, node in enumerate(cluster.nodes)))


def simulated(row: str, setting: Setting, cluster: Cluster) -> Outcome:
    """The same row in the simulator."""
    workload = hpe_model.workload(setting.jobs, setting.calibration, 0)
    run = simulate(workload, cluster, hpe_model.schedulers()[row], seed=0, options=SimOptions(record_power=True))
    ratio = hpe_pictures.stretch(run)
    _, watts = power_curve(run).binned(len(cluster.nodes), 2000)
    peak_w = float(watts.sum(axis=0).max())
    first = int((run.start_s_by_task() == 0.0).sum())
    return Outcome(
        float(run.makespan_s), run.total_j / 3600, peak_w, float(np.median(ratio)), float(ratio.max()), first
    )


def reading(label: str, setting: Setting, published: dict[str, hpe_table1.Published], speedup: float) -> None:
    """All rows of one reading of the testbed."""
    cluster = numbered(hpe_model.testbed(setting))
    found: dict[str, Outcome] = {}
    rig = Rig.start(measure.OPTIONS, die_with_parent=True)
    try:
        prepare(rig, cluster)
        for row in ROWS:
            found[row] = play(rig, row, setting, cluster, label, speedup)
            print(
                f"{label} {row}: rig {found[row]}\n{label} {row}: simulated {simulated(row, setting, cluster)}",
                flush=True,
            )
            told = published[row]
            print(f"{label} {row}: published {told.makespan_s:g} s, {told.energy_wh:g} Wh", flush=True)
            for key, unit in (("makespan_s", "s"), ("energy_wh", "Wh"), ("peak_w", "W"), ("stretch_p50", "times"),
                              ("stretch_max", "times"), ("started_at_once", "jobs")):  # fmt: skip
                figure(f"kube_hpe_{label}_{row}_{key}", float(getattr(found[row], key)), unit)
    finally:
        rig.stop()
    for key, goal in (("makespan_s", 16.2), ("energy_wh", 18.3)):
        before, after = getattr(found["default"], key), getattr(found["energy_aware"], key)
        saved = 100 * (before - after) / before
        figure(f"kube_hpe_{label}_{key}_saved", saved, "%", f"{goal}±3", abs(saved - goal) <= 3)


def main() -> None:
    """Both readings, all figures once more at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speedup", type=float, default=8.0, help="how much faster than in the paper jobs pass")
    parser.add_argument("--readings", nargs="+", choices=("4x48", "2x96"), default=["4x48", "2x96"])
    arguments = parser.parse_args()
    settings = experiment.load("hpe_table1").settings
    assert isinstance(settings, hpe_table1.HpeSettings)
    both = {"4x48": settings.setting, "2x96": hpe_readings.setting_of(settings.second, settings.setting)}
    for label in arguments.readings:
        reading(label, both[label], dict(settings.published), arguments.speedup)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
