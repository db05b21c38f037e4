"""Energy and makespan of our policy beside the HPE algorithm and others, on generated workloads.

    python benchmarks/policy_energy.py [--seeds 10] [--first-seed 0] [--policies hpe,wattflow]

Single workflows and streams of workflows on the mixed and the edge-to-cloud preset. Numbers of the policy were chosen
on seeds from 1000 on; the figures use seeds below that.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry
from wattflow.sim import simulate

FUNCTIONS = (Function("prepare", 1.0), Function("blast", 2.0), Function("train", 4.0), Function("mAdd", 1.0))
GIB = 1 << 30


def task_shapes(gpu_factor: float) -> tuple[Shape, ...]:
    """What tasks ask for; training also runs on half a GPU, in ``gpu_factor`` of the time on four cores."""
    gpu = Variant("gpu", 1, 2 * GIB, "gpu", 1, 0.5, 8 * GIB, runtime_factor=gpu_factor)
    return (
        Shape(0, (Variant(cores=1, memory_bytes=GIB),)),
        Shape(1, (Variant(cores=2, memory_bytes=2 * GIB),)),
        Shape(2, (Variant(cores=4, memory_bytes=4 * GIB), gpu)),
        Shape(3, (Variant(cores=1, memory_bytes=2 * GIB),)),
    )


def layered(rng: np.random.Generator) -> tuple[list[int], list[tuple[int, int]]]:
    """Random layers; every task has one to three parents in the layer above."""
    shapes: list[int] = []
    edges: list[tuple[int, int]] = []
    above: list[int] = []
    for _ in range(int(rng.integers(3, 8))):
        width = int(rng.integers(1, 24))
        here = list(range(len(shapes), len(shapes) + width))
        shapes += rng.choice(4, width, p=(0.4, 0.3, 0.15, 0.15)).tolist()
        for task in here:
            chosen = rng.choice(above, min(len(above), int(rng.integers(1, 4))), replace=False) if above else []
            edges += [(int(parent), task) for parent in chosen]
        above = here
    return shapes, edges


def fork_join(rng: np.random.Generator) -> tuple[list[int], list[tuple[int, int]]]:
    """Fan out, work, join; twice or three times."""
    shapes, edges, last = [0], [], 0
    for _ in range(int(rng.integers(2, 4))):
        width = int(rng.integers(8, 64))
        kind = int(rng.choice([0, 1, 2]))
        first = len(shapes)
        shapes += [kind] * width + [3]
        edges += [(last, first + i) for i in range(width)] + [(first + i, first + width) for i in range(width)]
        last = first + width
    return shapes, edges


def workload(seed: int, workflows: int, gap_s: float, gpu_factor: float = 0.1) -> Workload:
    """A stream of workflows with Poisson arrivals and log-normal runtimes; one workflow starts at 0."""
    rng = np.random.default_rng([seed, 3])
    makers: tuple[Callable[..., tuple[list[int], list[tuple[int, int]]]], ...] = (layered, fork_join)
    shape, flow, edges, release = [], [], [], []
    at_s = 0.0
    for number in range(workflows):
        shapes, pairs = makers[int(rng.integers(len(makers)))](rng)
        base = len(shape)
        shape += shapes
        flow += [number] * len(shapes)
        release += [at_s] * len(shapes)
        edges += [(a + base, b + base) for a, b in pairs]
        at_s += float(rng.exponential(gap_s))
    runtime = rng.lognormal(math.log(60.0), 0.8, len(shape))
    sides = np.array(edges, np.int32).reshape(-1, 2)
    return Workload.of_columns(
        f"generated-{seed}", release_s=np.array(release), runtime_s=runtime, shape=np.array(shape, np.int32),
        shapes=task_shapes(gpu_factor), functions=FUNCTIONS, edges=(sides[:, 0], sides[:, 1]),
        workflow=np.array(flow, np.int32),
        edge_bytes=rng.lognormal(math.log(2e7), 1.0, len(sides)),
    )  # fmt: skip


CASES = {"single": (1, 0.0), "stream": (20, 240.0), "busy stream": (40, 30.0)}


def measure(
    name: str, cluster: Cluster, policy: object, seeds: range, gpu_factor: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Joules and makespans over the seeds."""
    workflows, gap_s = CASES[name]
    runs = [simulate(workload(seed, workflows, gap_s, gpu_factor), cluster, policy, seed=seed) for seed in seeds]
    return np.array([r.total_j for r in runs]), np.array([r.makespan_s for r in runs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--policies", default="fifo,fifo-sleep,hpe,least-energy-sleep,wattflow")
    parser.add_argument("--gpu-factor", type=float, default=0.1, help="seconds on half a GPU per second on four cores")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for preset in ("mixed", "edge-cloud"):
        cluster = load_cluster(preset)
        for case in CASES:
            base_j, base_s = measure(case, cluster, "hpe", seeds, options.gpu_factor)
            for name in options.policies.split(","):
                joules, seconds = measure(case, cluster, registry.load(name), seeds, options.gpu_factor)
                saved = 100 * (1 - joules / base_j)
                longer = 100 * (seconds / base_s - 1)
                print(
                    f"{preset:10s} {case:12s} {name:20s} energy {joules.mean() / 3.6e6:8.3f} kWh  saved against hpe "
                    f"{saved.mean():6.1f} % (worst {saved.min():6.1f})  "
                    f"makespan {longer.mean():+6.1f} % (worst {longer.max():+6.1f}, "
                    f"longer {(longer > 0).sum()}/{len(seeds)})"
                )
            if "wattflow" in options.policies:
                slug = f"wattflow_{preset}_{case}".replace(" ", "_").replace("-", "_")
                print(f"figure {slug}_energy_saved {saved.mean():.1f} % goal 0 {'ok' if saved.mean() > 0 else 'short'}")
                good = "ok" if longer.mean() <= 0 else "short"
                print(f"figure {slug}_makespan_longer {longer.mean():.1f} % goal 0 {good}")


if __name__ == "__main__":
    main()
