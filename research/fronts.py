"""The front of waiting and joules: dials of the learned policy beside NSGA-II with sleep, given the same wall time.

Waiting is the mean response of workflows. Ours decide as workflows arrive; NSGA-II (`search_front`) knows them all
beforehand. Hypervolume is the share of the rectangle between the origin and 1.1 × the worse of both sides' worst points
that a front dominates; Zitzler and Thiele, 10.1109/4235.797969.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan.measured import Result, result_of
from wattflow.policy.base import Policy
from wattflow.sim.repeated import Repeated

Floats = NDArray[np.float64]
DIALS = tuple(
    {"lean": lean, "wait": wait, "second": second, "idle": sleep}
    for lean, wait, second, sleep in product((0.0, 1.0), (0.0, 0.3, 1.0), (0.5, 5.0, 50.0), (1.0, 4.0))
)
"""Settings of the learned policy that make up its front: what trades waiting for joules in streams."""


@dataclass(frozen=True, slots=True)
class Fronts:
    """Hypervolumes, the points of each front as simulated, and the seconds that each side took (of NSGA-II the search
    alone)."""

    ours: float
    theirs: float
    points: int
    their_points: int
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


def undominated(points: Floats) -> Floats:
    """Points that no other is as good as in both costs and better in one, each once, by the first cost."""
    found = np.unique(points, axis=0)
    best = np.minimum.accumulate(np.concatenate([[np.inf], found[:-1, 1]]))
    front: Floats = found[found[:, 1] < best]
    return front


def points_of(results: Sequence[Result]) -> Floats:
    """Mean response and joules."""
    return np.array([(one.mean_s, one.energy_j) for one in results])


def ours(workload: Workload, cluster: Cluster, policy: Policy, seed: int = 0) -> tuple[list[Result], float]:
    """The policy under every dial, and the seconds that took once the code was there."""
    first, *others = (policy.with_params(**dial) for dial in DIALS)
    Repeated(workload, cluster, first, seed=seed).run()  # compiles, or reads what was compiled
    began = time.perf_counter()
    simulation = Repeated(workload, cluster, first, seed=seed)
    found = [result_of(simulation.run())]
    found += [result_of(simulation.again(other)) for other in others]
    return found, time.perf_counter() - began


def compared(mine: Sequence[Result], seconds: float, theirs: Sequence[Result], their_seconds: float) -> Fronts:
    """Both within one rectangle."""
    our_points, their_points = points_of(mine), points_of(theirs)
    corner = 1.1 * np.concatenate([our_points, their_points]).max(axis=0)
    return Fronts(
        hypervolume(our_points, corner),
        hypervolume(their_points, corner),
        len(undominated(our_points)),
        len(undominated(their_points)),
        seconds,
        their_seconds,
    )
