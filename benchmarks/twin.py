"""Simulate before commit: time of one planning point (`make bench-twin`).

What an event loop spends: the roll-outs at planning points, a note of what happened after every other step. Looks back
are held on a thread; what one of them takes is printed beside it.

python benchmarks/twin.py [--tasks 200] [--nodes 64] [--repeat 20]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.live import TASK, Engine
from wattflow.live.roll import draw_left
from wattflow.live.twin import Twin, hindsight
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
    twin.arrived.note(engine, 0.0)
    rolls = len(twin.members) * len(twin.seeds)
    each = median_ms(options.repeat, lambda: twin.look(engine))
    seen = twin.arrived.workload(engine, draw_left(engine.state, twin.spread, 0))
    assert seen is not None
    back = [median_ms(options.repeat, partial(hindsight, seen, engine.cluster, one)) for one in twin.members]
    engine.step(1.0)
    quiet = median_ms(options.repeat, lambda: twin.arrived.note(engine, 1.0))
    print(f"{options.tasks} open tasks, {options.nodes} nodes; a roll-out takes {each / rolls:.2f} ms")
    print(
        f"a look back at {len(seen)} tasks, on a thread: {np.mean(back):.1f} ms for each of 2 to {rolls // 3} members"
    )
    print(f"figure twin_rollouts {rolls} roll-outs goal ≥20 {'ok' if rolls >= 20 else 'short'}")
    print(f"figure twin_planning_point {each:.1f} ms goal ≤50 {'ok' if each <= 50 else 'short'}")
    print(f"figure twin_every_other_step {quiet:.3f} ms goal ≤1 {'ok' if quiet <= 1 else 'short'}")


def median_ms(repeat: int, work: Callable[[], object]) -> float:
    """Of so many runs after one that loads what is needed."""
    work()
    spent = []
    for _ in range(repeat):
        begun = time.perf_counter()
        work()
        spent.append(1000 * (time.perf_counter() - begun))
    return float(np.median(spent))


if __name__ == "__main__":
    main()
