"""How fast pods are bound: the API server's own ceiling and kube-scheduler, as shipped and unthrottled, in one run.

`--rival NAME=COMMAND` adds a scheduler: the command is run with `{kubeconfig}` and `{folder}` filled in, and has to
serve the scheduler name NAME. KWOK rests while bindings are counted (its status writes would take the same API server
for everyone); the nodes are its own. Everything runs on this machine, so the CPUs are shared by all that is measured.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "kube-rig"))

from kuberig import load
from kuberig.api import JSON
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig

FIGURES: list[str] = []
DEFAULT = "default-scheduler"
AS_SHIPPED_PODS = 1500  # at 50 a second the full number would take minutes and say the same
# The taint that new nodes get would be taken off again, node by node: no part of what is measured.
OPTIONS = Options(scheduler=False, api_flags=("--disable-admission-plugins=TaintNodesByCondition",))


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    """One line per figure, where it is found and again at the end."""
    FIGURES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
    print(FIGURES[-1], flush=True)


@dataclass
class Binds:
    """When each pod of a namespace was seen bound, by name. Seconds since 1970."""

    at: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int, quiet_s: float) -> bool:
        """Whether `count` binds came, with no pause longer than `quiet_s`."""
        with self.changed:
            while len(self.at) < count:
                before = len(self.at)
                self.changed.wait_for(lambda: len(self.at) > before, quiet_s)  # noqa: B023
                if len(self.at) == before:
                    return False
        return True

    def rate(self) -> float:
        """Binds a second from the first tenth to the last, so that starting up is left out."""
        times = sorted(self.at.values())
        low, high = len(times) // 10, len(times) - 1
        return (high - low) / (times[high] - times[low])


@contextmanager
def watching(rig: Rig, namespace: str):  # type: ignore[no-untyped-def]
    """Follows the pods that become bound: the selector makes a binding an ADDED event."""
    binds = Binds()

    def follow() -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        for event in rig.api.watch(path, 3600, fieldSelector="spec.nodeName!="):
            if event["type"] == "ADDED":
                with binds.changed:
                    binds.at.setdefault(event["object"]["metadata"]["name"], time.time())
                    binds.changed.notify_all()

    threading.Thread(target=follow, daemon=True).start()
    yield binds


def pod(name: str, scheduler: str) -> JSON:
    """A small pod: 100 millicores, 100 MiB."""
    wants = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    container = {"name": "main", "image": "none", "resources": wants}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": scheduler}}


def fill(rig: Rig, namespace: str, count: int, scheduler: str, rate: float = 0.0) -> load.Report:
    """Creates a namespace's pods."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    report = load.send(rig, (load.create(path, pod(f"p-{i}", scheduler)) for i in range(count)), rate)
    if report.failed:
        raise RuntimeError(f"{report.failed} of {count} pods were not created: {report.failure}")
    return report


@contextmanager
def namespace(rig: Rig, name: str):  # type: ignore[no-untyped-def]
    """A namespace with the account that pods need; its pods are gone afterwards."""
    rig.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    rig.api.await_one(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True, 30)
    yield name
    rig.api.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")


def ceiling(rig: Rig, nodes: Sequence[str], pods: int, label: str) -> float:
    """Bare bindings that the API server takes, with nothing else going on."""
    with namespace(rig, f"bare-{label}") as name:
        fill(rig, name, pods, "nobody")
        requests = [load.binding(name, f"p-{i}", nodes[i % len(nodes)]) for i in range(pods)]
        report = load.send(rig, requests)
    if report.failed:
        raise RuntimeError(f"{report.failed} of {pods} bindings were refused: {report.failure}")
    rate = report.ok / report.seconds
    figure(f"kube_{label}_api_server_bindings_per_s", rate, "1/s")
    return rate


def throughput(rig: Rig, label: str, scheduler: str, pods: int, start: Callable[[], Callable[[], None]]) -> float:
    """Binds a second of a scheduler that finds `pods` waiting when it starts; `start` returns how to stop it."""
    with namespace(rig, f"fill-{label.replace('_', '-')}") as name, watching(rig, name) as binds:
        fill(rig, name, pods, scheduler)
        stop = start()
        try:
            if not binds.wait_for(pods, quiet_s=60):
                raise RuntimeError(f"{label}: only {len(binds.at)} of {pods} pods were bound")
        finally:
            stop()
    return binds.rate()


def latency(rig: Rig, label: str, scheduler: str, start: Callable[[], Callable[[], None]], pods: int = 2000) -> float:
    """p99 from a pod's creation to its binding at 100 pods a second, in seconds."""
    with namespace(rig, f"late-{label.replace('_', '-')}") as name, watching(rig, name) as binds:
        stop = start()
        try:
            report = fill(rig, name, pods, scheduler, rate=100.0)
            if not binds.wait_for(pods, quiet_s=60):
                raise RuntimeError(f"{label}: only {len(binds.at)} of {pods} pods were bound")
        finally:
            stop()
    waits = [binds.at[f"p-{i}"] - report.answered[i] for i in range(pods)]
    return statistics.quantiles(waits, n=100)[98]


def kube_scheduler(rig: Rig, qps: float | None) -> Callable[[], Callable[[], None]]:
    """Starts kube-scheduler with this client limit."""

    def start() -> Callable[[], None]:
        rig.start_scheduler(qps)
        return rig.stop_scheduler

    return start


def rival(rig: Rig, name: str, command: str) -> Callable[[], Callable[[], None]]:
    """Starts a scheduler by its command line."""

    def start() -> Callable[[], None]:
        words = shlex.split(command.format(kubeconfig=rig.scheduler_kubeconfig, folder=rig.folder))
        process = rig.processes.start(f"rival-{name}", words)
        return lambda: rig.processes.stop(process)

    return start


def at_size(count: int, arguments: argparse.Namespace) -> None:
    """All measurements at one number of nodes."""
    label = f"{count}_nodes"
    rig = Rig.start(OPTIONS, die_with_parent=True)
    try:
        began = time.monotonic()
        nodes = rig.add_kwok_nodes(count, [Shape(cpu="32", memory="256Gi", pods="110")], timeout_s=600)
        rig.stop_program("kwok")
        print(f"{count} nodes ready in {time.monotonic() - began:.1f} s", flush=True)
        bare = ceiling(rig, nodes, arguments.pods, f"{count}-nodes")
        shipped = throughput(rig, f"shipped_{label}", DEFAULT, AS_SHIPPED_PODS, kube_scheduler(rig, None))
        figure(f"kube_{label}_kube_scheduler_as_shipped", shipped, "binds/s")
        lifted = throughput(rig, f"lifted_{label}", DEFAULT, arguments.pods, kube_scheduler(rig, 1e5))
        figure(f"kube_{label}_kube_scheduler_unthrottled", lifted, "binds/s")
        late = latency(rig, f"shipped_{label}", DEFAULT, kube_scheduler(rig, 1e5))
        figure(f"kube_{label}_kube_scheduler_unthrottled_p99", 1000 * late, "ms")
        for name, command in arguments.rival:
            ours = throughput(rig, f"{name}_{label}", name, arguments.pods, rival(rig, name, command))
            figure(f"kube_{label}_{name}_binds_per_s", ours, "binds/s")
            figure(f"kube_{label}_{name}_over_as_shipped", ours / shipped, "times", ">=15", ours >= 15 * shipped)
            figure(f"kube_{label}_{name}_over_unthrottled", ours / lifted, "times", ">=1.5", ours >= 1.5 * lifted)
            figure(f"kube_{label}_{name}_of_ceiling", 100 * ours / bare, "%", ">=60", ours >= 0.6 * bare)
            wait_s = latency(rig, f"{name}_{label}", name, rival(rig, name, command))
            figure(f"kube_{label}_{name}_p99_at_100_per_s", 1000 * wait_s, "ms", "<250", wait_s < 0.25)
    finally:
        rig.stop()


def named_command(text: str) -> tuple[str, str]:
    """NAME=COMMAND."""
    name, equals, command = text.partition("=")
    if not (name and equals and command):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, command


def main() -> None:
    """Measures at each size and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rival", type=named_command, action="append", default=[], metavar="NAME=COMMAND")
    arguments = parser.parse_args()
    for count in arguments.nodes:
        at_size(count, arguments)
    print("\n".join(["", *FIGURES]))


if __name__ == "__main__":
    main()
