"""Fronts, the search for the worst case and the batch problem: what they compute, on cases known beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research import adversary, batch, dialing, fronts, portfolio
from wattflow.learn import scenarios
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import weights


def test_hypervolume_of_known_fronts() -> None:
    corner = np.array([2.0, 2.0])
    assert fronts.hypervolume(np.array([[1.0, 1.0]]), corner) == pytest.approx(0.25)
    assert fronts.hypervolume(np.array([[1.0, 1.0], [1.5, 1.5]]), corner) == pytest.approx(0.25)
    assert fronts.hypervolume(np.array([[0.5, 1.0], [1.0, 0.5]]), corner) == pytest.approx((1.5 + 0.5) / 4)
    assert fronts.hypervolume(np.array([[3.0, 0.1]]), corner) == 0.0


def test_a_neighbour_differs_in_at_most_two_numbers() -> None:
    rng = np.random.default_rng(1)
    first = adversary.draw(rng)
    for _ in range(20):
        other = adversary.draw(rng, first)
        names = ("application", "load", "cluster", "runtime_error", "power_error", "slack")
        assert sum(getattr(first, name) != getattr(other, name) for name in names) <= 2


def test_the_search_goes_where_it_is_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(case: adversary.Case, tasks: int, seeds: int, mine: str) -> adversary.Case:
        assert mine == "shielded"
        return replace(case, log_ratio=case.runtime_error)

    monkeypatch.setattr(adversary, "judged", outcome)
    found = adversary.search(40, "shielded")
    assert len(found) == 40
    assert found[0].log_ratio == max(case.runtime_error for case in found) > 0.28


def test_bounded_slowdown_by_hand() -> None:
    jobs = Workload.of_columns(
        "two", release_s=np.zeros(2), runtime_s=np.array([100.0, 5.0]), workflow=np.arange(2, dtype=np.int32),
        shapes=(Shape(0, (Variant(cores=256),)),), workflow_submit_s=np.zeros(2),
    )  # fmt: skip
    # In order: 1 and 105 / 10; shortest first: 105 / 100 and 1.
    assert batch.bounded_slowdown(jobs, "fifo", "strict") == pytest.approx((1.0 + 10.5) / 2)
    assert batch.bounded_slowdown(jobs, "sjf", "strict") == pytest.approx((1.05 + 1.0) / 2)


@pytest.mark.parametrize("load", scenarios.LOADS)
def test_dials_are_tried_beside_the_portfolios_own_best(load: float) -> None:
    first, trained, *_, own = dialing.candidates(load, 0)
    best = next(t for t in portfolio.tuned(load, scenarios.FOLDS[0]) if t.setting.startswith("wattflow:"))
    assert all(first[name] == trained[name] == value for name, value in best.policy().params.items())
    policy = dialing.policy_of(np.zeros(weights.SIZE), first)
    assert (policy.params["lean"], trained["lean"], own) == (0.0, 1.0, {})


def test_dials_are_the_cheapest_that_keep_the_bound_as_often_as_the_portfolio() -> None:
    portfolios, dearer, cheaper = (0.0, 0.80, 0.70), (0.02, 0.90, 0.80), (-0.05, 0.79, 0.70)
    slow, slower = (-0.2, 0.70, 0.60), (-0.01, 0.70, 0.60)
    assert dialing.chosen(np.array([portfolios, dearer, cheaper, slow])) == 2
    # The portfolio's own setting is no choice; where nothing keeps up, joules and bound are weighed.
    assert dialing.chosen(np.array([portfolios, slow, slower])) == 1
