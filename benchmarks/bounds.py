"""Bounds: speed of annealing, and how far policies are from what is possible (`make bench-bounds`).

    python benchmarks/bounds.py [--tasks 60] [--clusters mixed,ichnos,edge-cloud]

Single workflows; the headroom is what annealing saves at HEFT's makespan, and with 10 and 30 % more time.
"""

from __future__ import annotations

import argparse
import math

import bounds_streams
import numpy as np

from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.plan import annealing, relaxation
from wattflow.sim import simulate

FAMILIES = ("montage", "layered", "map-reduce")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--clusters", default="mixed,ichnos,edge-cloud")
    parser.add_argument("--streams", type=int, default=200, help="small streams held against CP-SAT")
    options = parser.parse_args()
    speeds: list[float] = []
    gaps: list[float] = []
    saved: dict[float, list[float]] = {0.0: [], 0.1: [], 0.3: []}
    ours: list[float] = []
    for name in options.clusters.split(","):
        cluster = load_cluster(name)
        for family in FAMILIES:
            workload = Recipe(family, options.tasks).draw(0)
            heft = simulate(workload, cluster, "heft")
            for slack, found in saved.items():
                limit_s = heft.makespan_s * (1 + slack)
                best = annealing.anneal(workload, cluster, limit_s)
                least = relaxation.least_energy(workload, cluster, limit_s)
                speeds.append(best.per_s)
                if math.isfinite(best.energy_j):
                    found.append(1 - best.energy_j / heft.total_j)
                    gaps.append(best.energy_j / least.energy_j - 1)
                print(
                    f"{name:11s} {family:10s} +{100 * slack:2.0f} %  heft {heft.total_j / 1e3:8.1f} kJ  "
                    f"best {best.energy_j / 1e3:8.1f} kJ  least {least.energy_j / 1e3:8.1f} kJ",
                    flush=True,
                )
            flagship = simulate(workload, cluster, "wattflow")
            best = annealing.anneal(workload, cluster, flagship.makespan_s)
            if math.isfinite(best.energy_j):
                ours.append(1 - best.energy_j / flagship.total_j)
    speed = float(np.median(speeds))
    print(
        f"figure bounds_annealing_evaluations_per_s {speed:.0f} 1/s goal ≥150000 {'ok' if speed >= 150e3 else 'short'}"
    )
    print(f"figure bounds_best_above_relaxation {100 * float(np.median(gaps)):.1f} % goal none ok")
    for slack, found in saved.items():
        print(f"figure bounds_headroom_at_heft_plus_{100 * slack:.0f} {100 * float(np.mean(found)):.1f} % goal none ok")
    print(f"figure bounds_headroom_of_wattflow {100 * float(np.mean(ours)):.1f} % goal none ok")
    print("\n".join(bounds_streams.figures(options.streams)))


if __name__ == "__main__":
    main()
