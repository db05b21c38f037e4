"""How far there is to go: the portfolio, our policies and the best that annealing finds, on the same streams.

Ours are the learned policy, the rehearsed one told the usual load, the rehearsed one told that what has arrived is
all there is (``load`` = 0), as it is of a batch, and the one that plans at each arrival: none is told of a workflow
before it arrives. Annealing knows the whole stream and its true runtimes; the policies get the truth as estimates too
(unless ``runtime_error`` says otherwise), so that what is left between them is foresight and search. Annealing may not
end later than the portfolio does, so neither may ours: one that does counts as having saved nothing. Where one of ours
found fewer joules in time than annealing, these are the best there are: nobody closes more than the whole gap.

The planning policy is judged as it comes: it takes estimates to err by 20 %.
Aside, to show what the rest is due to, it is told that its estimates are true (``spread`` = 0), which they are here,
and all workflows at the first arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from research import evaluate, portfolio
from research.evaluate import OURS, REHEARSED, Place, Plan
from research.portfolio import Result
from wattflow.learn import streams
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import annealing, planned
from wattflow.policy import arrivals
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions

TASKS = 60
"""Of a stream here: annealing takes time by tasks."""
BATCH, PLANNED = "rehearsed_batch", "planned"
FORETOLD, TRUSTING = "planned_foretold", "planned_trusting"
ASIDE = (FORETOLD, TRUSTING)
"""Not to be judged: one knows the future, the other is told that its estimates are true."""
LATER = 1.000001
"""Times the portfolio's makespan: the same slack that annealing has."""


@dataclass(frozen=True, slots=True)
class Headway:
    """Joules in one scenario, ours by policy as they count; ``best_j`` is the least of annealing and those in time.

    ``later`` names those of ours that ended later than the portfolio.
    """

    place: Place
    portfolio_j: float
    best_j: float
    ours_j: Mapping[str, float]
    later: frozenset[str] = frozenset()

    @property
    def gap(self) -> float:
        """What annealing saves of the portfolio's joules."""
        return 1.0 - self.best_j / self.portfolio_j

    def closed(self, name: str) -> float:
        """The part of that which one of our policies saves."""
        return (self.portfolio_j - self.ours_j[name]) / (self.portfolio_j - self.best_j)


def ours(place: Place, workload: Workload) -> dict[str, Policy]:
    """Our policies at a place, and those aside."""
    rehearsed = evaluate.our_rehearsal(place.fold, place.load)
    learned = evaluate.our_policy(place.fold, place.load)
    return {OURS: learned, REHEARSED: rehearsed, BATCH: rehearsed.with_params(load=0.0), **planning(place, workload)}


def planning(place: Place, workload: Workload) -> dict[str, Policy]:
    """The planning policy, its settings chosen without the place's application; the same foretold, and trusting."""
    name = f"fold-{place.fold}" if place.fold >= 0 else "all"
    told = planned.foretold([workflow for _, workflow in arrivals.workflows(workload)], name)
    plain = planned.policy_of(name).with_params(load=place.load)
    return {PLANNED: plain, FORETOLD: told.with_params(load=place.load), TRUSTING: plain.with_params(spread=0.0)}


def measured(places: Sequence[Place], seed: int = 0, evaluations: int = 30_000) -> Iterator[Headway]:
    """One stream of few workflows for each place, estimates true."""
    for place in places:
        workload, cluster = stream(place, seed)
        theirs = portfolio.measure(workload, cluster, evaluate.opponent(place.load, place.fold), seed)
        mine = {name: portfolio.measure(workload, cluster, one, seed) for name, one in ours(place, workload).items()}
        best = annealing.anneal(workload, cluster, theirs.makespan_s, evaluations=evaluations, seed=seed)
        yield counted(place, theirs, mine, best.energy_j)


def with_errors(
    places: Sequence[Place], runtime_error: float, seed: int = 0, evaluations: int = 30_000
) -> Iterator[Headway]:
    """The same for the portfolio and the planning policy with estimates that err; annealing knows the truth."""
    options = SimOptions(runtime_error=runtime_error)
    for place in places:
        workload, cluster = stream(place, seed)
        theirs = portfolio.measure(workload, cluster, evaluate.opponent(place.load, place.fold), seed, options)
        ours_alone = planning(place, workload)[PLANNED]
        mine = {PLANNED: portfolio.measure(workload, cluster, ours_alone, seed, options)}
        best = annealing.anneal(workload, cluster, theirs.makespan_s, evaluations=evaluations, seed=seed)
        yield counted(place, theirs, mine, best.energy_j)


def stream(place: Place, seed: int) -> tuple[Workload, Cluster]:
    """Few workflows at a place."""
    scenario = evaluate.scenario_of(place, Plan(tasks=TASKS, runtime_error=0.0, power_error=0.0))
    size = sum(len(streams.instance(path)) for path in scenario.stream.instances)
    each = size / len(scenario.stream.instances)
    scenario = replace(scenario, stream=replace(scenario.stream, workflows=max(2, int(TASKS / each))))
    return scenario.draw(seed), scenario.cluster


def counted(place: Place, theirs: Result, mine: Mapping[str, Result], best_j: float) -> Headway:
    """All held to the portfolio's makespan: whoever ends later has saved nothing."""
    later = frozenset(name for name, one in mine.items() if one.makespan_s > LATER * theirs.makespan_s)
    ours_j = {name: max(one.energy_j, theirs.energy_j if name in later else 0.0) for name, one in mine.items()}
    return Headway(place, theirs.energy_j, min(best_j, theirs.energy_j, *ours_j.values()), ours_j, later)


def summary(found: Sequence[Headway], name: str) -> tuple[float, float]:
    """Mean gap, and what one of ours closed of all gaps together (log-joules), where annealing found anything."""
    some = [one for one in found if math.isfinite(one.best_j) and one.gap > 0.005]
    if not some:
        return 0.0, math.nan
    gap = sum(math.log(one.portfolio_j / one.best_j) for one in some)
    won = sum(math.log(one.portfolio_j / one.ours_j[name]) for one in some)
    return 1.0 - math.exp(-gap / len(some)), won / gap
