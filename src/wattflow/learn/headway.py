"""How far there is to go: the portfolio, the learned policy and the best that annealing finds, on the same streams.

Annealing knows the whole stream and its true runtimes; the policies get the truth as estimates too, so that what is
left between them is foresight and search. Limits are the portfolio's makespan and its own joules: annealing may not
end later than the portfolio does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wattflow.learn import evaluate, portfolio, streams
from wattflow.learn.evaluate import Place, Plan
from wattflow.plan import annealing

TASKS = 60
"""Of a stream here: annealing takes time by tasks."""


@dataclass(frozen=True, slots=True)
class Headway:
    """Joules in one scenario; ``best_j`` is inf where annealing found no schedule in time."""

    place: Place
    portfolio_j: float
    ours_j: float
    best_j: float

    @property
    def gap(self) -> float:
        """What annealing saves of the portfolio's joules."""
        return 1.0 - self.best_j / self.portfolio_j

    @property
    def closed(self) -> float:
        """The part of that which the learned policy saves."""
        return (self.portfolio_j - self.ours_j) / (self.portfolio_j - self.best_j)


def measured(places: Sequence[Place], seed: int = 0, evaluations: int = 30_000) -> Iterator[Headway]:
    """One stream of few workflows for each place."""
    for place in places:
        scenario = evaluate.scenario_of(place, Plan(tasks=TASKS, runtime_error=0.0, power_error=0.0))
        size = sum(len(streams.instance(path)) for path in scenario.stream.instances)
        each = size / len(scenario.stream.instances)
        scenario = replace(scenario, stream=replace(scenario.stream, workflows=max(2, int(TASKS / each))))
        workload, cluster = scenario.draw(seed), scenario.cluster
        theirs, ours = (
            portfolio.measure(workload, cluster, policy, seed)
            for policy in (evaluate.opponent(place.load, place.fold), evaluate.our_policy(place.fold, place.load))
        )
        best = annealing.anneal(workload, cluster, theirs.makespan_s, evaluations=evaluations, seed=seed)
        yield Headway(place, theirs.energy_j, ours.energy_j, min(best.energy_j, theirs.energy_j))


def summary(found: Sequence[Headway]) -> tuple[float, float]:
    """Mean gap, and the closed part of all gaps together (log-joules), where annealing found anything at all."""
    some = [one for one in found if math.isfinite(one.best_j) and one.gap > 0.005]
    if not some:
        return 0.0, math.nan
    gap = sum(math.log(one.portfolio_j / one.best_j) for one in some)
    won = sum(math.log(one.portfolio_j / one.ours_j) for one in some)
    return 1.0 - math.exp(-gap / len(some)), won / gap
