"""Sequences of what operators and tenants do to a cluster, by a seed, through the real API; what must never happen.

Profiles, labels, capacity, cordons, drains, taints, nodes deleted and made anew, hostile annotations and workflows,
restarts of the API server, kills of the leader; two replicas of ours with sleep. After each sequence the operator lets
go of all nodes, and whatever waits must be placed.
"""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kuberig import kwok, parts
from kuberig.api import JSON, Api, ApiError
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.processes import Process, free_ports, wait_until
from kuberig.rig import Rig
from operator_kubelets import Kubelets, hook

ROOT = Path(__file__).resolve().parents[1]
CORES, MOST_PODS = 8, 40
PROFILES = ("ccf.epyc-9654p-dl325", "ccf.xeon-8480-rx2540", "none.such", "²")
DIGITS = "1" * 5000
HOSTILE = {
    "wattflow.io/gang-size": ("²", DIGITS, "-1", "1e9"),
    "wattflow.io/gpu-memory": ("1e40", DIGITS, "²Gi"),
    "wattflow.io/gpu": ("²", DIGITS),
    "wattflow.io/gpu-share": ("nan", "inf", "²"),
    "wattflow.io/runtime-s": ("nan", "1e400", "-inf"),
    "wattflow.io/input-bytes": ("nan", "²"),
    "wattflow.io/guarantee": ("²",),
}
CONFIG = """
name = "wattflow"
policy = "{policy}"
[http]
port = {port}
[lease]
lease_s = 12
renew_s = 8
retry_s = 0.5
[sleep]
hook = "{hook}"
wake_s = 1
enter_s = 0.2
sleep_w = 5
[shared]
settle_s = 0.2
"""
_FOREIGN = {"key": "ops.example/window", "value": "x", "effect": "NoSchedule"}
_TWICE = {"name": "t", "steps": [[{"name": "a", "template": "t"}, {"name": "b", "template": "t"}]]}
_WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/default/workflows"
_PROFILES = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"
_PODS = "/api/v1/namespaces/default/pods"
Found = dict[str, list[str]]


@dataclass
class Ground:
    """A cluster with two replicas of ours, and what its operator has done to it.

    Attributes:
        cordoned, tainted: Nodes that the operator holds.
        rooms: The most cores that each node had in this sequence.
    """

    rig: Rig
    replicas: list[Process]
    replica: Callable[[], Process]
    argo: bool
    cordoned: set[str] = field(default_factory=set)
    tainted: set[str] = field(default_factory=set)
    rooms: dict[str, int] = field(default_factory=dict)
    made: int = 0

    @property
    def api(self) -> Api:
        """The administrator's access."""
        return self.rig.api


@contextlib.contextmanager
def ground(nodes: int, policy: str) -> Iterator[Ground]:
    """Start a cluster of so many nodes that may sleep, and two replicas."""
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        _prepare(rig)
        argo = not parts.missing(("argo",))
        if argo:
            from kuberig.argo import _install_definitions

            _install_definitions(rig.api)
        shape = Shape("op", cpu=str(CORES), memory="64Gi", labels={"wattflow.io/sleep": "true"})
        names = rig.add_kwok_nodes(nodes, [shape], timeout_s=300)
        command, orders = hook(rig.folder)

        def replica() -> Process:
            (port,) = free_ports(1)
            config = rig.folder / f"operator-{port}.toml"
            config.write_text(CONFIG.format(policy=policy, port=port, hook=command))
            words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--config", str(config)]
            words += ["--kubeconfig", str(rig.scheduler_kubeconfig)]
            return rig.processes.start(f"wattflow-{port}", words, {"PYTHONPATH": str(ROOT / "src")})

        with Kubelets(Api.of_kubeconfig(rig.kubeconfig), orders, names):
            yield Ground(rig, [replica(), replica()], replica, argo)
    finally:
        rig.stop()


def _prepare(rig: Rig) -> None:
    """Give our account what deploy/sleep gives, and the definition of power profiles."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    for one in yaml.safe_load_all((ROOT / "deploy/sleep/rbac.yaml").read_text()):
        space = f"/namespaces/{one['metadata']['namespace']}" if "namespace" in one["metadata"] else ""
        if "subjects" in one:
            user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "wattflow-scheduler"}
            one["subjects"] = [user]
        rig.api.create(f"{group}{space}/{one['kind'].lower()}s", one)
    rule = {"apiGroups": ["wattflow.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    rules = rig.api.get(f"{group}/clusterroles/wattflow-scheduler")["rules"]
    rig.api.patch(f"{group}/clusterroles/wattflow-scheduler", {"rules": [*rules, rule]})
    made = yaml.safe_load((ROOT / "deploy/base/nodepowerprofile.yaml").read_text())
    rig.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
    wait_until(lambda: rig.api.ok(_PROFILES), 60)


# what is done


def names(at: Ground) -> list[str]:
    """The nodes that are there."""
    return sorted(one["metadata"]["name"] for one in at.api.items("/api/v1/nodes"))


def add_pods(at: Ground, draw: random.Random) -> str:
    """Make pods, some with annotations that nobody can read, some of a gang, some with preferences."""
    room = MOST_PODS - len(at.api.items(_PODS))
    count = min(draw.randint(1, 6), room)
    for _ in range(count):
        at.made += 1
        notes = {}
        if draw.random() < 0.4:
            key = draw.choice(sorted(HOSTILE))
            notes[key] = draw.choice(HOSTILE[key])
        spec: JSON = {"schedulerName": "wattflow", "containers": [_container(draw)]}
        if draw.random() < 0.2:
            term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
            prefers = [{"weight": 10, "podAffinityTerm": term}]
            spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}}
        meta = {"name": f"p-{at.made}", "labels": {"app": draw.choice("xy")}, "annotations": notes}
        at.api.create(_PODS, {"metadata": meta, "spec": spec})
    return f"{count} pods"


def _container(draw: random.Random) -> JSON:
    wants = {"cpu": f"{draw.choice((500, 1000, 2000))}m", "memory": "64Mi"}
    return {"name": "main", "image": "none", "resources": {"requests": wants}}


def delete_pods(at: Ground, draw: random.Random) -> str:
    """Delete some pods."""
    pods = sorted(one["metadata"]["name"] for one in at.api.items(_PODS))
    gone = draw.sample(pods, min(len(pods), draw.randint(1, 6)))
    for one in gone:
        at.api.delete(f"{_PODS}/{one}", 0)
    return f"deleted {len(gone)} pods"


def profile(at: Ground, draw: random.Random) -> str:
    """Make, change or delete a power profile; some are of a form that no curve has."""
    name = f"prof-{draw.randint(0, 2)}"
    at.api.delete(f"{_PROFILES}/{name}")
    watts = draw.choice(([50, 90, 140], [80, 200, 210], [100, 50, 20]))
    spec = {"nodeSelector": {"kubernetes.io/hostname": draw.choice(names(at))}, "busy": [0, 4, 8], "watts": watts}
    body = {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": name}}
    if draw.random() < 0.8:
        with contextlib.suppress(ApiError):  # what the definition refuses never reaches us
            at.api.create(_PROFILES, body | {"spec": spec | {"scope": "wall", "provenance": "measured"}})
    return f"profile {name}"


def label(at: Ground, draw: random.Random) -> str:
    """Label a node: profile, speed, whether it may sleep."""
    node = draw.choice(names(at))
    labels = draw.choice([
        {"wattflow.io/power-profile": draw.choice(PROFILES[:3])}, {"wattflow.io/speed": draw.choice(("2", "x", "0"))},
        {"wattflow.io/sleep": draw.choice(("true", "false"))}, {"wattflow.io/shared-gpus": draw.choice(("2", "x"))},
    ])  # fmt: skip
    at.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
    return f"{node}: {labels}"


def capacity(at: Ground, draw: random.Random) -> str:
    """Change what a node offers."""
    node, cores = draw.choice(names(at)), draw.choice((4, 6, CORES, 12))
    at.rooms[node] = max(at.rooms.get(node, CORES), cores)
    room = {"cpu": str(cores), "memory": "64Gi", "pods": "110"}
    _status(at.api, node, {"allocatable": room, "capacity": room})
    return f"{node}: {cores} cores"


def _status(api: Api, node: str, status: JSON) -> None:
    body = json.dumps({"status": status}).encode()
    api.request("PATCH", f"/api/v1/nodes/{node}/status", body, "application/merge-patch+json")


def cordon(at: Ground, draw: random.Random) -> str:
    """Cordon a node, or let it go."""
    node = draw.choice(names(at))
    on = node not in at.cordoned
    at.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on or None}})
    (at.cordoned.add if on else at.cordoned.discard)(node)
    return f"{'cordon' if on else 'uncordon'} {node}"


def drain(at: Ground, draw: random.Random) -> str:
    """Cordon a node and evict what runs there."""
    node = draw.choice(names(at))
    at.cordoned.add(node)
    at.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    for one in at.api.items(_PODS):
        if one["spec"].get("nodeName") == node:
            at.api.delete(f"{_PODS}/{one['metadata']['name']}", 0)
    return f"drain {node}"


def taint(at: Ground, draw: random.Random) -> str:
    """Put a foreign taint on a node, or take it off; others' taints and ours stay."""
    node = draw.choice(names(at))
    on = node not in at.tainted
    for _ in range(20):
        found = at.api.get(f"/api/v1/nodes/{node}")
        rest = [one for one in found["spec"].get("taints", []) if one["key"] != _FOREIGN["key"]]
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            body = {"metadata": version, "spec": {"taints": [*rest, *([_FOREIGN] if on else [])]}}
            at.api.patch(f"/api/v1/nodes/{node}", body)
            break
        except ApiError as error:
            if error.status != 409:
                raise
    (at.tainted.add if on else at.tainted.discard)(node)
    return f"{'taint' if on else 'untaint'} {node}"


def again(at: Ground, draw: random.Random) -> str:
    """Delete a node and make it anew, at once."""
    node = draw.choice(names(at))
    at.api.delete(f"/api/v1/nodes/{node}")
    shape = Shape("op", cpu=str(CORES), memory="64Gi", labels={"wattflow.io/sleep": "true"})
    at.api.create("/api/v1/nodes", kwok.node(shape, int(node.rsplit("-", 1)[1])))
    at.cordoned.discard(node)
    at.tainted.discard(node)
    return f"{node} made anew"


def workflow(at: Ground, draw: random.Random) -> str:
    """Submit a workflow that no controller would take."""
    if not at.argo:
        return add_pods(at, draw)
    at.made += 1
    broken: list[JSON] = [
        {"spec": {"entrypoint": "t", "templates": [_TWICE]}}, {"spec": {"priority": "high", "templates": []}},
        {"spec": {}, "status": {"phase": 5}}, {"spec": {"entrypoint": 3, "templates": "none"}},
    ]  # fmt: skip
    meta = {"name": f"w-{at.made}", "namespace": "default"}
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta} | draw.choice(broken)
    with contextlib.suppress(ApiError):  # what the definition refuses never reaches us
        at.api.create(_WORKFLOWS, body)
    return "a broken workflow"


def restart_api(at: Ground, draw: random.Random) -> str:
    """End the API server and start it again at the same address."""
    process = at.rig.processes.find("kube-apiserver")
    assert process is not None
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    at.rig.processes.stop(process)
    at.api.close()
    at.rig.processes.start("kube-apiserver", words)
    if not wait_until(at.api.ok, 120, 0.1):
        raise RuntimeError(f"the API server did not come back: {shlex.join(words[:1])}")
    return "API server restarted"


def kill_leader(at: Ground, draw: random.Random) -> str:
    """Kill one replica the hard way and start another."""
    victim = draw.randrange(len(at.replicas))
    at.rig.processes.signal(at.replicas[victim], signal.SIGKILL)
    wait_until(lambda: not at.replicas[victim].alive, 30)
    at.replicas[victim] = at.replica()
    return "a replica killed"


OFTEN = (add_pods, add_pods, delete_pods, profile, label, capacity, cordon, drain, taint, again, workflow)
RARE = (restart_api, kill_leader)


# what must not happen


def sequence(at: Ground, seed: int, rare: float = 0.08) -> tuple[list[str], Found]:
    """Do one drawn sequence and look; returns what was done and what was found."""
    draw = random.Random(seed)
    # what was placed while a node was larger stays there: that is no fault of whoever comes after
    before = _used(at)
    at.rooms = {name: max(CORES, -(-before.get(name, 0) // 1000)) for name in names(at)}
    done = []
    for _ in range(draw.randint(4, 9)):
        act = draw.choice(RARE) if draw.random() < rare / 6 else draw.choice(OFTEN)
        try:
            done.append(act(at, draw))
        except ApiError as error:  # the object went while it was written: as to anybody
            if error.status not in (404, 409):
                raise
            done.append(f"{act.__name__}: {error}")
    found: Found = {"ended": [], "overcommitted": [], "lost": [], "uncordoned": [], "stepped down": []}
    time.sleep(draw.uniform(0.0, 0.6))
    _held(at, found)
    _let_go(at)
    _all_placed(at, found)
    _room(at, found)
    for i, process in enumerate(at.replicas):
        if not process.alive:
            # who cannot renew its lease while the API server is away ends by design, as kube-scheduler does
            said = process.tail(5)
            found["stepped down" if "lost the lease" in said else "ended"].append(said)
            at.replicas[i] = at.replica()
    return done, found


def _held(at: Ground, found: Found) -> None:
    """What the operator put on nodes is there, whatever we did meanwhile."""
    for one in at.api.items("/api/v1/nodes"):
        name = one["metadata"]["name"]
        if name in at.cordoned and not one["spec"].get("unschedulable"):
            found["uncordoned"].append(f"{name} lost its cordon")
        if name in at.tainted and _FOREIGN not in one["spec"].get("taints", []):
            found["uncordoned"].append(f"{name} lost its taint")


def _let_go(at: Ground) -> None:
    draw = random.Random(0)
    for node in sorted(at.cordoned):
        with contextlib.suppress(ApiError):
            at.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    at.cordoned.clear()
    for node in sorted(at.tainted):
        draw.choice = lambda options, node=node: node  # type: ignore[method-assign, assignment, misc]
        taint(at, draw)
    for node, cores in at.rooms.items():
        with contextlib.suppress(ApiError):
            at.rooms[node] = max(cores, CORES)
            room = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
            _status(at.api, node, {"allocatable": room, "capacity": room})


def _all_placed(at: Ground, found: Found) -> None:
    """Whatever waits and could be placed is placed: gangs that miss members and refused wishes may wait."""

    def waiting() -> list[JSON]:
        return [one for one in at.api.items(_PODS) if not one["spec"].get("nodeName") and not _refused(one)]

    if not wait_until(lambda: not waiting(), 90, 0.3):
        for one in waiting():
            said = [c.get("message", "") for c in one["status"].get("conditions", [])]
            found["lost"].append(f"{one['metadata']['name']} {one['metadata'].get('annotations')}: {said}"[:400])
            at.api.delete(f"{_PODS}/{one['metadata']['name']}", 0)


def _refused(pod: JSON) -> bool:
    """A share of a GPU that no node has is waited for, rightly."""
    notes = pod["metadata"].get("annotations", {})
    return "wattflow.io/gpu-share" in notes or "wattflow.io/gpu-memory" in notes


def _used(at: Ground) -> dict[str, int]:
    """Milli-cores that pods on each node ask for."""
    used: dict[str, int] = {}
    for one in at.api.items("/api/v1/pods"):
        node = one["spec"].get("nodeName")
        if node and one["status"].get("phase") not in ("Succeeded", "Failed"):
            asked = one["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] = used.get(node, 0) + (int(asked[:-1]) if asked.endswith("m") else 1000 * int(asked))
    return used


def _room(at: Ground, found: Found) -> None:
    for node, cores_m in _used(at).items():
        if cores_m > 1000 * max(at.rooms.get(node, CORES), CORES):
            found["overcommitted"].append(f"{node}: {cores_m} m of {at.rooms.get(node, CORES)} cores")
