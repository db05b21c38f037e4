"""The worst case, looked for: scenarios drawn at random, and the worst of them changed a little again and again.

What is sought is the most joules of one of our policies (learned, shielded)
over the portfolio's setting, means over seeds. A change draws
the cluster's seed, the load, the application, the errors or the deadlines anew. A found case is a scenario like any
other: its name and numbers are enough to run it again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from research import evaluate, portfolio
from research.evaluate import OURS, SHIELDED
from wattflow.learn import scenarios
from wattflow.learn.scenarios import SLACKS, Scenario
from wattflow.policy.base import Policy


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
        str(rng.choice(np.array(scenarios.APPLICATIONS))),
        float(rng.choice(scenarios.LOADS)),
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
    fold = next(fold for fold, names in enumerate(scenarios.FOLDS) if case.application in names)
    scenario = case.scenario(tasks)

    def of(policy: str | Policy) -> float:
        where, known = scenario.cluster, scenario.options
        found = [portfolio.measure(scenario.draw(seed), where, policy, seed, known) for seed in range(seeds)]
        return float(np.mean([one.energy_j for one in found]))

    ours_j = {
        OURS: lambda: of(evaluate.our_policy(fold, case.load)),
        SHIELDED: lambda: of(evaluate.our_shield()),
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
