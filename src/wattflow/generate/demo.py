"""The three bundled workloads of `wattflow demo`. They are generated, so their rows belong to nobody else."""

from __future__ import annotations

from wattflow.generate.laws import Arrivals, Law
from wattflow.generate.recipe import Recipe
from wattflow.model.units import MB

DEMOS: dict[str, Recipe] = {
    "montage": Recipe(
        "montage", tasks=120, runtime=Law("lognormal", 12.0, 0.8), file=Law("lognormal", 40.0 * MB, 1.0),
        cold_start_s=1.0, slack=2.0, name="montage",
    ),
    "map-reduce": Recipe(
        "map-reduce", tasks=22, workflows=12, runtime=Law("pareto", 15.0, 1.8), file=Law("lognormal", 60.0 * MB, 1.0),
        arrivals=Arrivals("diurnal", 1 / 60, 0.8, 600.0), cold_start_s=1.0, slack=3.0, name="map-reduce stream",
    ),
    "mixed": Recipe(
        "mixed", tasks=32, workflows=5, runtime=Law("weibull", 20.0, 0.8), file=Law("lognormal", 80.0 * MB, 1.0),
        arrivals=Arrivals("bursty", 1 / 90, cv=2.0), cold_start_s=2.0, slack=3.0, name="CPU-GPU-FPGA mix",
    ),
}  # fmt: skip
