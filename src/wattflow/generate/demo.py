"""The three bundled workloads of `wattflow demo`. They are generated, so their rows belong to nobody else."""

from __future__ import annotations

from wattflow.generate.laws import Arrivals, Law
from wattflow.generate.recipe import Recipe
from wattflow.model.units import GIB, MB

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
