"""Distributions with a stated mean, and arrival processes with a stated rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput, unknown_name

Floats = NDArray[np.float64]

LAWS = {
    "constant": "always the mean",
    "uniform": "between 0 and twice the mean",
    "exponential": "memoryless",
    "lognormal": "shape is σ of the logarithm",
    "pareto": "shape is the tail index α > 1; smaller is heavier",
    "weibull": "shape is k; below 1 the tail is heavier than exponential",
}

ARRIVALS = {
    "together": "all at time 0",
    "poisson": "independent, at a constant rate",
    "diurnal": "Poisson whose rate swings by ± amplitude over a period",
    "bursty": "renewal process with gamma gaps whose coefficient of variation is cv",
}


@dataclass(frozen=True, slots=True)
class Law:
    """A positive random quantity: a name of ``LAWS``, its mean, and its shape."""

    law: str = "lognormal"
    mean: float = 10.0
    shape: float = 1.0

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise unknown_name("distribution", self.law, LAWS)
        if not (math.isfinite(self.mean) and self.mean >= 0):
            raise InvalidInput("distribution", f"the mean must be finite and not negative, not {self.mean}")
        if self.law == "pareto" and self.shape <= 1:
            raise InvalidInput("distribution", f"a Pareto law needs shape > 1 to have a mean, not {self.shape}")
        if self.law in ("lognormal", "weibull") and self.shape <= 0:
            raise InvalidInput("distribution", f"{self.law} needs shape > 0, not {self.shape}")

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw ``count`` values whose expectation is the mean."""
        match self.law:
            case "uniform":
                return rng.uniform(0.0, 2.0 * self.mean, count)
            case "exponential":
                return rng.exponential(self.mean, count)
            case "lognormal":
                # As in `jitter`: exp(N(-σ²/2, σ)) has mean 1.
                return self.mean * rng.lognormal(-0.5 * self.shape**2, self.shape, count)
            case "pareto":
                # A Pareto law's mean is scale * α / (α - 1).
                scale = self.mean * (self.shape - 1.0) / self.shape
                # numpy draws the shifted law, which begins at 0.
                return scale * (1.0 + rng.pareto(self.shape, count))
            case "weibull":
                # A Weibull law of scale 1 has the mean Γ(1 + 1/k).
                return self.mean / math.gamma(1.0 + 1.0 / self.shape) * rng.weibull(self.shape, count)
        return np.full(count, self.mean)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When workflows are submitted: a name of ``ARRIVALS`` and its numbers.

    Attributes:
        rate_per_s: Mean arrivals a second.
        amplitude: Swing of the diurnal rate, 0 … 1.
        period_s: Length of the diurnal cycle.
        cv: Coefficient of variation of the bursty gaps; 1 would be Poisson.
    """

    kind: str = "together"
    rate_per_s: float = 0.1
    amplitude: float = 0.8
    period_s: float = 86400.0
    cv: float = 4.0

    def __post_init__(self) -> None:
        if self.kind not in ARRIVALS:
            raise unknown_name("arrival process", self.kind, ARRIVALS)
        if not (self.rate_per_s > 0 and self.period_s > 0 and self.cv > 0):
            raise InvalidInput("arrivals", "rate_per_s, period_s and cv must be above 0")
        if not 0 <= self.amplitude <= 1:
            raise InvalidInput("arrivals", f"amplitude must lie between 0 and 1, not {self.amplitude}")

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw ``count`` rising times from 0 on."""
        match self.kind:
            case "poisson":
                return np.cumsum(rng.exponential(1.0 / self.rate_per_s, count))
            case "diurnal":
                return self._swing(np.cumsum(rng.exponential(1.0, count)))
            case "bursty":
                # Gamma gaps: the squared coefficient of variation is 1 / shape.
                shape = 1.0 / self.cv**2
                return np.cumsum(rng.gamma(shape, 1.0 / (self.rate_per_s * shape), count))
        return np.zeros(count)

    def _swing(self, unit: Floats) -> Floats:
        """Move arrivals of a unit-rate process by the inverse of Λ(t) = r·(t + a·(1 − cos ωt)/ω).

        Time rescaling makes the result exactly Poisson with rate r·(1 + a·sin ωt), up to the grid of 1/1,000 period.
        """
        if not len(unit):
            return unit
        omega = 2.0 * math.pi / self.period_s
        periods = math.ceil(unit[-1] / (self.rate_per_s * self.period_s)) + 1
        grid = np.linspace(0.0, periods * self.period_s, 1000 * periods + 1)
        total = self.rate_per_s * (grid + self.amplitude * (1.0 - np.cos(omega * grid)) / omega)
        return np.interp(unit, total, grid)
