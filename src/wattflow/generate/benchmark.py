"""The benchmark workload, as columns; it runs on the preset ``bench-64x4``. Ten million tasks take seconds."""

from __future__ import annotations

import numpy as np

from wattflow.generate.laws import Arrivals, Law
from wattflow.generate.recipe import Recipe
from wattflow.model.errors import unknown_name
from wattflow.model.units import GIB, MB
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload

NODES, SLOTS, LOAD = 64, 4, 0.8
MEAN_S, SIGMA, LAYER = 10.0, 1.0, 1000
KINDS = {"independent": "Poisson arrivals at 80 % load", "dag": "layers of 1,000, two parents each in the layer above"}


def benchmark_workload(count: int, kind: str = "independent", seed: int = 0) -> Workload:
    """Draw ``count`` one-core tasks with log-normal runtimes of mean 10 s and σ 1.

    Args:
        count: Tasks.
        kind: ``independent`` (Poisson arrivals that load 64 × 4 slots to 80 %) or ``dag`` (all released at 0; layers
            of 1,000, each task with two different parents in the layer above).
        seed: Same seed, same bytes.
    """
    if kind not in KINDS:
        raise unknown_name("benchmark workload", kind, KINDS)
    # A stream of its own: the same seed in a recipe draws other numbers.
    rng = np.random.default_rng([seed, 0xBE])
    runtime_s = Law("lognormal", MEAN_S, SIGMA).draw(rng, count)
    shapes = (Shape(0, (Variant("cpu", cores=1.0),)),)
    if kind == "independent":
        release_s = Arrivals("poisson", LOAD * NODES * SLOTS / MEAN_S).draw(rng, count)
        return Workload.of_columns("independent", release_s=release_s, runtime_s=runtime_s, shapes=shapes)
    return Workload.of_columns(
        "dag", release_s=np.zeros(count), runtime_s=runtime_s, shapes=shapes, edges=_layer_edges(count, rng)
    )


def _layer_edges(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    children = np.arange(LAYER, count, dtype=np.int32)
    # The first task of the layer above.
    above = (children // LAYER - 1) * LAYER
    first = rng.integers(0, LAYER, len(children), dtype=np.int32)
    # A shift of 1 to 999 around the layer is never the same task.
    second = (first + rng.integers(1, LAYER, len(children), dtype=np.int32)) % LAYER
    # Lower parent first: edges sorted by child, then parent, are what `Workload` stores.
    parents = np.stack([above + np.minimum(first, second), above + np.maximum(first, second)], axis=1).ravel()
    return parents.astype(np.int32), np.repeat(children, 2)


DEMOS: dict[str, Recipe] = {
    "montage": Recipe(
        "montage", tasks=100, workflows=10, runtime=Law("lognormal", 30.0, 0.8), file=Law("lognormal", 40.0 * MB, 1.0),
        arrivals=Arrivals("poisson", 1 / 55), cores=4.0, memory_bytes=4 * GIB, cold_start_s=1.0, name="montage stream",
    ),
    "map-reduce": Recipe(
        "map-reduce", tasks=42, workflows=30, runtime=Law("pareto", 40.0, 2.0), file=Law("lognormal", 60.0 * MB, 1.0),
        arrivals=Arrivals("diurnal", 1 / 15, 0.8, 900.0), cores=2.0, memory_bytes=2 * GIB, cold_start_s=1.0,
        name="map-reduce stream",
    ),
    "mixed": Recipe(
        "mixed", tasks=44, workflows=16, runtime=Law("weibull", 60.0, 0.8), file=Law("lognormal", 80.0 * MB, 1.0),
        arrivals=Arrivals("bursty", 1 / 30, cv=2.0), cold_start_s=2.0, name="CPU-GPU-FPGA mix",
    ),
}  # fmt: skip
"""Streams whose work asks for 50 to 60 % of the mixed cluster's cores; none has deadlines."""
