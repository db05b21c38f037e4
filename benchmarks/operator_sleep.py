"""A recorded day on nodes that sleep, played in minutes: waits, foreign cordons, joules.

The day is one of the batch log `wagap-2013`: submit times, runtimes and cores are the log's, jobs are repeated until
the nodes are loaded to 40 %, what is wider than a node becomes several pods. Control plane, bindings and our scheduler
are real; nodes are KWOK's with kubelets that fall silent when they sleep (`operator_kubelets`). Watts are modelled, by
the same curves for the rig and for the two rivals, which are simulated: `kubernetes` with all nodes on, and with nodes
that sleep after 600 s of idling. All times are divided by the speed-up, those of waking and sleeping too. Joules of all
of them count from the first job to the last end. Beside them stands what no scheduler can go below (`least_j`).
"""

from __future__ import annotations

import gzip
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import kube_replay as replay
import msgspec
import numpy as np
from kuberig import kwok
from kuberig.api import JSON, Api
from kuberig.control import Options
from kuberig.kwok import Shape as NodeShape
from kuberig.processes import free_ports, until_ready
from kuberig.rig import Rig
from operator_kubelets import Kubelets, hook, off_s
from operator_stateful import ROOT, _prepare

from wattflow.clusters import resolve_profile
from wattflow.files.data_folder import data_folder
from wattflow.kube import objects
from wattflow.kube.engine_decider import as_requested
from wattflow.kube.power import name_as_label
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

Spans = Mapping[str, Sequence[tuple[float, float]]]
DAY_S, CORES, LOAD = 86_400.0, 16, 0.4
DAY = 78
"""Of the log: a full one (1,138 jobs) whose load goes up and down."""
WAKE_S, ENTER_S, SLEEP_W = 300.0, 30.0, 10.0
"""Of a server, in seconds of the day."""
GRACE_S, BEAT_S, LOOK_S = 90, 30.0, 1.0
"""Of the rig's clock. Controllers look at nodes every five seconds, which would be a quarter of an hour of the day."""
PROFILES = ("ichnos:gpgnode-05/performance", "ccf:xeon-6338n-xr11", "ccf:epyc-7763-dl325")
"""The three kinds of the other benchmarks of this folder, in turn."""
CORDONED = 0.02
POLICY = "wattflow:shield=none:spare=inf:idle=0.25:align=1"
"""Nodes are equally fast, so nobody holds out for another's place; how soon they sleep, and that pods that end together
share nodes, was chosen on eight other days (44, 50, 65, 69, 73, 76, 84, 86). Bare, as it is simulated: `wattflow` by
itself means the shield to a scheduler, which keeps all nodes on while it knows little, and little is known of a day
that lasts minutes (``--policy wattflow`` plays that)."""
_LAG_S = 1.0
"""Between our scheduler's last look at a node and the line that its hook writes: a process has to start."""
_SILENT = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_PODS = "/api/v1/namespaces/default/pods"
_USERS = 8
CONFIG = """
name = "wattflow"
policy = "{policy}"
[http]
port = {port}
[lease]
lease_s = 60
renew_s = 40
[energy]
profiles = false
[workflows]
argo = false
[sleep]
hook = "{hook}"
wake_s = {wake:.3f}
enter_s = {enter:.3f}
sleep_w = {watts}
[shared]
settle_s = 0.2
"""


@dataclass(frozen=True, slots=True)
class Day:
    """Pods of the day: when each is created, how long it runs, its cores; seconds of the rig's clock."""

    release_s: np.ndarray
    runtime_s: np.ndarray
    cores: np.ndarray


def recorded(nodes: int, seconds: float, seed: int, number: int = DAY) -> tuple[Day, float]:
    """Read a day from its first job on, repeated until 24 hours load the nodes as wanted; it and its speed-up."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("the day needs the data folder (WATTFLOW_DATA)")
    with gzip.open(folder / "batch_logs_swf" / "wagap-2013.swf.gz", "rt") as lines:
        rows = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    jobs = np.array([(float(r[1]), float(r[3]), max(int(r[4]), int(r[7]))) for r in rows if len(r) > 8])
    jobs[:, 0] -= jobs[:, 0].min() + number * DAY_S
    jobs = jobs[(jobs[:, 0] >= 0) & (jobs[:, 0] < DAY_S) & (jobs[:, 1] > 0) & (jobs[:, 2] > 0)]
    jobs[:, 1] = np.minimum(jobs[:, 1], DAY_S - jobs[:, 0])  # what is left at midnight is the next day's
    speedup = (DAY_S - jobs[:, 0].min()) / seconds
    pods = [
        (at, lasts, min(CORES, wide - CORES * i)) for at, lasts, wide in jobs for i in range(-(-int(wide) // CORES))
    ]
    table = np.array([one for one in pods if one[1] / speedup >= 0.5])  # shorter ones are over before they are seen
    times = LOAD * nodes * CORES * DAY_S / float((table[:, 1] * table[:, 2]).sum())
    draw = np.random.default_rng(seed)
    copies = [table] * int(times) + [table[draw.random(len(table)) < times % 1]]
    table = np.concatenate(copies)
    table[:, 0] = np.clip(table[:, 0] + draw.uniform(-600, 600, len(table)), 0, None)
    table = table[np.argsort(table[:, 0])]
    return Day((table[:, 0] - table[0, 0]) / speedup, table[:, 1] / speedup, table[:, 2]), speedup


def least_j(day: Day, nodes: Sequence[Node], sleep_w: float = SLEEP_W) -> float:
    """Return joules that no scheduler can go below where pods start at once, may be moved at will and wakes are free.

    A node that is on draws at least the lower convex hull of its curve and of its sleep watts when empty; at every
    moment the busy cores take the cheapest pieces of all hulls.
    """
    pieces: list[tuple[float, float]] = []
    for node in nodes:
        assert node.power is not None
        watts = [sleep_w, *(node.power.at(float(cores)) for cores in range(1, int(node.cores) + 1))]
        at = 0
        while at < node.cores:
            slope, upto = min(((watts[to] - watts[at]) / (to - at), to) for to in range(at + 1, len(watts)))
            pieces.append((slope, upto - at))
            at = upto
    pieces.sort()
    cores = np.cumsum([0.0, *(width for _, width in pieces)])
    watts_at = np.cumsum([0.0, *(slope * width for slope, width in pieces)])
    times = np.concatenate([day.release_s, day.release_s + day.runtime_s])
    order = np.argsort(times, kind="stable")
    busy = np.cumsum(np.concatenate([day.cores, -day.cores])[order])[:-1]
    drawn = np.interp(busy, cores, watts_at) + sleep_w * len(nodes)
    return float((drawn * np.diff(times[order])).sum())


def played(
    nodes: int, minutes: float, seed: int, policy: str = POLICY
) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """Play the day; returns counts, figures and what went wrong."""
    # a quarter for starting nodes and for what ends late
    day, speedup = recorded(nodes, 60 * minutes * 0.75, seed)
    wake_s, enter_s = WAKE_S / speedup, ENTER_S / speedup
    print(
        f"{len(day.cores)} pods on {nodes} nodes, a day at {speedup:.0f} x; a node wakes in {wake_s:.1f} s", flush=True
    )
    rig = Rig.start(Options(scheduler=False, node_grace_s=GRACE_S, node_look_s=LOOK_S), die_with_parent=True)
    try:
        _prepare(rig)
        command, orders = hook(rig.folder)
        reminder = kwok.Reminder(rig.api, kwok.start(rig.folder, rig.processes, rig.users))
        names = kwok.add_nodes(rig.api, nodes, [_shape(i) for i in range(len(PROFILES))])
        api = Api.of_kubeconfig(rig.kubeconfig)
        with Kubelets(api, orders, names, wake_s, enter_s, min(BEAT_S, GRACE_S / 3)) as kubelets:
            kwok.await_ready(rig.api, nodes, 600)
            _start(rig, policy, command, wake_s, enter_s)
            found = _measure(rig, day, kubelets, names, (speedup, wake_s, enter_s))
        reminder.stop()
        return found
    finally:
        rig.stop()


def _shape(kind: int) -> NodeShape:
    labels = {"wattflow.io/sleep": "true", replay.measure.LABEL: name_as_label(PROFILES[kind])}
    return NodeShape(f"kind{kind}", cpu=str(CORES), memory="256Gi", labels=labels, zones=3)


def _node(name: str, sleep: Sleep | None = None) -> Node:
    """A node as the simulator and the reckoning of joules see it."""
    curve = resolve_profile(PROFILES[int(name.removeprefix("kind").partition("-")[0])], CORES)
    return Node(name, CORES, 256 << 30, power=curve, sleep=sleep)


def _start(rig: Rig, policy: str, command: str, wake_s: float, enter_s: float) -> None:
    (port,) = free_ports(1)
    config = rig.folder / "day.toml"
    text = CONFIG.format(policy=policy, port=port, hook=command, wake=wake_s, enter=enter_s, watts=SLEEP_W)
    config.write_text(text)
    words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--config", str(config)]
    words += ["--kubeconfig", str(rig.scheduler_kubeconfig)]
    process = rig.processes.start("wattflow-day", words, {"PYTHONPATH": str(ROOT / "src")})
    until_ready(process, lambda: replay.measure._answers(f"http://127.0.0.1:{port}/readyz"), 300)


def _measure(
    rig: Rig, day: Day, kubelets: Kubelets, names: list[str], times: tuple[float, float, float]
) -> tuple[dict[str, float], dict[str, float], list[str]]:
    speedup, wake_s, enter_s = times
    held = names[:: round(1 / CORDONED)]
    own = threading.local()  # a connection for each of the users, who submit at once: one alone would smear the bursts

    def create(task: int) -> None:
        if not hasattr(own, "api"):
            own.api = Api.of_kubeconfig(rig.kubeconfig)
        created_s[task] = time.time()
        own.api.create(_PODS, _pod(task, day))

    users = ThreadPoolExecutor(_USERS)
    with replay.measure.watching(rig, "default") as binds:
        began_s, created_s, cordoned_s = time.time(), np.zeros(len(day.cores)), {}
        for task in range(len(day.cores)):
            time.sleep(max(0.0, began_s + float(day.release_s[task]) - time.time()))
            if len(cordoned_s) < len(held) and task >= len(cordoned_s) * len(day.cores) // (2 * len(held)):
                name = held[len(cordoned_s)]  # one after another over the first half, asleep or not
                rig.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
                cordoned_s[name] = time.time()
            users.submit(create, task)
        users.shutdown()
        late_s = float((created_s - began_s - day.release_s).max())
        try:
            rig.api.await_each(_PODS, replay._ended, len(day.cores), 120 + float(day.runtime_s.max()))
        except TimeoutError as error:
            print(f"  {error}", flush=True)
        ended_s = time.time()
    pods = rig.api.items(_PODS)
    rows = [replay._row(one) for one in pods if replay._ended(one)]
    left = sorted({f"j{task}" for task in range(len(day.cores))} - {name for name, *_ in rows})
    # who has no place by the end has waited until then
    waits = {f"j{i}": binds.at.get(f"j{i}", ended_s) - created_s[i] for i in range(len(day.cores))}
    joules = _joules(names, rows, asleep(kubelets.spans, wake_s), began_s, ended_s, speedup)
    rivals = _simulated(day, names, wake_s, enter_s, speedup)
    long = sorted((name for name, wait_s in waits.items() if wait_s > wake_s + 10), key=lambda name: -waits[name])
    unneeded = [name for name in long if rivals["waits"][int(name[1:])] < 1.0]
    touched = _touched(rig, cordoned_s, kubelets, rows, wake_s)
    slept_s = sum(off_s(spans, began_s, ended_s) for spans in kubelets.spans.values())
    least = least_j(day, [_node(name) for name in names]) * speedup
    worst = {
        "nodes": float(len(names)),
        "pods": float(len(rows)),
        "pods that did not end": float(len(left)),
        "created late, s": late_s,
        "slept, part of node time": slept_s / (len(names) * (ended_s - began_s)),
        "switches": float(sum(map(len, kubelets.spans.values()))),
        "longest wait, s": max(waits.values()),
        "MJ": joules / 1e6,
        "MJ all on, simulated": rivals["on"] / 1e6,
        "MJ kubernetes + 600 s, simulated": rivals["600"] / 1e6,
        "MJ at least": least / 1e6,
        "at_most_against_all_on": 100 * (1 - least / rivals["on"]),
        "at_most_against_kubernetes_600": 100 * (1 - least / rivals["600"]),
        "saved_against_all_on": 100 * (1 - joules / rivals["on"]),
        "saved_against_kubernetes_600": 100 * (1 - joules / rivals["600"]),
    }
    for name, value in worst.items():
        print(f"  {name}: {value:.4g}", flush=True)
    failures = [f"{name} waited {waits[name]:.1f} s" for name in unneeded[:10]] + touched
    failures += [f"{len(left)} pods did not end: {', '.join(left[:10])}"] if left else []
    return {"touched": float(len(touched)), "waited": float(len(unneeded))}, worst, failures


def _pod(task: int, day: Day) -> JSON:
    body = replay.measure.pod(f"j{task}", "wattflow")
    notes = {replay.SECONDS: f"{day.runtime_s[task]:.3f}", "wattflow.io/runtime-s": f"{day.runtime_s[task]:.3f}"}
    body["metadata"]["annotations"] = notes
    body["spec"]["restartPolicy"] = "Never"
    # What ended on a node that sleeps would be deleted after five minutes, before it is counted.
    body["spec"]["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _SILENT]
    needs = {"cpu": f"{int(day.cores[task])}", "memory": "64Mi"}
    body["spec"]["containers"][0]["resources"]["requests"] = needs
    return body


def asleep(spans: Spans, wake_s: float) -> Spans:
    """Return when nodes drew sleep watts, by when they were off: not while they woke, `wake_s` before they were on."""
    return {name: [(from_s, until_s - wake_s) for from_s, until_s in some] for name, some in spans.items()}


def _joules(
    names: list[str], rows: list[tuple[str, str, float, float, float]], spans: Spans,
    began_s: float, ended_s: float, speedup: float,
) -> float:  # fmt: skip
    """Curves at the busy cores; nodes draw their sleep watts while they sleep, on their way there and back idle watts,
    as in the simulator."""
    nodes = [_node(name) for name in names]
    plain = [(node, cores, began, ended) for _, node, cores, began, ended in rows]
    total = replay.energy_j(nodes, plain, began_s, ended_s)
    for node in nodes:
        assert node.power is not None
        total -= (node.power.at(0.0) - SLEEP_W) * off_s(spans.get(node.name, ()), began_s, ended_s)
    return total * speedup


def _simulated(day: Day, names: list[str], wake_s: float, enter_s: float, speedup: float) -> dict[str, Any]:
    """The same pods and nodes in the simulator: `kubernetes`, all on and asleep after 600 s of the day, and ours."""
    from wattflow.sim import simulate

    wants = np.unique(day.cores)
    shapes = [Shape(0, (Variant(cores=float(one)),), 1) for one in wants]
    order = np.argsort(day.release_s, kind="stable")
    workload = Workload.of_columns(
        "day", release_s=day.release_s[order], runtime_s=day.runtime_s[order], shapes=shapes,
        shape=np.searchsorted(wants, day.cores[order]).astype(np.int32), functions=(Function("job"),), one_each=True,
    )  # fmt: skip
    nodes = tuple(_node(name, Sleep(SLEEP_W, wake_s, enter_s)) for name in names)
    on = simulate(workload, Cluster("day", nodes).without_sleep(), "kubernetes")
    asleep = simulate(workload, Cluster("day", nodes), f"kubernetes:sleep={600 / speedup:.4f}")
    ours = simulate(workload, Cluster("day", nodes), as_requested(POLICY))
    waits = {"waits": np.zeros(len(order)), "ours_waits": np.zeros(len(order))}
    for name, run in (("waits", on), ("ours_waits", ours)):
        waits[name][order] = run.end_s_by_task() - workload.release_s - workload.runtime_s
    return {"on": on.total_j * speedup, "600": asleep.total_j * speedup, "ours": ours.total_j * speedup, **waits}


def offline(nodes: int, minutes: float, seed: int, number: int = DAY, lag_s: float = 0.0) -> dict[str, float]:
    """A day without a rig: what our policy saves in the simulator and our scheduler in virtual time, what nobody can
    exceed, who waits too long."""
    day, speedup = recorded(nodes, 60 * minutes * 0.75, seed, number)
    names = [f"kind{i % len(PROFILES)}-{i // len(PROFILES)}" for i in range(nodes)]
    wake_s, enter_s = WAKE_S / speedup, ENTER_S / speedup
    rivals = _simulated(day, names, wake_s, enter_s, speedup)
    least = least_j(day, [_node(name) for name in names]) * speedup
    long = (rivals["ours_waits"] > wake_s + 10) & (rivals["waits"] < 1.0)
    found = {"nodes": float(nodes), "pods": float(len(day.cores)), "waited": float(long.sum())}
    ours_j, waits, beside_s = decided(day, names, wake_s, enter_s, lag_s)
    long = (waits > wake_s + 10) & (rivals["waits"] < 1.0)
    found["decided, waited"] = float(long.sum())
    found["decided, of these while a node had room"] = float((long & (beside_s > 1.0)).sum())
    for name, against in (("all_on", rivals["on"]), ("kubernetes_600", rivals["600"])):
        found[f"decided_against_{name}"] = 100 * (1 - ours_j * speedup / against)
        found[f"at_most_against_{name}"] = 100 * (1 - least / against)
        found[f"simulated_against_{name}"] = 100 * (1 - rivals["ours"] / against)
    return found


def beside_room(day: Day, rows: Sequence[tuple[str, float, float]], names: list[str], since_s: float) -> np.ndarray:
    """Seconds for which each pod, by its node, begin and end, waited longer than ``since_s`` while a node had room."""
    changes = sorted(
        change for (name, began_s, ended_s), cores in zip(rows, day.cores.tolist(), strict=True)
        for change in ((began_s, name, -cores), (ended_s, name, cores))
    )  # fmt: skip
    free, index = np.full(len(names), float(CORES)), {name: i for i, name in enumerate(names)}
    times, most = np.empty(len(changes) + 1), np.empty(len(changes) + 1)
    times[0], most[0] = 0.0, CORES
    for i, (at_s, name, more) in enumerate(changes, 1):
        free[index[name]] += more
        times[i], most[i] = at_s, free.max()
    found = np.zeros(len(rows))
    for i, (_, began_s, _) in enumerate(rows):
        first_s = day.release_s[i] + since_s
        if began_s > first_s:
            part = slice(np.searchsorted(times, first_s, "right") - 1, np.searchsorted(times, began_s))
            lasted_s = np.diff(np.append(np.maximum(times[part], first_s), began_s))
            found[i] = lasted_s[most[part] >= day.cores[i]].sum()
    return found


def decided(
    day: Day, names: list[str], wake_s: float, enter_s: float, lag_s: float = 0.0
) -> tuple[float, np.ndarray, np.ndarray]:
    """Play the day through our scheduler in virtual time; joules of the rig's clock, how long each pod waited, and for
    how long beyond a wake and ten seconds while a node had room."""
    import operator_virtual as virtual

    text = CONFIG.format(policy=POLICY, port=0, hook="/bin/true", wake=wake_s, enter=enter_s, watts=SLEEP_W)
    text = text.replace("lease_s = 60\nrenew_s = 40", "leader_elect = false")
    labels = [{replay.measure.LABEL: name_as_label(one)} for one in PROFILES]
    nodes = [virtual.node(name, CORES, labels[i % len(labels)]) for i, name in enumerate(names)]
    pods = [msgspec.convert(_pod(task, day), objects.Pod) for task in range(len(day.cores))]
    for one in pods:
        one.metadata.uid, one.metadata.namespace = one.metadata.name, "default"
    times = (wake_s, enter_s)
    rows, spans = virtual.play(text, nodes, pods, day.release_s, day.runtime_s, times, lag_s)
    ended_s = max(row[2] for row in rows)
    known = [(f"j{i}", name, float(day.cores[i]), began, end) for i, (name, began, end) in enumerate(rows)]
    joules = _joules(names, known, asleep(spans, wake_s + lag_s), 0.0, ended_s, 1.0)
    beside_s = beside_room(day, rows, names, wake_s + 10)
    return joules, np.array([row[1] for row in rows]) - day.release_s, beside_s


def _touched(
    rig: Rig, cordoned_s: dict[str, float], kubelets: Kubelets,
    rows: list[tuple[str, str, float, float, float]], wake_s: float,
) -> list[str]:  # fmt: skip
    """Cordoned nodes that are no longer so, that were told to switch, or that were given a pod afterwards."""
    found = []
    for name, since_s in cordoned_s.items():
        settled_s = since_s + wake_s + 5  # what was ordered before the cordon may come true after it
        if not rig.api.get(f"/api/v1/nodes/{name}")["spec"].get("unschedulable"):
            found.append(f"{name} lost its cordon")
        after = [at - since_s for at in kubelets.ordered_s.get(name, ()) if at > since_s + _LAG_S]
        if after:
            found.append(f"{name} was told to switch {after[0]:.1f} s after its cordon")
        found += [f"{pod} began on {name}" for pod, node, _, began, _ in rows if node == name and began > settled_s]
    return found
