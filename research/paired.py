"""Paired comparison of two policies over many scenarios: intervals, signed ranks, wins.

A difference is a log-ratio of joules on the same workload and seed. Scenarios (cluster × load) of one application are
not independent, and neither are those of one cluster, which all applications share. So there are two intervals: the
*nested* one resamples applications, then their scenarios, then their seeds; the *crossed* one resamples applications
and clusters, each as a whole, then loads and seeds within (Owen, The pigeonhole bootstrap, 10.1214/07-AOAS122). The
wider one counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TIE = 0.005
"""Log-ratios within ± this are a tie."""
EXACT = 16
"""Up to so many values the signed-rank test goes through all signs."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Log-ratios of one scenario, by seed."""

    application: str
    cluster: str
    logs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """Ours against theirs in per cent of joules; negative is fewer.

    Attributes:
        nested, crossed: Ends of the two 95 % intervals.
        p: Two-sided Wilcoxon signed rank over scenarios, taken as independent, normal approximation.
        p_applications: The same over means of applications, which are: exact where they are few.
        wins, ties, losses: Scenarios.
    """

    percent: float
    nested: tuple[float, float]
    crossed: tuple[float, float]
    p: float
    p_applications: float
    wins: int
    ties: int
    losses: int

    @property
    def interval(self) -> tuple[float, float]:
        """The wider one."""
        return max(self.crossed, self.nested, key=lambda ends: ends[1] - ends[0])

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    @property
    def text(self) -> str:
        return f"{self.percent:+.1f} {told(self.interval)}"


def told(ends: tuple[float, float]) -> str:
    """An interval in brackets."""
    return f"({ends[0]:+.1f} … {ends[1]:+.1f})"


def compare(samples: Sequence[Sample], draws: int = 2000, seed: int = 1) -> Paired:
    """Geometric mean, intervals, tests and wins of paired log-ratios; every scenario has as many seeds."""
    means = np.array([float(np.mean(one.logs)) for one in samples])
    applications = np.array([one.application for one in samples])
    by_application = np.array([means[applications == name].mean() for name in dict.fromkeys(applications.tolist())])
    rng = np.random.default_rng([seed, 41])
    nested, crossed = (
        (percent(low), percent(high))
        for low, high in (np.quantile(made(samples, draws, rng), [0.025, 0.975]).tolist() for made in (nests, crosses))
    )
    wins, losses = int((means < -TIE).sum()), int((means > TIE).sum())
    return Paired(
        percent(float(by_application.mean())), nested, crossed, wilcoxon(means), exact_wilcoxon(by_application),
        wins, len(means) - wins - losses, losses,
    )  # fmt: skip


def percent(log: float) -> float:
    """A log-ratio as a change in per cent."""
    return 100.0 * math.expm1(log)


def nests(samples: Sequence[Sample], draws: int, rng: np.random.Generator) -> Floats:
    """Centres of many samples: applications, their scenarios and their seeds, each drawn with replacement."""
    logs: dict[str, list[tuple[float, ...]]] = {}
    for one in samples:
        logs.setdefault(one.application, []).append(one.logs)
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


def crosses(samples: Sequence[Sample], draws: int, rng: np.random.Generator) -> Floats:
    """Centres of many samples: applications and clusters, each drawn with replacement and as a whole; then loads and
    seeds of each pair. Samples in which no scenario is left are drawn without (there are next to none)."""
    applications = list(dict.fromkeys(one.application for one in samples))
    clusters = list(dict.fromkeys(one.cluster for one in samples))
    often = rng.multinomial(len(applications), [1.0 / len(applications)] * len(applications), size=draws)
    drawn = rng.multinomial(len(clusters), [1.0 / len(clusters)] * len(clusters), size=draws)
    total, weight = np.zeros(draws), np.zeros(draws)
    for a, application in enumerate(applications):
        mine, scenarios = np.zeros(draws), np.zeros(draws)
        for c, cluster in enumerate(clusters):
            some = [s.logs for s in samples if s.application == application and s.cluster == cluster]
            if some:
                table = np.array(some, np.float64)
                rows = rng.integers(len(table), size=(draws, len(table), 1))
                seeds = rng.integers(table.shape[1], size=(draws, *table.shape))
                mine += drawn[:, c] * len(table) * table[rows, seeds].mean((1, 2))
                scenarios += drawn[:, c] * len(table)
        there = scenarios > 0
        total[there] += often[there, a] * mine[there] / scenarios[there]
        weight += np.where(there, often[:, a], 0)
    centres: Floats = total[weight > 0] / weight[weight > 0]
    return centres


def _ranks(size: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Ranks from 1 on, ties sharing the mean of theirs; and how many share each."""
    order = np.argsort(size, kind="stable")
    _, inverse, many = np.unique(size[order], return_inverse=True, return_counts=True)
    last = np.cumsum(many)
    ranks = np.empty(len(size))
    ranks[order] = ((last - many + 1 + last) / 2.0)[inverse]
    return ranks, many


def wilcoxon(values: Floats) -> float:
    """Two-sided p of the signed-rank test; ties share ranks, zeros are left out, with the correction for ties."""
    values = values[values != 0.0]
    count = len(values)
    if count < 2:
        return 1.0
    ranks, many = _ranks(np.abs(values))
    total = float(ranks[values > 0].sum())
    mean = count * (count + 1) / 4.0
    spread = math.sqrt(max(1e-12, count * (count + 1) * (2 * count + 1) / 24.0 - float((many**3 - many).sum()) / 48.0))
    return math.erfc(max(0.0, abs(total - mean) - 0.5) / spread / math.sqrt(2.0))


def exact_wilcoxon(values: Floats) -> float:
    """The same over all signs that few values could have had; `wilcoxon` where they are many."""
    values = values[values != 0.0]
    if len(values) > EXACT:
        return wilcoxon(values)
    if not len(values):
        return 1.0
    ranks, _ = _ranks(np.abs(values))
    signs = (np.arange(1 << len(values))[:, None] >> np.arange(len(values))) & 1
    totals, middle = signs @ ranks, ranks.sum() / 2.0
    found = abs(float(ranks[values > 0].sum()) - middle)
    return float((np.abs(totals - middle) >= found - 1e-9).mean())


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for their number, by Holm's steps."""
    found: dict[str, float] = {}
    least = 0.0
    for i, (name, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(values) - i)))
        found[name] = least
    return found
