"""The worst case, looked for: scenarios drawn at random, and the worst of them changed a little again and again.

What is sought is the most joules of one of our policies (learned, rehearsed, or with a look ahead before commitment)
over the portfolio's setting, means over seeds. A change draws
the cluster's seed, the load, the application, the errors or the deadlines anew. A found case is a scenario like any
other: its name and numbers are enough to run it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from wattflow.learn import evaluate, portfolio, regret, scenarios, streams
from wattflow.learn.evaluate import OURS, REHEARSED
from wattflow.learn.foresight import Foresight
from wattflow.learn.scenarios import SLACKS, Scenario
from wattflow.policy.base import Policy

TWIN = "twin"


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario by numbers, and how it went: log-ratio of joules to the portfolio's."""

    application: str
    load: float
    cluster: int
    runtime_error: float
    power_error: float
    slack: float
    log_ratio: float = -math.inf

    @property
    def name(self) -> str:
        return f"{self.application} load {self.load:g} random-{self.cluster} slack {self.slack:g}"

    def scenario(self, tasks: int) -> Scenario:
        """The scenario itself."""
        stream = replace(scenarios.stream_of(self.application, self.load, tasks), slack=self.slack)
        cluster = evaluate.cluster_of(f"random-{self.cluster}")
        return Scenario(self.name, cluster, stream, self.runtime_error, self.power_error)


def draw(rng: np.random.Generator, near: Case | None = None) -> Case:
    """Any case, or one that differs from another in one or two of its numbers."""
    made = Case(
        str(rng.choice(np.array(streams.APPLICATIONS))),
        float(rng.choice(streams.LOADS)),
        int(rng.integers(0, 900)),
        float(rng.uniform(0.0, 0.3)),
        float(rng.uniform(0.0, 0.3)),
        float(rng.choice(SLACKS)),
    )
    if near is None:
        return made
    names = ("application", "load", "cluster", "runtime_error", "power_error", "slack")
    changed = rng.choice(np.array(names), size=2, replace=False).tolist()
    return replace(near, **{name: getattr(made, name) for name in changed})


def judged(case: Case, tasks: int, seeds: int, mine: str = OURS) -> Case:
    """The case with its outcome for one of ours."""
    fold = next(fold for fold, names in enumerate(streams.FOLDS) if case.application in names)
    scenario = case.scenario(tasks)

    def mean_j(joules: Callable[[int], float]) -> float:
        return float(np.mean([joules(seed) for seed in range(seeds)]))

    def of(policy: str | Policy) -> float:
        return mean_j(
            lambda seed: (
                portfolio.measure(scenario.draw(seed), scenario.cluster, policy, seed, scenario.options).energy_j
            )
        )

    def looking_ahead(seed: int) -> float:
        some = regret.members(case.load, fold)
        return Foresight(scenario.draw(seed), scenario.cluster, some, seed, scenario.options).run().energy_j

    ours_j = {
        OURS: lambda: of(evaluate.our_policy(fold, case.load)),
        REHEARSED: lambda: of(evaluate.our_rehearsal(fold, case.load)),
        TWIN: lambda: mean_j(looking_ahead),
    }[mine]()
    return replace(case, log_ratio=math.log(ours_j / of(evaluate.opponent(case.load, fold))))


def search(
    budget: int, mine: str = OURS, tasks: int = 150, seeds: int = 2, seed: int = 1, most_s: float = math.inf
) -> list[Case]:
    """So many scenarios for one of ours, half of them drawn, half near the worst so far; the worst first.

    After ``most_s`` seconds it ends with those that it has; the half near the worst begins after half of that time.
    """
    rng = np.random.default_rng([seed, 53])
    began = time.monotonic()
    found: list[Case] = []
    while len(found) < budget and (not found or time.monotonic() - began < most_s):
        early = len(found) < budget // 2 and time.monotonic() - began < most_s / 2
        found.sort(key=lambda case: -case.log_ratio)
        near = None if early or not found else found[int(rng.integers(0, min(5, len(found))))]
        found.append(judged(draw(rng, near), tasks, seeds, mine))
    return sorted(found, key=lambda case: -case.log_ratio)
