"""A comparison made by hand: two policies on one workload over three seeds, the second a quarter better in energy."""

from __future__ import annotations

from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.results import SeedResult
from wattflow.lab.figures.metrics import metrics

from .runs import two_node_run


def small_comparison(workload: str = "three", baseline: str = "fifo", better: str = "frugal") -> Comparison:
    run = two_node_run()
    base = metrics(run)
    points = []
    for seed, noise in enumerate((0.0, 10.0, 20.0)):
        before = {**base, "energy_j": 4000.0 + noise, "makespan_s": 18.0}
        points.append(SeedResult(workload, baseline, seed, before))
        points.append(
            SeedResult(workload, better, seed, {**before, "energy_j": 0.75 * (before["energy_j"] or 0.0), "cost": None})
        )
    runs = {(workload, baseline): run, (workload, better): run}
    return Comparison(
        run.cluster, baseline, (workload,), (baseline, better), (0, 1, 2), tuple(points), runs, ("a remark",)
    )
