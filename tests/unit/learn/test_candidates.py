"""Which settings a rehearsal tries: an even spread, and a choice that covers what occurs."""

from __future__ import annotations

import json

import numpy as np

from wattflow.files.data_folder import packaged
from wattflow.learn import candidates, dial_space, portfolio, streams
from wattflow.plan import rehearsal


def test_the_spread_fills_every_range_and_is_the_same_each_time() -> None:
    points = dial_space.spread()
    assert points == dial_space.spread() and len(points) == dial_space.SPREAD
    for name, (low, high) in dial_space.RANGES.items():
        values = np.sort([one[name] for one in points])
        assert low <= values[0] and values[-1] <= high
        if name in dial_space.LOGARITHMIC:
            values, low, high = np.log(values), np.log(low), np.log(high)
        shares = (values - low) / (high - low)
        assert np.abs(shares - (np.arange(len(shares)) + 0.5) / len(shares)).max() < 0.12


def test_the_portfolio_is_tuned_over_the_same_settings() -> None:
    known = portfolio.settings()
    assert all(portfolio.typed(dials) in known for dials in dial_space.spread())


def test_settings_are_chosen_for_what_they_add() -> None:
    # Best alone is 1; beside 0, setting 2 (good where 0 is bad) adds more than 1.
    cost = np.array([[1.0, 0.9, 3.0, 5.0], [1.0, 0.9, 3.0, 5.0], [4.0, 3.9, 0.0, 5.0]])
    assert candidates.covering(cost, 3) == [0, 2, 1]


def test_a_fold_is_chosen_without_its_applications() -> None:
    cost = np.ones((3, 70))
    cost[0, 5] = 0.0  # blast alone is better off with 5
    cost[1:, 9] = 0.5
    names = ["makeflow/blast", "makeflow/bwa", "pegasus/soykb"]
    made = candidates.chosen(names, cost, [{"second": float(i)} for i in range(70)])
    assert {"second": 5.0} in made["all"][:3] and made["fold-0"][1] == {"second": 9.0}
    assert {"second": 5.0} not in made["fold-0"][:2]


def test_the_table_is_completed_with_safe_settings_and_the_portfolios_own() -> None:
    table = {"about": "x", "settings": {"all": [{"second": 1.0}], "fold-1": [{"second": 2.0}]}}
    made = candidates.completed(table)
    safe = [candidates.rounded(dials) for dials in dial_space.safe()]
    assert made["settings"]["fold-1"] == [{"second": 2.0}, *safe] and made["about"] == "x"
    best = portfolio.tuned(0.8, streams.FOLDS[1])[0]
    assert made["references"]["fold-1"]["0.8"] == candidates.rounded(best.policy().params)
    shipped = json.loads(packaged(*rehearsal.TABLE).read_text(encoding="utf-8"))
    assert candidates.completed(shipped) == shipped  # today's portfolio
