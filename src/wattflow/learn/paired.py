"""Paired comparison of two policies over many scenarios: intervals, signed ranks, wins.

A difference is a log-ratio of joules on the same workload and seed. Scenarios of one application and seeds of one
scenario are not independent, so intervals resample applications, then their scenarios, then their seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TIE = 0.005
"""Log-ratios within ± this are a tie."""
Logs = Mapping[str, Sequence[Sequence[float]]]
"""application → scenario → seeds."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Ours against theirs in per cent of joules; negative is fewer.

    Attributes:
        low, high: Ends of the 95 % interval.
        p: Two-sided Wilcoxon signed rank over scenarios, normal approximation.
        wins, ties, losses: Scenarios.
    """

    percent: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int

    @property
    def text(self) -> str:
        return f"{self.percent:+.1f} ({self.low:+.1f} … {self.high:+.1f})"


def compare(logs: Logs, draws: int = 2000, seed: int = 1) -> Paired:
    """Geometric mean, interval, test and wins of paired log-ratios."""
    middle = centre(logs)
    scenarios = np.array([float(np.mean(seeds)) for some in logs.values() for seeds in some])
    rng = np.random.default_rng([seed, 41])
    low, high = np.quantile(resampled(logs, draws, rng), [0.025, 0.975]).tolist()
    wins, losses = int((scenarios < -TIE).sum()), int((scenarios > TIE).sum())
    ties = len(scenarios) - wins - losses
    return Paired(percent(middle), percent(low), percent(high), wilcoxon(scenarios), wins, ties, losses)


def percent(log: float) -> float:
    """A log-ratio as a change in per cent."""
    return 100.0 * math.expm1(log)


def centre(logs: Logs) -> float:
    """Mean over applications of the mean over scenarios of the mean over seeds."""
    return float(np.mean([np.mean([np.mean(seeds) for seeds in some]) for some in logs.values()]))


def resampled(logs: Logs, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Centres of many samples: applications, their scenarios and their seeds, each drawn with replacement."""
    tables = [np.array(some, np.float64) for some in logs.values()]
    total = np.zeros(draws)
    for _ in tables:
        which = rng.integers(len(tables), size=draws)
        for number, table in enumerate(tables):
            mine = np.flatnonzero(which == number)
            rows = rng.integers(len(table), size=(len(mine), len(table), 1))
            seeds = rng.integers(table.shape[1], size=(len(mine), *table.shape))
            total[mine] += table[rows, seeds].mean((1, 2))
    return total / len(tables)


def wilcoxon(values: np.ndarray) -> float:
    """Two-sided p of the signed-rank test; ties share ranks, zeros are left out, with the correction for ties."""
    values = values[values != 0.0]
    count = len(values)
    if count < 2:
        return 1.0
    size = np.abs(values)
    order = np.argsort(size, kind="stable")
    _, inverse, many = np.unique(size[order], return_inverse=True, return_counts=True)
    last = np.cumsum(many)
    ranks = np.empty(count)
    ranks[order] = ((last - many + 1 + last) / 2.0)[inverse]
    total = float(ranks[values > 0].sum())
    mean = count * (count + 1) / 4.0
    spread = math.sqrt(max(1e-12, count * (count + 1) * (2 * count + 1) / 24.0 - float((many**3 - many).sum()) / 48.0))
    return math.erfc(max(0.0, abs(total - mean) - 0.5) / spread / math.sqrt(2.0))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for their number, by Holm's steps."""
    found: dict[str, float] = {}
    least = 0.0
    for i, (name, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(values) - i)))
        found[name] = least
    return found
