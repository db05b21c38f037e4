"""Simulate before commit: time of one planning point (`make bench-twin`).

python benchmarks/twin.py [--tasks 200] [--nodes 64] [--repeat 20]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.live import TASK, Engine
from wattflow.live.twin import Twin
from wattflow.model.cluster import Cluster
from wattflow.model.workflow import Variant


def loaded(tasks: int, nodes: int) -> Engine:
    """Open tasks on copies of the mixed preset's nodes; a part of them runs."""
    mixed = load_cluster("mixed")
    kinds = [mixed.nodes[i % len(mixed.nodes)] for i in range(nodes)]
    cluster = Cluster("bench", tuple(replace(n, name=f"n{i}") for i, n in enumerate(kinds)), mixed.zones)
    engine, rng = Engine("wattflow", cluster), np.random.default_rng(0)
    shapes = [engine.shape((Variant(cores=c, memory_bytes=2**30),)) for c in (1, 2, 4)]
    for _ in range(tasks):
        engine.put(TASK, shapes[int(rng.integers(3))], estimate_s=float(rng.lognormal(4, 1)))
    engine.step(0.0)
    return engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    engine, twin = loaded(options.tasks, options.nodes), Twin()
    rolls = len(twin.members) * len(twin.seeds)
    twin.choose(engine)
    spent = []
    for _ in range(options.repeat):
        begun = time.perf_counter()
        twin.choose(engine)
        spent.append(1000 * (time.perf_counter() - begun))
    each = float(np.median(spent))
    print(f"{options.tasks} open tasks, {options.nodes} nodes; a roll-out takes {each / rolls:.2f} ms")
    print(f"figure twin_rollouts {rolls} roll-outs goal ≥20 {'ok' if rolls >= 20 else 'short'}")
    print(f"figure twin_planning_point {each:.1f} ms goal ≤50 {'ok' if each <= 50 else 'short'}")


if __name__ == "__main__":
    main()
