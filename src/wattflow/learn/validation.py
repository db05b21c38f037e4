"""Weights beside other weights on scenarios that neither training nor any choice has seen, in pairs.

Scenarios are of the applications that a fold trains on (those it holds out are for `wattflow experiment learned`), from
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

from wattflow.learn import evolve, scenarios
from wattflow.learn.trial import Judge

Floats = NDArray[np.float64]
FIRST_SEED = evolve.FIRST_SEED + 8000
Job = tuple[int, int, int, tuple[Floats, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Scores of several weights, a row for each scenario: joules saved beside the flagship's and bounds kept."""

    saved: Floats
    kept: Floats

    @property
    def score(self) -> Floats:
        """Of every scenario and weights; the flagship's is the mean of the bounds that it keeps."""
        return self.saved + self.kept

    def lead(self, one: int, other: int) -> tuple[float, float]:
        """By how much one beats another, and the standard error of that."""
        won = self.score[:, one] - self.score[:, other]
        return float(won.mean()), float(won.std(ddof=1)) / math.sqrt(len(won))


def scored(job: Job) -> list[tuple[float, float]] | None:
    """One scenario: what every one of the weights saves, and whether it keeps the bound."""
    fold, seed, tasks, every = job
    one = Judge(scenarios.draw(seed, evolve.training_applications(fold), tasks), seed)
    if len(one.trial.workload) > evolve.MOST_TASKS:
        return None
    found = [one.trial.run(theta) for theta in every]
    return [(math.log(one.reference.energy_j / each.energy_j), float(one.keeps(each))) for each in found]


def validated(
    weights: Mapping[int, Sequence[Floats]], count: int = 100, tasks: int = 300, workers: int = 2
) -> dict[int, Outcome]:
    """Several weights of each fold on so many scenarios, over processes."""
    jobs: list[Job] = [
        (fold, FIRST_SEED + number, tasks, tuple(some)) for number in range(count) for fold, some in weights.items()
    ]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(scored, jobs, chunksize=2))
    found: dict[int, list[list[tuple[float, float]]]] = {fold: [] for fold in weights}
    for job, row in zip(jobs, rows, strict=True):
        if row is not None:
            found[job[0]].append(row)
    tables = {fold: np.array(rows) for fold, rows in found.items()}
    return {fold: Outcome(table[:, :, 0], table[:, :, 1]) for fold, table in tables.items()}
