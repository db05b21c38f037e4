"""The experiment of the learned policy: what becomes of results, and whose weights judge what."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattflow.lab.experiments import experiment, learned
from wattflow.learn import evaluate, portfolio, streams
from wattflow.learn.evaluate import OURS, Place, Row
from wattflow.learn.portfolio import Result
from wattflow.model.errors import InvalidInput

PLACES = [Place(name, 0, load, c) for name in ("a", "b") for c in ("mixed", "random-0") for load in (0.3, 0.6, 0.8)]


def rows(ours: float, slower: float = 1.0) -> list[Row]:
    joules = {portfolio.BASELINE: 100.0, portfolio.PUNCTUAL: 80.0, "wattflow": 51.0, "portfolio": 52.0, OURS: ours}
    made = []
    for place in PLACES:
        for name, energy in joules.items():
            late = slower if name == OURS else 1.0
            results = tuple(Result(energy + seed, 10.0 * late, 20.0, 30.0) for seed in range(2))
            made.append(Row(place, name, name, results))
    return made


def figures(ours: float, slower: float = 1.0) -> dict[str, tuple[float, bool]]:
    return {f.name: (f.value, f.ok) for f in learned.outcome(rows(ours, slower), 1.0).figures}


def test_bars_are_met_by_a_better_policy_and_missed_by_a_worse_one() -> None:
    good, bad = figures(48.0), figures(53.0)
    assert good["learned_below_kubernetes_load_0.3"] == (pytest.approx(-51.7, abs=0.5), True)
    assert good["learned_against_portfolio"][1] and not bad["learned_against_portfolio"][1]
    assert not bad["learned_worst_scenario_against_portfolio"][1] or bad["learned_against_portfolio"][0] > 0
    assert good["learned_scenarios_within_bound"] == (len(PLACES), True)


def test_a_run_that_breaks_the_bound_is_counted_and_left_out_of_the_second_comparison() -> None:
    found = figures(40.0, slower=1.2)
    assert found["learned_scenarios_within_bound"] == (0, False)
    assert "learned_against_portfolio_both_within_bound" not in found


def test_rivals_are_listed_where_they_were_judged_everywhere() -> None:
    judged = [
        Row(p, "dqn-placement", "file", tuple(Result(60.0 + s, 11.0, 20.0, 30.0) for s in range(2))) for p in PLACES
    ]
    partly = [Row(PLACES[0], "distilled", "rule", judged[0].results)]
    outcome = learned.outcome([*rows(48.0), *judged, *partly], 1.0)
    names = [row[0] for row in outcome.sheets[-1].rows]
    assert names == ["dqn-placement", "portfolio", OURS]
    found = {f.name: (f.value, f.ok) for f in outcome.figures}
    value, ok = found["learned_against_dqn_placement"]
    assert value == pytest.approx(-19.8, abs=0.3) and ok
    assert found["learned_within_bound_beyond_dqn_placement"] == (len(PLACES), True)
    assert "learned_against_distilled" not in found


def test_every_application_is_judged_with_weights_that_have_not_seen_it() -> None:
    for name, fold in evaluate.held_out():
        assert name in streams.FOLDS[fold]
    assert {name for name, _ in evaluate.held_out()} == set(streams.APPLICATIONS)


def test_a_folder_of_other_workflows_takes_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    settings = experiment.load("learned", tmp_path).settings
    assert isinstance(settings, learned.LearnedSettings)
    found = learned.places(settings)
    assert {place.application for place in found} == {"mine"}
    assert {place.fold for place in found} == {-1}
    (tmp_path / "mine").rmdir()
    with pytest.raises(InvalidInput, match="no folder of workflows"):
        learned.places(settings)
