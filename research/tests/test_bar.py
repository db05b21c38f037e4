"""Training beside the tuned portfolio: zero is the opponent, the fine a smooth step, steps are plain and averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research import portfolio, portfolio_judge, training
from research.portfolio_judge import BarJudge
from research.recipe import SCRATCH
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import TrialWeights
from wattflow.policy import weights


def test_weights_of_zero_are_the_portfolios_setting(small: Scenario) -> None:
    judge = BarJudge(small, 3, fold=1)
    workload = small.draw(3)
    setting = portfolio_judge.setting(small.stream.load, 1)
    best = portfolio.tuned(small.stream.load, scenarios.FOLDS[1])
    assert setting == next(one.setting for one in best if one.setting.startswith("wattflow:"))
    assert judge.reference == portfolio.measure(workload, small.cluster, setting, 3, small.options)
    assert judge.trial.run(np.zeros(weights.SIZE)) == judge.reference
    own = BarJudge(small, 3, fold=1, own=True)
    assert own.reference == portfolio.measure(workload, small.cluster, "wattflow", 3, small.options)
    assert judge.like(small).reference == judge.reference


def test_the_fine_is_a_smooth_step_at_the_bound(small: Scenario) -> None:
    judge = BarJudge(small, 3)

    def fined(slower: float, missed: frozenset[int] = frozenset()) -> float:
        return judge.penalty(replace(judge.baseline, mean_s=slower * judge.baseline.mean_s, missed=missed))

    assert fined(portfolio.BOUND) == pytest.approx(0.5)
    assert fined(1.01) < 0.5 < fined(1.03) < fined(1.3) < 1.0
    newly = frozenset(range(len(small.draw(3).workflow_names))) - judge.punctual.missed
    assert newly
    assert fined(portfolio.BOUND, newly) == pytest.approx(0.5 + portfolio_judge.LATE)
    assert BarJudge(small, 3, TrialWeights(wait=0.3)).penalty(judge.baseline) < fined(1.0)


def test_plain_steps_follow_the_slope_and_the_mean_counts_later_ones_more(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "draw", lambda seed, *_: small)
    monkeypatch.setattr(training, "teaches", lambda one: True)
    settings = replace(SCRATCH, pool=2, chosen_on=1, directions=2, tries=1, longest_s=60.0)
    trainer = training.ScratchTrainer(settings)
    start, slope = trainer.progress.theta.copy(), np.ones(weights.SIZE)
    way = []
    for _ in range(3):
        trainer._step(slope)
        trainer.progress.generation += 1
        way.append(trainer.progress.theta)
    moved = np.ones(weights.SIZE) * settings.rate
    assert [(theta - start).tobytes() for theta in way[:1]] == [moved.tobytes()]
    assert way[2] == pytest.approx(start + 3.0 * moved)
    # Shares of 1, 3 / 4 and 3 / 5 of what is new.
    assert trainer.progress.mean == pytest.approx(0.1 * way[0] + 0.3 * way[1] + 0.6 * way[2])
    assert trainer.compare()["best"] == trainer.judge(trainer.progress.mean)[0]
