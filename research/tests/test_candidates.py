"""Which settings a rehearsal tries: an even spread, and a choice that covers what occurs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from research import candidates, dial_space, portfolio
from research.portfolio import Judged
from wattflow.files.data_folder import packaged
from wattflow.learn import streams
from wattflow.plan import rehearsal
from wattflow.policy import registry, wattflow


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


def test_the_portfolio_is_tuned_over_all_that_a_rehearsal_may_choose() -> None:
    def numbers(dials: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
        return tuple(sorted(candidates.rounded(wattflow.DIAL.defaults | dials).items()))

    tuned = {row.setting for row in portfolio.shipped()}
    assert tuned == set(portfolio.settings())
    space = {numbers(registry.load(one).params) for one in tuned if one.split(":")[0] == "wattflow"}
    names = ("all", *(f"fold-{fold}" for fold in range(len(streams.FOLDS))))
    chosen = [numbers(dials) for name in names for dials in rehearsal.settings(name)]
    chosen += [numbers(rehearsal.reference(load, name)) for name in names for load in streams.LOADS]
    assert set(chosen) <= space
    assert all(numbers(dials) in space for dials in dial_space.tried())


def test_safe_settings_are_those_that_keep_the_bound_most_often_without_the_held_out() -> None:
    def rows(setting: str, energy: float, slow: Sequence[str]) -> list[Judged]:
        names = ("makeflow/blast", "makeflow/bwa", "nextflow")
        return [Judged(setting, one, "mixed", 0.3, energy, 1.1 if one in slow else 1.0, 0) for one in names]

    table = [
        *rows("wattflow:second=60", 0.9, ()),
        *rows("wattflow:second=50", 0.95, ["makeflow/blast"]),  # the first keeps more with fewer joules
        *rows("wattflow:second=40", 0.8, ["makeflow/blast"]),
        *rows("wattflow:second=1", 0.5, ["makeflow/blast", "makeflow/bwa"]),
        *rows("eft:sleep=0", 0.1, ()),  # not the flagship
    ]
    assert [one["second"] for one in candidates.safe((), table)] == [60.0, 40.0, 1.0]
    # Without blast the second is as safe as the first, with fewer joules.
    assert [one["second"] for one in candidates.safe(["makeflow/blast"], table)] == [40.0, 1.0]
    assert [one["second"] for one in candidates.safe(["makeflow/blast", "makeflow/bwa"], table)] == [1.0]


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
    first = candidates.safe(streams.FOLDS[1])[0]
    table = {"about": "x", "settings": {"all": [{"second": 1.0}], "fold-1": [{"second": 2.0}, first, {"second": 2.0}]}}
    made = candidates.completed(table)
    safe = candidates.safe(streams.FOLDS[1])
    assert made["settings"]["fold-1"][:3] == [{"second": 2.0}, *safe[:2]] and made["about"] == "x"
    best = portfolio.tuned(0.8, streams.FOLDS[1])[0]
    assert made["references"]["fold-1"]["0.8"] == candidates.rounded(best.policy().params)
    shipped = json.loads(packaged(*rehearsal.TABLE).read_text(encoding="utf-8"))
    assert candidates.completed(shipped) == shipped  # today's portfolio


def test_a_setting_is_tried_once_however_it_is_written() -> None:
    own = dict(wattflow.DIAL.defaults)
    some = [{"second": 5.0}, {"second": 7.0}, own | {"second": 7.0}, own]
    assert rehearsal.distinct(some, own) == [{"second": 5.0}, {"second": 7.0}]
