"""How much a look ahead may cost: whole streams with simulate-before-commit beside the tuned portfolio's own runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattflow.learn import evaluate, portfolio, scenarios, streams
from wattflow.learn.foresight import Foresight
from wattflow.learn.trial import Trial
from wattflow.policy import registry, wattflow
from wattflow.policy.base import Policy

FIRST_SEED = 400
"""Seeds 300–359 are those on which the thresholds of the look ahead were chosen: nothing is judged on them."""


@dataclass(frozen=True, slots=True)
class Regret:
    """One scenario and seed.

    Attributes:
        twin, ours: Joules of simulate-before-commit and of the learned policy over the portfolio's.
        slower: Its worst of mean response, p95 and makespan over the portfolio's.
        changed: Planning points at which another member than the reference was in use.
    """

    name: str
    twin: float
    ours: float
    slower: float
    missed: int
    changed: int


def reference(load: float, fold: int) -> Policy:
    """The best setting of `wattflow` in the portfolio at a load, as a setting of the learned policy."""
    held = streams.FOLDS[fold] if fold >= 0 else ()
    best = next(t for t in portfolio.tuned(load, held) if t.setting.split(":")[0] == "wattflow")
    params = registry.load(best.setting).params
    return registry.load("learned", lean=0.0, **{name: params[name] for name in wattflow.DIAL.defaults})


def members(load: float, fold: int) -> list[Policy]:
    """The reference, three dials of the weights that have not seen the fold, and settings near the reference."""
    first = reference(load, fold)
    ours = evaluate.our_policy(fold, load)
    near = [first.with_params(second=4 * first.params["second"]), first.with_params(wait=first.params["wait"] + 0.1)]
    leaning = [ours, ours.with_params(lean=0.5), ours.with_params(wait=0.1)]
    return [first, *leaning, *near, first.with_params(late=4 * first.params["late"])]


def measured(count: int, tasks: int = 150, first_seed: int = FIRST_SEED) -> Iterator[Regret]:
    """Random scenarios with seeds below those of training, each with the weights of the fold that holds it out."""
    folds = {name: fold for fold, names in enumerate(streams.FOLDS) for name in names}
    for seed in range(first_seed, first_seed + count):
        scenario = scenarios.draw(seed, streams.APPLICATIONS, tasks)
        fold = folds[scenario.stream.application]
        workload = scenario.draw(seed)
        some = members(scenario.stream.load, fold)
        plain, own = (Trial(workload, scenario.cluster, p, seed, scenario.options).run() for p in some[:2])
        look = Foresight(workload, scenario.cluster, some, seed, scenario.options)
        found = look.run()
        slower = max(getattr(found, n) / max(1e-9, getattr(plain, n)) for n in ("mean_s", "p95_s", "makespan_s"))
        yield Regret(
            scenario.name, found.energy_j / plain.energy_j, own.energy_j / plain.energy_j, slower,
            len(found.missed - plain.missed), int(look.used[1:].sum()),
        )  # fmt: skip


def worst(values: list[float], share: float = 0.01) -> float:
    """Mean of the largest share, at least of one, in per cent above 1."""
    many = max(1, round(share * len(values)))
    return 100.0 * (float(np.sort(values)[-many:].mean()) - 1.0)


__all__ = ["Regret", "measured", "members", "reference", "worst"]
