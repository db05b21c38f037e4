"""Settings of the flagship all over its dials, over which the portfolio is tuned."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import qmc

from wattflow.policy import wattflow

Dials = dict[str, float]
RANGES = {
    "margin": (-0.2, 0.35), "second": (1.0, 60.0), "late": (40.0, 1000.0), "idle": (0.4, 8.0), "merit": (0.0, 6.0),
    "amortise": (0.25, 1.5), "crowd": (0.0, 0.8), "spare": (0.05, 1.5),
}  # fmt: skip
LOGARITHMIC = ("second", "late", "idle", "amortise", "spare")
SPREAD = 48


def spread() -> list[Dials]:
    """Settings that fill the ranges evenly, the same whenever it is called."""
    ends = np.array([tuple(map(math.log, r)) if n in LOGARITHMIC else r for n, r in RANGES.items()]).T
    points = qmc.scale(qmc.Sobol(len(RANGES), seed=5).random(64)[:SPREAD], *ends)
    return [
        {n: float(math.exp(v) if n in LOGARITHMIC else v) for n, v in zip(RANGES, row, strict=True)} for row in points
    ]


def further() -> list[Dials]:
    """Usual settings that are in none of the portfolio's grids, and two for which seconds are dear."""
    own = {name: wattflow.DIAL.defaults[name] for name in RANGES}
    return [
        own | {"late": 150.0, "merit": 6.0},
        own | {"late": 150.0, "merit": 1.0},
        own | {"margin": -0.1},
        own
        | {"margin": 0.35, "second": 40.0, "late": 1000.0, "idle": 8.0, "merit": 1.0, "amortise": 1.0, "spare": 0.1},
        own | {"margin": 0.35, "second": 60.0, "late": 600.0, "idle": 30.0, "merit": 0.0, "amortise": 1.0},
    ]
