"""Frames as a service against the same frames in the simulator: do they come in the same order?

The same TOML files run on the rig (one process for each placer and broker, KWOK nodes, pods that last as told) and in
the simulator, on the same tasks, with the same policy. The tasks' objects are skewed, so that a broker that splits by
object gives one placer too much. Compared is the mean response, from creation to end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kube_measure as measure
import numpy as np
from kube_measure import OURS, ROOT, figure
from kuberig.api import JSON
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.processes import free_ports
from kuberig.rig import Rig

from wattflow.frames import workloads
from wattflow.frames.frame_run import run_frame
from wattflow.frames.library import load_frame
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload

FRAMES = ROOT / "experiments" / "kube_frames"
CORES = 4
POLICY = "fifo"


def made(tasks: int, hosts: int, load_share: float, mean_s: float, seed: int) -> tuple[Workload, Cluster]:
    """Tasks of one core at this share of the cluster's capacity; half of the objects' demand falls on one in three."""
    rng = np.random.default_rng([12, seed])
    cluster = workloads.frame_cluster(hosts, CORES)
    runtime = np.clip(workloads.lognormal(rng, tasks, mean_s, 0.5), 0.5, 4 * mean_s)
    release = np.cumsum(rng.exponential(mean_s / (load_share * hosts * CORES), tasks))
    thing = np.where(rng.random(tasks) < 0.25, 0, rng.integers(0, 30, tasks)).astype(np.int32)
    return Workload.of_columns("kube-frames", release_s=release, runtime_s=runtime, columns={"object": thing}), cluster


def simulated_s(name: str, workload: Workload, cluster: Cluster, seed: int) -> float:
    """Mean response in the simulator."""
    run = run_frame(load_frame(str(FRAMES / f"{name}.toml")), workload, cluster, f"engine:{POLICY}", seed=seed)
    responses: list[float] = list(np.asarray(run.attempts["end_s"]) - np.asarray(run.attempts["ready_s"]))
    return statistics.fmean(responses)


@contextmanager
def serving(rig: Rig, name: str) -> Iterator[None]:
    """All processes of a frame."""
    port = free_ports(1)[0]
    config = rig.folder / f"{name}.toml"
    parts = f'name = "{OURS}"\npolicy = "{POLICY}"\n[http]\nport = {port}\n[energy]\nprofiles = false\n'
    config.write_text(parts + "[workflows]\nargo = false\n")
    words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "--frame", str(FRAMES / f"{name}.toml")]
    words += ["--config", str(config), "--kubeconfig", str(rig.kubeconfig)]
    process = rig.processes.start(f"frame-{name}", words, {"PYTHONPATH": str(ROOT / "src")})
    try:
        yield
    except BaseException:
        print(process.tail(20), file=sys.stderr)
        raise
    finally:
        rig.processes.stop(process, patience_s=30)


def pod(number: int, seconds: float, thing: int) -> JSON:
    body = measure.pod(f"t{number}", OURS)
    body["metadata"]["annotations"] = {
        "rig.wattflow.io/seconds": f"{seconds:.3f}", "wattflow.io/object": str(thing),
        "wattflow.io/runtime-s": f"{seconds:.3f}",
    }  # fmt: skip
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    body["spec"]["restartPolicy"] = "Never"
    return body


def on_rig_s(rig: Rig, name: str, workload: Workload) -> tuple[float, int]:
    """Mean response on the rig, and the most that was requested of any node at once, in cores."""
    with serving(rig, name), measure.namespace(rig, f"f-{name}") as space:
        path = f"/api/v1/namespaces/{space}/pods"
        for k in range(3):  # every part is up when each placer has done something
            warm = pod(0, 0.1, k)
            warm["metadata"]["name"] = f"warm{k}"
            rig.api.create(path, warm)
        rig.api.await_each(path, _ended, 3, 240)
        release = np.asarray(workload.release_s)
        began = time.time()
        created: dict[str, float] = {}
        for i in range(len(workload)):
            time.sleep(max(0.0, began + float(release[i]) - time.time()))
            thing = int(workload.columns["object"][i])
            created[f"t{i}"] = time.time()
            rig.api.create(path, pod(i, float(workload.runtime_s[i]), thing))
        rig.api.await_each(path, _ended, len(workload) + 3, 300)
        found = [one for one in rig.api.items(path) if one["metadata"]["name"] in created]
    ends = {one["metadata"]["name"]: _moment_s(one, "Ended") for one in found}
    return statistics.fmean(ends[key] - created[key] for key in created), _most_at_once(found)


def _ended(found: JSON) -> bool:
    return bool(found["status"].get("phase") == "Succeeded")


def _moment_s(found: JSON, what: str) -> float:
    said = {one["type"]: one.get("message") for one in found["status"]["conditions"]}
    return int(said[f"rig.wattflow.io/{what}"]) / 1000


def _most_at_once(pods: list[JSON]) -> int:
    """Cores in use at once on the fullest node."""
    most = 0
    for node in {one["spec"]["nodeName"] for one in pods}:
        here = [one for one in pods if one["spec"]["nodeName"] == node]
        # an end and a begin in the same millisecond: the end was first
        steps = sorted([(_moment_s(one, "Began"), 1) for one in here] + [(_moment_s(one, "Ended"), -1) for one in here])
        used = 0
        for _, more in sorted(steps, key=lambda step: (step[0], step[1])):
            used += more
            most = max(most, used)
    return most


def main() -> None:
    """Runs every frame in both worlds and says whether the orders agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=240)
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--load", type=float, default=0.75)
    parser.add_argument("--mean", type=float, default=4.0, help="seconds of a task")
    parser.add_argument("--frames", nargs="+", default=["centralised", "delegated-stealing", "delegated"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulator-only", action="store_true")
    arguments = parser.parse_args()
    workload, cluster = made(arguments.tasks, arguments.hosts, arguments.load, arguments.mean, arguments.seed)
    simulated = {name: simulated_s(name, workload, cluster, arguments.seed) for name in arguments.frames}
    for name, value in simulated.items():
        figure(f"kube_frames_{name}_simulated_response", value, "s")
    if arguments.simulator_only:
        return
    real: dict[str, float] = {}
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        rig.add_kwok_nodes(arguments.hosts, [Shape("host", cpu=str(CORES), memory="64Gi")])
        for name in arguments.frames:
            real[name], most = on_rig_s(rig, name, workload)
            figure(f"kube_frames_{name}_rig_response", real[name], "s")
            figure(f"kube_frames_{name}_most_cores_at_once", most, "cores", f"<={CORES}", most <= CORES)
    finally:
        rig.stop()
    orders = [sorted(arguments.frames, key=lambda name: found[name]) for found in (simulated, real)]
    same = orders[0] == orders[1]
    print(f"simulator: {' < '.join(orders[0])}\nrig:       {' < '.join(orders[1])}\nsame order: {same}")
    Path(ROOT / "out").mkdir(exist_ok=True)
    (ROOT / "out" / "kube_frames.json").write_text(
        json.dumps({"simulated_s": simulated, "rig_s": real}, indent=1) + "\n"
    )
    figure("kube_frames_same_order", float(same), "(1 is yes)", ">=1", same)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
