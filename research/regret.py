"""How much simulating before commitment may cost: whole streams beside the tuned portfolio's own runs.

The rehearsal leaves the portfolio's setting only for one that is surely better (`plan.rehearsal`, ``sure``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from research import evaluate, portfolio
from research.portfolio import Result
from wattflow.learn import scenarios, streams
from wattflow.learn.trial import Trial
from wattflow.plan.measured import slower
from wattflow.policy import registry, wattflow
from wattflow.policy.base import Policy

FIRST_SEED = 660
"""On seeds below it settings were chosen, or judged before."""
SURE = 3.0
"""Standard errors that the rehearsal asks for; chosen on training streams."""
REHEARSED, OURS = "rehearsed_sure", "learned"


@dataclass(frozen=True, slots=True)
class Beside:
    """One policy beside the portfolio: joules, the worst of mean response, p95 and makespan, deadlines newly missed."""

    joules: float
    slower: float
    missed: int


@dataclass(frozen=True, slots=True)
class Regret:
    """One scenario and seed, by policy."""

    name: str
    outcomes: Mapping[str, Beside]


def reference(load: float, fold: int) -> Policy:
    """The best setting of `wattflow` in the portfolio at a load, as a setting of the learned policy."""
    held = streams.FOLDS[fold] if fold >= 0 else ()
    best = next(t for t in portfolio.tuned(load, held) if t.setting.split(":")[0] == "wattflow")
    params = registry.load(best.setting).params
    return registry.load("learned", lean=0.0, **{name: params[name] for name in wattflow.DIAL.defaults})


def measured(count: int, tasks: int = 150, first_seed: int = FIRST_SEED) -> Iterator[Regret]:
    """Random scenarios with seeds below those of training, each with the weights of the fold that holds it out."""
    folds = {name: fold for fold, names in enumerate(streams.FOLDS) for name in names}
    for seed in range(first_seed, first_seed + count):
        scenario = scenarios.draw(seed, streams.APPLICATIONS, tasks)
        fold = folds[scenario.stream.application]
        workload = scenario.draw(seed)
        load, cluster, options = scenario.stream.load, scenario.cluster, scenario.options
        both = reference(load, fold), evaluate.our_policy(fold, load)
        plain, own = (Trial(workload, cluster, p, seed, options).run() for p in both)
        sure = evaluate.our_rehearsal(fold, load).with_params(sure=SURE)
        found = {REHEARSED: portfolio.measure(workload, cluster, sure, seed, options), OURS: own}
        yield Regret(scenario.name, {name: beside(one, plain) for name, one in found.items()})


def beside(ours: Result, theirs: Result) -> Beside:
    """Ours over the portfolio's."""
    return Beside(ours.energy_j / theirs.energy_j, slower(ours, theirs), len(ours.missed - theirs.missed))


def worst(values: list[float], share: float = 0.01) -> float:
    """Mean of the largest share, at least of one, in per cent above 1."""
    many = max(1, round(share * len(values)))
    return 100.0 * (float(np.sort(values)[-many:].mean()) - 1.0)


__all__ = ["Beside", "Regret", "beside", "measured", "reference", "worst"]
