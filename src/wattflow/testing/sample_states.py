"""Small workloads and clusters with every kind of fact a policy may see, for `check_policy` and users' own tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattflow.model.cluster import Cluster, Device, Frequency, Network, Node, Series, Serverless, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Sample:
    """A workload on a cluster, and the times at which its run is looked at."""

    name: str
    workload: Workload
    cluster: Cluster
    looks_s: tuple[float, ...]


def sample_states() -> list[Sample]:
    """Make plain nodes, devices of all sharing modes, sleeping nodes, a platform, and unknown runtimes."""
    plain = _cluster()
    return [
        Sample("plain", _workload(1, 24, gpu=False), plain, (0.0, 6.0)),
        Sample("devices", _workload(2, 30, gpu=True), _with_devices(plain), (0.0, 5.0)),
        Sample("functions", _workload(3, 30, gpu=False, cold=True), _with_sleep(plain), (0.0, 9.0, 20.0)),
        Sample("platform", _workload(4, 24, gpu=False, cold=True), _with_platform(plain), (0.0, 6.0)),
        Sample("no estimates", _without_estimates(_workload(5, 20, gpu=False)), plain, (0.0, 6.0)),
    ]


def _profile(threads: int, idle_w: float, top_w: float, bend: float) -> PowerProfile:
    busy = tuple(float(k) for k in range(threads + 1))
    return PowerProfile(busy, tuple(idle_w + (top_w - idle_w) * (k / threads) ** bend for k in busy))


def _cluster() -> Cluster:
    zones = (
        Zone("day", Series(4.0, (300.0, 120.0, 500.0)), pue=1.2, carbon_known=True),
        Zone("night", Series(3.0, (80.0, 400.0)), pue=1.1, carbon_known=True),
    )
    levels = (Frequency(), Frequency(0.7, 0.5))
    link = Network(200e6, 0.01, 0.05, 1e-8)
    nodes = (
        # Concave, convex and straight curves, two equal nodes, a slow thrifty one, and one without watts.
        Node("big", 4, 16 * GIB, 2, power=_profile(8, 60, 200, 0.8), tdp_w=180, zone="day", network=link),
        Node("small", 2, 4 * GIB, speed=1.4, power=_profile(2, 15, 50, 1.3), zone="night", network=link),
        Node("twin", 2, 4 * GIB, speed=1.4, power=_profile(2, 15, 50, 1.3), zone="night", network=link),
        Node("slow", 4, 8 * GIB, speed=0.5, power=_profile(4, 5, 14, 1.0), zone="night", network=link),
        Node("unknown", 4, 8 * GIB, speed=1.1, power=None, zone="day", network=link),
    )
    return Cluster("sample", tuple(replace(node, frequencies=levels) for node in nodes), zones)


def _with_devices(cluster: Cluster) -> Cluster:
    card = DeviceProfile((0.0, 0.5, 1.0), (20.0, 120.0, 150.0))
    gpus = tuple(
        Device("gpu", model, 16 * GIB, sharing, slots, 1.0, 0.2, power=card)
        # Every way of sharing, two models.
        for model, sharing, slots in (("a", "mps", 1), ("a", "mig", 1), ("b", "time-slice", 2), ("b", "exclusive", 1))
    )
    board = Device("fpga", "c", 8 * GIB, reconfigure_s=1.5, power=card)
    nodes = list(cluster.nodes)
    nodes[0] = replace(nodes[0], devices=gpus)
    nodes[1] = replace(nodes[1], devices=gpus[:1])
    nodes[2] = replace(nodes[2], devices=gpus[:1])
    nodes[4] = replace(nodes[4], devices=(gpus[0], board))
    return replace(cluster, nodes=tuple(nodes))


def _with_sleep(cluster: Cluster) -> Cluster:
    sleep = Sleep(2.0, 3.0, 0.5, after_s=2.0)
    return replace(cluster, nodes=tuple(replace(node, sleep=sleep, keep_alive_s=8.0) for node in cluster.nodes))


def _with_platform(cluster: Cluster) -> Cluster:
    platform = replace(
        cluster.nodes[3],
        name="platform",
        cores=50,
        memory_bytes=64 * GIB,
        power=_profile(50, 0, 90, 1.0),
        serverless=Serverless(6.0, 0.5, 40.0, 1e-5, 1e-6),
    )
    return replace(cluster, nodes=(*cluster.nodes[:3], platform))


def _workload(seed: int, count: int, *, gpu: bool, cold: bool = False) -> Workload:
    rng = np.random.default_rng(seed)
    cpu, wide = Variant(cores=1, memory_bytes=GIB), Variant("wide", 2, 2 * GIB)
    shapes = [Shape(0, (cpu,)), Shape(1, (wide,)), Shape(0, (Variant(cores=0.5),))]
    if gpu:
        share = Variant("gpu", 1, GIB, "gpu", 1, 0.5, 4 * GIB, runtime_factor=0.3)
        shapes += [
            Shape(1, (cpu, share)),
            Shape(0, (replace(share, device_share=0.25),)),
            Shape(1, (wide, Variant("fpga", 1, GIB, "fpga", 1, 1.0, runtime_factor=0.4))),
        ]
    half = count // 2
    # The second half has parents in the first; six have a second one.
    parents = [int(rng.integers(0, half)) for _ in range(half, count)] + [int(rng.integers(0, half)) for _ in range(6)]
    children = [*range(half, count), *range(half, half + 6)]
    # The same pair may be drawn twice.
    pairs = sorted(set(zip(parents, children, strict=True)))
    return Workload.of_columns(
        f"sample-{seed}",
        release_s=np.concatenate([rng.uniform(0, 4, half), np.zeros(count - half)]),
        runtime_s=rng.lognormal(1.2, 0.6, count),
        shape=rng.integers(0, len(shapes), count).astype(np.int32),
        shapes=shapes,
        functions=(Function("f", 0.8 if cold else 0.0), Function("g", 1.6 if cold else 0.0, compute_bound=0.7)),
        edges=(np.array([p for p, _ in pairs], np.int32), np.array([c for _, c in pairs], np.int32)),
        edge_bytes=rng.uniform(1e6, 5e8, len(pairs)),
        workflow=np.arange(count, dtype=np.int32) % 1,
    )


def _without_estimates(workload: Workload) -> Workload:
    estimates = workload.estimate_s.copy()
    # Every other one: known and unknown estimates side by side.
    estimates[::2] = np.nan
    return workload.with_estimates(estimates)
