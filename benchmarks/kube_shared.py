"""Both schedulers fill the same nodes at once; of our two replicas (with claims) the leader is killed again and again.

All connections of our replicas, watches among them, are cut from time to time, too.

Counts what must not happen: a node with more requested than it has, a pod that changed its node, a pod left waiting.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kube_cuts
import kube_measure as measure
from kube_measure import DEFAULT, OURS, ROOT, figure
from kuberig import load
from kuberig.api import JSON, ApiError
from kuberig.kwok import Shape
from kuberig.processes import Process, free_ports
from kuberig.rig import Rig

CORES = 20
SHAPE = Shape("shared", cpu=str(CORES), memory="256Gi", pods="110", labels={measure.LABEL: "ccf.xeon-6338n-xr11"})
CONFIG = """
name = "wattflow"
policy = "least-energy"
[http]
port = PORT
[lease]
lease_s = 6
renew_s = 3
retry_s = 0.5
[energy]
profiles = false
[workflows]
argo = false
[shared]
claim = true
settle_s = SETTLE
release_s = 60
"""


def start(rig: Rig, kubeconfig: Path, settle_s: float) -> Process:
    """One replica of ours."""
    (port,) = free_ports(1)
    config = rig.folder / f"shared-{port}.toml"
    config.write_text(CONFIG.replace("PORT", str(port)).replace("SETTLE", f"{settle_s:g}"))
    words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--config", str(config)]
    words += ["--kubeconfig", str(kubeconfig)]
    return rig.processes.start(f"wattflow-{port}", words, {"PYTHONPATH": str(ROOT / "src")})


@contextmanager
def moves(rig: Rig, namespace: str) -> Iterator[list[str]]:
    """Pods whose node changed after it was set, as a watch tells."""
    found: list[str] = []
    seen: dict[str, str] = {}
    done = threading.Event()

    def follow() -> None:
        try:
            for event in rig.api.watch(f"/api/v1/namespaces/{namespace}/pods", 3600, fieldSelector="spec.nodeName!="):
                if done.is_set():
                    return
                one = event["object"]
                uid, node = one["metadata"]["uid"], one["spec"]["nodeName"]
                if seen.setdefault(uid, node) != node:
                    found.append(one["metadata"]["name"])
        except (OSError, ApiError):
            if not done.is_set():
                raise

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield found
    finally:
        done.set()


def body(i: int) -> JSON:
    """One core; every second pod is ours."""
    one = measure.pod(f"p-{i}", (OURS, DEFAULT)[i % 2])
    one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "100Mi"}}
    return one


def main() -> None:
    """One run; kills the leader every so often until all pods are bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--cut-every", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--settle", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=420.0, metavar="SECONDS")
    arguments = parser.parse_args()
    count = -(-arguments.pods // CORES)
    with measure.rig_of(count, [SHAPE], "kube_shared") as (rig, _):
        measure.grant_nodes(rig, "claims")
        with (
            measure.namespace(rig, "shared") as space,
            measure.watching(rig, space) as binds,
            moves(rig, space) as moved,
            measure.kube_scheduler(None)(rig),
            kube_cuts.cutting(rig.scheduler_kubeconfig, rig.api.server, arguments.cut_every) as (kubeconfig, relay),
        ):
            replica = lambda: start(rig, kubeconfig, arguments.settle)  # noqa: E731
            replicas = [replica() for _ in range(2)]
            path = f"/api/v1/namespaces/{space}/pods"
            measure.all_taken(load.send(rig, (load.create(path, body(i)) for i in range(arguments.pods))))
            kills = _until_bound(rig, binds, replicas, replica, arguments)
            for one in replicas:
                rig.processes.stop(one)
            pods = rig.api.items(path)
    used: Counter[str] = Counter(one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName"))
    over = sum(cores > CORES for cores in used.values())
    by = Counter(one["spec"]["schedulerName"] for one in pods if one["spec"].get("nodeName"))
    waiting = arguments.pods - sum(used.values())
    figure("kube_shared_leaders_killed", kills, "times")
    figure("kube_shared_connections_cut", relay.cuts, "times")
    figure("kube_shared_bound_by_ours", by[OURS], "pods")
    figure("kube_shared_bound_by_the_other", by[DEFAULT], "pods")
    figure("kube_shared_overcommitted_nodes", over, "nodes", "0", over == 0)
    figure("kube_shared_pods_bound_twice", len(moved), "pods", "0", not moved)
    figure("kube_shared_pods_left_waiting", waiting, "pods", "0", waiting == 0)


def _until_bound(
    rig: Rig,
    binds: measure.Binds,
    replicas: list[Process],
    replica: Callable[[], Process],
    arguments: argparse.Namespace,
) -> int:
    """Kill the leader and start another in its place until all is bound; how often that was."""
    kills, ends = 0, time.monotonic() + arguments.limit
    next_kill = time.monotonic() + arguments.kill_every
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{OURS}"
    while len(binds.at) < arguments.pods and time.monotonic() < ends:
        time.sleep(0.5)
        if time.monotonic() < next_kill:
            continue
        next_kill = time.monotonic() + arguments.kill_every
        try:
            holder = rig.api.get(path)["spec"]["holderIdentity"]
        except ApiError:
            continue
        for i, one in enumerate(replicas):
            if holder.endswith(f"_{one.pid}"):
                rig.processes.signal(one, signal.SIGKILL)
                replicas[i] = replica()
                kills += 1
                break
    return kills


if __name__ == "__main__":
    main()
