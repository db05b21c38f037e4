"""Measuring schedulers on the rig: who starts, what is waiting, when each pod was bound.

`tools/kube-rig` has to be on Python's path, as `make bench-kube` puts it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
from kuberig import load
from kuberig.api import JSON, ApiError
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.machine import Machine, process_cpu_s
from kuberig.processes import Process, free_ports, until_ready
from kuberig.rig import Rig

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = "default-scheduler"
OURS = "wattflow"
LABEL = "wattflow.io/power-profile"
FIGURES: list[str] = []
_DELETES = 20
# The taint that new nodes get would be taken off again, node by node: no part of what is measured.
OPTIONS = Options(scheduler=False, api_flags=("--disable-admission-plugins=TaintNodesByCondition",))
SHAPES = [
    Shape("old", cpu="32", memory="64Gi", labels={LABEL: "ichnos.gpgnode-05.performance"}),
    Shape("mid", cpu="64", memory="256Gi", labels={LABEL: "ccf.xeon-6338n-xr11"}),
    Shape("new", cpu="128", memory="512Gi", labels={LABEL: "ccf.epyc-7763-dl325"}),
]
Starter = Callable[[Rig], AbstractContextManager[Process]]


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    """One line per figure, where it is found and again at the end."""
    FIGURES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
    print(FIGURES[-1], flush=True)


class NotBound(RuntimeError):
    """A scheduler left pods waiting for which there was room."""


@dataclass
class Binds:
    """When each pod of a namespace was seen bound, by name. Seconds since 1970."""

    at: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def await_all(self, count: int, whose: str) -> None:
        """Waits for `count` binds: the first within five minutes (it may compile), then without a pause of one."""
        with self.changed:
            while (before := len(self.at)) < count:
                self.changed.wait(60.0 if before else 300.0)
                if len(self.at) == before:
                    raise NotBound(f"{whose}: only {before} of {count} pods were bound")

    def rate(self) -> float:
        """Binds a second from the first tenth to the last, so that starting up is left out."""
        times = sorted(self.at.values())
        low, high = len(times) // 10, len(times) - 1
        return (high - low) / (times[high] - times[low])


class _Name(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""


class _Named(msgspec.Struct):
    metadata: _Name = msgspec.field(default_factory=_Name)


class _Event(msgspec.Struct):
    type: str
    object: _Named


_EVENTS = msgspec.json.Decoder(_Event)


def _names_only(line: bytes) -> JSON:
    """An event of a watch, read only as far as is counted: what is measured shares the CPUs with the measuring."""
    event = _EVENTS.decode(line)
    about = event.object.metadata
    return {"type": event.type, "object": {"metadata": {"name": about.name, "resourceVersion": about.resourceVersion}}}


@contextmanager
def watching(rig: Rig, namespace: str) -> Iterator[Binds]:
    """Follows the pods that become bound: the selector makes a binding an ADDED event."""
    binds = Binds()
    done = threading.Event()

    def follow() -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            for event in rig.api.watch(path, 3600, decode=_names_only, fieldSelector="spec.nodeName!="):
                if done.is_set():
                    return
                if event["type"] == "ADDED":
                    with binds.changed:
                        binds.at.setdefault(event["object"]["metadata"]["name"], time.time())
                        binds.changed.notify_all()
        except (OSError, ApiError):
            if not done.is_set():
                raise

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield binds
    finally:
        done.set()


@contextmanager
def namespace(rig: Rig, name: str, clean: bool = True) -> Iterator[str]:
    """A namespace with the account that pods need; its pods are gone afterwards, unless the rig goes anyway."""
    name = name.replace("_", "-")
    rig.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    rig.api.await_one(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True, 30)
    try:
        yield name
    finally:
        for _ in range(_DELETES if clean else 0):
            try:
                rig.api.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
                break
            except ApiError as error:
                if error.status != 504:  # so many that a request ends before it is done: it goes on with the next
                    raise


def pod(name: str, scheduler: str) -> JSON:
    """A small pod: 100 millicores, 100 MiB."""
    wants = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    container = {"name": "main", "image": "none", "resources": wants}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": scheduler}}


def fill(rig: Rig, namespace: str, count: int, scheduler: str, rate: float = 0.0) -> load.Report:
    """Creates a namespace's pods."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    return all_taken(load.send(rig, (load.create(path, pod(f"p-{i}", scheduler)) for i in range(count)), rate))


def bind_bare(rig: Rig, namespace: str, count: int, nodes: list[str]) -> load.Report:
    """Binds a namespace's pods with no scheduler, over all nodes in turn."""
    return all_taken(load.send(rig, (load.binding(namespace, f"p-{i}", nodes[i % len(nodes)]) for i in range(count))))


def all_taken(report: load.Report) -> load.Report:
    """The report of a batch in which nothing failed."""
    if report.failed:
        raise RuntimeError(f"{report.failed} of {report.failed + report.ok} requests failed: {report.failure}")
    return report


def kube_scheduler(qps: float | None) -> Starter:
    """kube-scheduler with this client limit (as shipped without one)."""

    @contextmanager
    def running(rig: Rig) -> Iterator[Process]:
        try:
            yield rig.start_scheduler(qps)
        finally:
            rig.stop_scheduler()

    return running


def ours(
    policy: str = "wattflow",
    workflows: bool = False,
    profiles: bool = False,
    more: Callable[[Rig], list[str]] = lambda rig: [],
    name: str = OURS,
) -> Starter:
    """`wattflow kube scheduler` under an account of least rights, with node profiles by label.

    Args:
        more: Further lines of its configuration.
        name: The `schedulerName` that it serves.
    """

    @contextmanager
    def running(rig: Rig) -> Iterator[Process]:
        (port,) = free_ports(1)
        config = rig.folder / "scheduler.toml"
        lines = [f'name = "{name}"', f'policy = "{policy}"', "[http]", f"port = {port}", "[energy]"]
        lines += [f"profiles = {str(profiles).lower()}"]
        lines += ["[workflows]", f"argo = {str(workflows).lower()}", *more(rig)]
        config.write_text("\n".join(lines) + "\n")
        words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "-v", "--config", str(config)]
        words += ["--kubeconfig", str(rig.scheduler_kubeconfig)]
        process = rig.processes.start("wattflow-scheduler", words, {"PYTHONPATH": str(ROOT / "src")})
        try:
            until_ready(process, lambda: _answers(f"http://127.0.0.1:{port}/readyz"), 300)
            yield process
        except BaseException:
            print(process.tail(10), file=sys.stderr)
            raise
        finally:
            rig.processes.stop(process)

    return running


def grant_nodes(rig: Rig, name: str) -> None:
    """Let our scheduler write nodes (deploy/claims, deploy/sleep)."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}
    rig.api.create(f"{group}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    who = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "wattflow-scheduler"}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [who]}
    rig.api.create(f"{group}/clusterrolebindings", body)


def _answers(url: str) -> bool:
    try:
        return bool(urlopen(url, timeout=2).status == 200)
    except (URLError, OSError):
        return False


def peak_mb(process: Process) -> float:
    """The most memory that a process has held (VmHWM), in MB."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"{process.name} has no VmHWM")


@contextmanager
def rig_of(count: int, shapes: list[Shape], name: str, resting: bool = True) -> Iterator[tuple[Rig, list[str]]]:
    """A rig with so many nodes, KWOK at rest if asked; says at the end how much of the machine others had."""
    machine = Machine()
    rig = Rig.start(OPTIONS, die_with_parent=True)
    try:
        began = time.monotonic()
        nodes = rig.add_kwok_nodes(count, shapes, timeout_s=900)
        if resting:
            rig.stop_program("kwok")
        print(f"{count} nodes ready in {time.monotonic() - began:.1f} s", flush=True)
        yield rig, nodes
        own_s = process_cpu_s([os.getpid(), *(process.pid for process in rig.processes.running)])
        figure(f"{name}_cpu_taken_by_other_work", 100 * machine.others_share(own_s), "%")
    finally:
        rig.stop()
