"""A recorded workload with its runtimes shaken, anew for each seed: intervals for what was recorded only once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattflow.generate.recipe import Recipe
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload

MOST_SIGMA = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Jittered:
    """Each task's runtime times a lognormal factor of mean 1; its estimate, where known, moves with it.

    Attributes:
        sigma: Spread (σ of log) of the factors; 0.1 is about 10 %.
    """

    workload: Workload
    sigma: float

    def __post_init__(self) -> None:
        if not 0.0 < self.sigma <= MOST_SIGMA:
            raise InvalidInput("--jitter", f"is a spread (σ of log) of 0 … {MOST_SIGMA:g}, not {self.sigma:g}")

    @property
    def title(self) -> str:
        return self.workload.name

    def draw(self, seed: int = 0) -> Workload:
        """Draw the workload of this seed."""
        rng = np.random.default_rng([seed, 0x6A69])
        # A mean of -σ²/2 in the logarithm makes the factor's own mean 1: load stays what it was.
        shaken = rng.normal(-0.5 * self.sigma**2, self.sigma, len(self.workload))
        factor = np.exp(shaken)
        return replace(
            self.workload,
            runtime_s=np.ascontiguousarray(self.workload.runtime_s * factor),
            # NaN, an unknown estimate, stays NaN.
            estimate_s=np.ascontiguousarray(self.workload.estimate_s * factor),
        )


Drawable = Recipe | Jittered
"""Workloads that are drawn anew for each seed."""
