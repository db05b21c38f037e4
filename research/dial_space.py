"""Settings of the flagship all over its dials: a rehearsal chooses from them, the portfolio is tuned over them."""

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


def usual() -> list[Dials]:
    """The flagship's own dials, and those that the portfolio's best settings have."""
    own = {name: wattflow.DIAL.defaults[name] for name in RANGES}
    found = [own]
    found += [own | {"second": second, "idle": sleep} for second in (2.0, 20.0) for sleep in (1.0, 2.0, 4.0)]
    found += [own | {"idle": sleep} for sleep in (1.0, 4.0)]
    pairs = ((200.0, 6.0), (800.0, 6.0), (800.0, 3.0), (150.0, 6.0), (150.0, 1.0))
    found += [own | {"late": late, "merit": merit} for late, merit in pairs]
    return [*found, own | {"margin": 0.2}, own | {"margin": -0.1}]


def spread() -> list[Dials]:
    """Settings that fill the ranges evenly, the same whenever it is called."""
    ends = np.array([tuple(map(math.log, r)) if n in LOGARITHMIC else r for n, r in RANGES.items()]).T
    points = qmc.scale(qmc.Sobol(len(RANGES), seed=5).random(64)[:SPREAD], *ends)
    return [
        {n: float(math.exp(v) if n in LOGARITHMIC else v) for n, v in zip(RANGES, row, strict=True)} for row in points
    ]


def tried() -> list[Dials]:
    """Every setting that is measured."""
    return [*usual(), *spread()]


def further() -> list[Dials]:
    """What else a rehearsal may choose, so that the portfolio is tuned over it too: usual ones that are in none of the
    portfolio's grids, and two for which seconds are dear and nodes stay awake for long, whatever it costs."""
    own = {name: wattflow.DIAL.defaults[name] for name in RANGES}
    return [
        own | {"late": 150.0, "merit": 6.0},
        own | {"late": 150.0, "merit": 1.0},
        own | {"margin": -0.1},
        own
        | {"margin": 0.35, "second": 40.0, "late": 1000.0, "idle": 8.0, "merit": 1.0, "amortise": 1.0, "spare": 0.1},
        own | {"margin": 0.35, "second": 60.0, "late": 600.0, "idle": 30.0, "merit": 0.0, "amortise": 1.0},
    ]
