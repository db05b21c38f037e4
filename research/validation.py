"""Weights beside other weights on scenarios that neither training nor any choice has seen, in pairs.

Scenarios are of the applications that a fold trains on (those it holds out are for `python -m research learned`), from
seeds of their own, and scored by the portfolio's rule: a hundredth of the scenarios more within the bound is worth a
per cent of joules.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research import portfolio, training
from research.portfolio import Result
from wattflow.learn import scenarios
from wattflow.policy import learned
from wattflow.policy.base import Policy

Floats = NDArray[np.float64]
FIRST_SEED = training.FIRST_SEED + 8000


@dataclass(frozen=True, slots=True)
class Entry:
    """Weights, and the dials that they are served with at each load; none: the flagship's."""

    theta: Floats
    dials: Mapping[float, Mapping[str, float]]

    def policy(self, load: float) -> Policy:
        """The learned policy so."""
        return learned.with_weights(self.theta).with_params(**self.dials.get(load, {}))


Job = tuple[int, int, int, tuple[Entry, ...]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of several entries, a row for each scenario: joules saved beside `kubernetes` and bounds kept."""

    saved: Floats
    kept: Floats

    @property
    def score(self) -> Floats:
        """What the portfolio's rule makes of both."""
        return self.kept + self.saved

    def lead(self, one: int, other: int) -> tuple[float, float]:
        """By how much one beats another, and the standard error of that."""
        return self._mean(self.score[:, one] - self.score[:, other])

    def saves(self, one: int, other: int) -> tuple[float, float]:
        """Log-ratio of another's joules to one's, and its standard error."""
        return self._mean(self.saved[:, one] - self.saved[:, other])

    @staticmethod
    def _mean(won: Floats) -> tuple[float, float]:
        return float(won.mean()), float(won.std(ddof=1)) / math.sqrt(len(won))


def scored(job: Job) -> list[tuple[float, float]] | None:
    """One scenario: what every entry saves, and whether it keeps the bound."""
    fold, seed, tasks, entries = job
    scenario = scenarios.draw(seed, training.training_applications(fold), tasks)
    workload = scenario.draw(seed)
    if len(workload) > training.MOST_TASKS:
        return None

    def result(policy: str | Policy) -> list[Result]:
        return [portfolio.measure(workload, scenario.cluster, policy, seed, scenario.options)]

    base, punctual = result(portfolio.BASELINE), result(portfolio.PUNCTUAL)
    where = (scenario.stream.application, scenario.cluster.name, scenario.stream.load)
    found = [portfolio.judged("", where, result(one.policy(where[2])), base, punctual) for one in entries]
    return [(-math.log(each.energy), float(each.keeps)) for each in found]


def validated(
    entries: Mapping[int, Sequence[Entry]], count: int = 100, tasks: int = 300, workers: int = 2
) -> dict[int, Scores]:
    """Several entries of each fold on so many scenarios, over processes."""
    jobs: list[Job] = [
        (fold, FIRST_SEED + number, tasks, tuple(some)) for number in range(count) for fold, some in entries.items()
    ]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(scored, jobs, chunksize=2))
    found: dict[int, list[list[tuple[float, float]]]] = {fold: [] for fold in entries}
    for job, row in zip(jobs, rows, strict=True):
        if row is not None:
            found[job[0]].append(row)
    tables = {fold: np.array(rows) for fold, rows in found.items()}
    return {fold: Scores(table[:, :, 0], table[:, :, 1]) for fold, table in tables.items()}
