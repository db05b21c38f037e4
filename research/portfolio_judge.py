"""Judges that begin at the bar: the network corrects the tuned portfolio's setting, and is judged beside it.

The flagship's dials below the network are those of the portfolio's best setting of it at the scenario's load, chosen
without the fold's applications. So weights of zero are the opponent, in joules and in how often the bound is kept.

The fine is a smooth step, 1 / (1 + e^(−x / WIDTH)) of the logarithm x of what is slowest beside what is allowed: close
to the share of scenarios that break the bound, which is what counts in the end, but with a slope wherever a scenario
is near it. Schedules are chaotic, so what a fine adds in noise matters as much as what it says: this one says as much
as that of `Judge` with a third of the noise (docs/learned.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from research import portfolio
from research.portfolio import Result
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Drawn, Judge, TrialWeights
from wattflow.plan import measured
from wattflow.policy import registry, wattflow

WIDTH = 0.07
LATE = 0.5
"""What newly missed deadlines cost, however many."""


@cache
def setting(load: float, fold: int) -> str:
    """The portfolio's best setting of the flagship at a load, by what is known without the fold's applications."""
    held = scenarios.FOLDS[fold] if fold >= 0 else ()
    return next(one.setting for one in portfolio.tuned(load, held) if one.setting.split(":")[0] == "wattflow")


def dials(load: float, fold: int) -> Mapping[str, float]:
    """The same as dials of the learned policy."""
    params = registry.load(setting(load, fold)).params
    return {name: params[name] for name in wattflow.DIAL.defaults}


class BarJudge(Judge):
    """A scenario in which the portfolio's setting is the reference, and what the network corrects."""

    def __init__(
        self, scenario: Drawn, seed: int, wish: TrialWeights | None = None, fold: int = -1, own: bool = False
    ) -> None:
        """``own``: the flagship's own dials take the place of the portfolio's."""
        assert isinstance(scenario, Scenario)
        self.fold, self.own = fold, own
        wish = wish or TrialWeights()
        base = {} if own else dict(dials(scenario.stream.load, fold))
        if wish.wait > 0.0:
            base["wait"] = wish.wait
        reference = registry.load("wattflow", **base)
        super().__init__(scenario, seed, wish, wish.policy().with_params(**base), reference)

    def like(self, scenario: Drawn) -> Judge:
        """The same seed and wish in another scenario."""
        return BarJudge(scenario, self.seed, self.wish, self.fold, self.own)

    def penalty(self, found: Result) -> float:
        """About the chance that a scenario like this breaks the bound, and something for newly missed deadlines."""
        beyond = math.log(measured.slower(found, self.baseline) / (portfolio.BOUND + self.wish.wait)) / WIDTH
        step = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, beyond))))
        return step + (LATE if found.missed - self.punctual.missed else 0.0)
