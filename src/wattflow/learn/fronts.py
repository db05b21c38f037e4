"""The front of energy and makespan: dials of the learned policy beside NSGA-II, given the same wall time.

Hypervolume is the share of the rectangle between the origin and 1.1 × the worse of both sides' worst points that a
front dominates; Zitzler and Thiele, 10.1109/4235.797969.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.learn.trial import Trial
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import registry

Floats = NDArray[np.float64]
DIALS = tuple(
    {"energy": 1.0 - makespan, "makespan": makespan, "wait": wait, "lean": lean}
    for lean in (0.0, 1.0)
    for makespan in (0.0, 0.3, 0.7)
    for wait in (0.0, 0.3, 1.0)
)
"""Settings of the learned policy that make up its front."""


@dataclass(frozen=True, slots=True)
class Fronts:
    """Hypervolumes and the seconds that each side took."""

    ours: float
    theirs: float
    seconds: float
    their_seconds: float


def hypervolume(points: Floats, corner: Floats) -> float:
    """Share of the rectangle below the corner that the points (rows: two costs) dominate."""
    inside = points[(points < corner).all(axis=1)]
    area, height = 0.0, float(corner[1])
    for x, y in inside[np.lexsort((inside[:, 1], inside[:, 0]))].tolist():
        if y < height:
            area += (float(corner[0]) - x) * (height - y)
            height = y
    return area / float(corner[0] * corner[1])


def compare(workload: Workload, cluster: Cluster, seed: int = 0) -> Fronts:
    """Both on one workload; estimates are the truth for both. Raises MissingExtra without pymoo."""
    from wattflow.plan import nsga2

    began = time.perf_counter()
    runs = [Trial(workload, cluster, registry.load("learned", **dial), seed).run() for dial in DIALS]
    ours = np.array([(run.makespan_s, run.energy_j) for run in runs])
    seconds = time.perf_counter() - began
    population = 12
    began = time.perf_counter()
    nsga2.front(workload, cluster, {"population": population, "generations": 2, "seed": seed})
    each = (time.perf_counter() - began) / 2
    generations = max(1, round(seconds / max(1e-9, each)))
    began = time.perf_counter()
    found = nsga2.front(workload, cluster, {"population": population, "generations": generations, "seed": seed})
    their_seconds = time.perf_counter() - began
    theirs = np.column_stack([found.makespan_s, found.energy_j])
    corner = 1.1 * np.concatenate([ours, theirs]).max(axis=0)
    return Fronts(hypervolume(ours, corner), hypervolume(theirs, corner), seconds, their_seconds)
