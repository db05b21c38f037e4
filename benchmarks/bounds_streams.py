"""Small streams whose least joules CP-SAT proves: the integer relaxation is never above them (`make bench-bounds`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from research import exact_stream, stream_bound
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.plan import relaxation

Floats = NDArray[np.float64]


def small_stream(seed: int) -> tuple[Workload, Cluster, Floats, int]:
    """Workload, cluster, due times and horizon: up to four fork-joins on two or three nodes, in whole seconds."""
    rng = np.random.default_rng([seed, 0xB0])
    flows = int(rng.integers(2, 5))
    widths = rng.integers(1, 4, flows)
    submit_s = np.cumsum(rng.integers(0, 12, flows)).astype(np.float64)
    workflow = np.repeat(np.arange(flows), widths + 1).astype(np.int32)
    runtime_s = rng.integers(1, 7, len(workflow)).astype(np.float64)
    last = np.cumsum(widths + 1) - 1  # joins: after all others of their workflow
    parents = [task for task in range(len(workflow)) if task not in last]
    children = [int(last[workflow[task]]) for task in parents]
    shapes = (Shape(0, (Variant(cores=1.0),)), Shape(0, (Variant(cores=2.0),)))
    workload = Workload.of_columns(
        "small", release_s=submit_s[workflow], runtime_s=runtime_s, shapes=shapes, workflow=workflow,
        shape=rng.integers(0, 2, len(workflow)).astype(np.int32), workflow_submit_s=submit_s,
        edges=(np.array(parents, np.int32), np.array(children, np.int32)),
    )  # fmt: skip
    nodes = tuple(_node(rng, f"n{i}") for i in range(int(rng.integers(2, 4))))
    due_s = submit_s + rng.integers(8, 26, flows)
    return workload, Cluster("small", nodes), due_s, int(due_s.max())


def _node(rng: np.random.Generator, name: str) -> Node:
    cores, idle_w = int(rng.integers(2, 5)), float(rng.integers(5, 40))
    profile = PowerProfile((0.0, float(cores)), (idle_w, idle_w + cores * float(rng.integers(1, 20))))
    sleep = Sleep(float(rng.integers(0, 3)), float(rng.integers(1, 6)), float(rng.integers(0, 3)))
    return Node(name, cores, 1 << 30, power=profile, sleep=sleep if rng.random() < 0.8 else None)


def figures(count: int) -> list[str]:
    """Hold the relaxation against the optimum on so many streams."""
    above, unproven, shares, plain = 0, 0, [], []
    for seed in range(count):
        workload, cluster, due_s, horizon_s = small_stream(seed)
        best = exact_stream.least_joules(workload, cluster, due_s, horizon_s)
        if best is None:
            unproven += 1
            continue
        least = stream_bound.least_joules(workload, cluster, due_s, float(horizon_s))
        above += least > best * (1 + 1e-6)
        if math.isfinite(best):
            shares.append(100.0 * (1.0 - least / best))
            plain.append(100.0 * (1.0 - relaxation.energy_bound_j(workload, cluster) / best))
    return [
        f"figure bounds_streams_above_the_optimum {above} of {count - unproven} goal 0 {'short' if above else 'ok'}",
        f"figure bounds_streams_not_proven {unproven} of {count} goal none ok",
        f"figure bounds_streams_below_the_optimum {np.median(shares):.1f} % goal none ok",
        f"figure bounds_streams_below_the_optimum_plain_bound {np.median(plain):.1f} % goal none ok",
    ]
