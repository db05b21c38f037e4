"""Searches that know the whole stream beforehand, beside the policies: annealing and NSGA-II at equal wall time.

They are no opponents: a policy learns of a workflow when it arrives. On small streams whose estimates are true for all,
the searches are each given the seconds that `shielded`, the policy that computes most, takes for the whole stream, and
may let nodes sleep. Annealing looks for the fewest joules within the bound on the makespan; of NSGA-II's front counts
what counts of the energy-HEFT sweep: fewest joules of the points that keep the bound, the least late where none does.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from research import evaluate, fronts, portfolio, search_front
from research.evaluate import NETWORK, OURS, PORTFOLIO, SHIELDED, Place, Plan
from research.fronts import Fronts
from research.portfolio import BASELINE, Result
from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.learn.scenarios import Scenario
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import annealing
from wattflow.plan.measured import result_of, slower
from wattflow.policy.base import Policy

ANNEALING, NSGA2 = "annealing", "nsga2"
POLICIES = (BASELINE, PORTFOLIO, OURS, NETWORK, SHIELDED)
MOST_TASKS = 150
LOAD = 0.6
PROBE = 500
"""Evaluations of annealing by which its speed is known."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """``search`` alone, and ``all`` with set-up and simulation of what was found."""

    search: float
    all: float


@dataclass(frozen=True, slots=True)
class Searched:
    """One small stream.

    Attributes:
        results: By policy or search.
        seconds: Of the shielded policy and of the searches.
        equal: Fronts, NSGA-II given the seconds of our dials.
        longer: Fronts, NSGA-II given the seconds of the shielded policy.
    """

    place: Place
    tasks: int
    workflows: int
    results: Mapping[str, Result]
    seconds: Mapping[str, Seconds]
    equal: Fronts
    longer: Fronts


def places(todo: Iterable[Place]) -> list[Place]:
    """One for each application and cluster, at the load nearest to the usual one."""
    found: dict[tuple[str, str], Place] = {}
    for place in todo:
        key = (place.application, place.cluster)
        if key not in found or abs(place.load - LOAD) < abs(found[key].load - LOAD):
            found[key] = place
    return list(found.values())


def small_stream(place: Place, seed: int = 0) -> tuple[Scenario, Workload]:
    """As many workflows as make at most 150 tasks, one at least."""
    scenario = evaluate.scenario_of(place, Plan(tasks=MOST_TASKS, runtime_error=0.0, power_error=0.0))
    for many in range(scenario.stream.workflows, 0, -1):
        scenario = replace(scenario, stream=replace(scenario.stream, workflows=many))
        workload = scenario.draw(seed)
        if len(workload) <= MOST_TASKS:
            break
    return scenario, workload


def searched(place: Place, seed: int = 0) -> Searched:
    """Policies, searches and fronts on one small stream. Raises MissingExtra without pymoo."""
    scenario, workload = small_stream(place, seed)
    cluster = scenario.cluster
    _warmed()
    given: dict[str, str | Policy] = {
        BASELINE: BASELINE,
        PORTFOLIO: evaluate.opponent(place.load, place.fold),
        OURS: evaluate.our_policy(place.fold, place.load),
        NETWORK: evaluate.our_network(place.fold),
    }
    results = {name: portfolio.measure(workload, cluster, policy, seed) for name, policy in given.items()}
    began = time.perf_counter()
    results[SHIELDED] = portfolio.measure(workload, cluster, evaluate.our_shield(), seed)
    budget_s = time.perf_counter() - began
    seconds = {SHIELDED: Seconds(budget_s, budget_s)}
    results[ANNEALING], seconds[ANNEALING] = annealed(workload, cluster, results[BASELINE], budget_s, seed)
    long = search_front.front(workload, cluster, seconds=budget_s, seed=seed + 1)
    results[NSGA2] = best_of(long.results, results[BASELINE])
    seconds[NSGA2] = Seconds(long.search_s, long.seconds)
    mine, our_s = fronts.ours(workload, cluster, evaluate.our_network(place.fold), seed)
    short = search_front.front(workload, cluster, seconds=our_s, seed=seed + 1)
    return Searched(
        place,
        len(workload),
        len(workload.workflow_names),
        results,
        seconds,
        fronts.compared(mine, our_s, short.results, short.search_s),
        fronts.compared(mine, our_s, long.results, long.search_s),
    )


@functools.cache
def _warmed() -> None:
    """Once in a process: code that was compiled earlier is read from disk, which is no part of anybody's seconds."""
    portfolio.measure(Recipe("montage", 30).draw(1), load_cluster("mixed"), evaluate.our_shield(), 1)


def annealed(
    workload: Workload, cluster: Cluster, baseline: Result, budget_s: float, seed: int
) -> tuple[Result, Seconds]:
    """The fewest joules within the bound on the makespan, walking for so many seconds (longer where the walk has to be
    repeated because its schedule was late)."""
    limit_s = portfolio.BOUND * baseline.makespan_s
    probe = annealing.anneal(workload, cluster, evaluations=PROBE, seed=seed)
    walks = max(1, round(probe.evaluations / PROBE))
    evaluations = max(1, int(budget_s * probe.per_s / walks)) if math.isfinite(probe.per_s) else PROBE
    began = time.perf_counter()
    found = annealing.anneal(workload, cluster, limit_s, evaluations=evaluations, seed=seed)
    if found.run is None:  # nothing in time: then without a limit
        found = annealing.anneal(workload, cluster, evaluations=evaluations, seed=seed)
    took = Seconds(found.seconds, time.perf_counter() - began)
    assert found.run is not None
    return result_of(found.run), took


def best_of(results: Iterable[Result], baseline: Result) -> Result:
    """Fewest joules of those within the bound; the least late where none is."""
    some = list(results)
    able = [one for one in some if slower(one, baseline) <= portfolio.BOUND]
    return min(able, key=lambda r: r.energy_j) if able else min(some, key=lambda r: slower(r, baseline))


def as_data(one: Searched) -> dict[str, Any]:
    """For JSON."""
    results = {name: asdict(r) | {"missed": sorted(r.missed)} for name, r in one.results.items()}
    return {**asdict(one), "place": asdict(one.place), "results": results}


def from_data(data: Mapping[str, Any]) -> Searched:
    """What `as_data` wrote."""
    return Searched(
        Place(**data["place"]),
        data["tasks"],
        data["workflows"],
        {name: evaluate.result_from(r) for name, r in data["results"].items()},
        {name: Seconds(**s) for name, s in data["seconds"].items()},
        Fronts(**data["equal"]),
        Fronts(**data["longer"]),
    )
