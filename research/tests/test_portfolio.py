"""The tuned opponent: its settings, how it is judged, and what the shipped table says."""

from __future__ import annotations

import pytest

from research import portfolio
from research.portfolio import Judged, Result
from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry


def test_the_portfolio_has_at_least_ninety_settings_and_each_is_a_policy() -> None:
    settings = portfolio.settings()
    assert len(set(settings)) == len(settings) >= 90
    for setting in settings:
        assert registry.load(setting).name == setting


def test_measure_tells_response_of_workflows_and_late_ones() -> None:
    workload = Recipe("montage", 30, 3, slack=0.001).draw(1)
    found = portfolio.measure(workload, load_cluster("mixed"), "eft", 1)
    assert found.missed == {0, 1, 2}
    assert 0 < found.mean_s <= found.p95_s <= found.makespan_s
    assert found.energy_j > 0


def test_judged_compares_means_and_counts_only_new_misses() -> None:
    base = [Result(100, 10, 20, 30), Result(300, 10, 20, 30)]
    punctual = [Result(1, 1, 1, 1, frozenset({1})), Result(1, 1, 1, 1)]
    ours = [Result(50, 10, 20, 30, frozenset({1})), Result(150, 10, 21, 30, frozenset({2}))]
    found = portfolio.judged("x", ("a", "c", 0.3), ours, base, punctual)
    assert (found.energy, found.slower, found.missed) == (0.5, 1.025, 1)
    assert not found.keeps


def row(setting: str, application: str, energy: float, slower: float = 1.0, load: float = 0.3) -> Judged:
    return Judged(setting, application, "mixed", load, energy, slower, 0)


def test_tuned_takes_the_most_frugal_that_keeps_the_bound() -> None:
    rows = [row("frugal", "a", 0.4, 1.5), row("fair", "a", 0.6), row("poor", "a", 0.9)]
    assert [t.setting for t in portfolio.tuned(0.3, rows=rows)] == ["fair", "poor", "frugal"]


def test_tuned_does_not_see_held_out_applications() -> None:
    rows = [row("x", "a", 0.9), row("y", "a", 0.6), row("x", "b", 0.1), row("y", "b", 0.9)]
    assert portfolio.tuned(0.3, rows=rows)[0].setting == "x"
    assert portfolio.tuned(0.3, held_out=("b",), rows=rows)[0].setting == "y"
    with pytest.raises(InvalidInput, match="no application"):
        portfolio.tuned(0.3, held_out=("a", "b"), rows=rows)


@pytest.mark.parametrize("load", scenarios.LOADS)
def test_the_shipped_table_has_every_setting_on_every_application(load: float) -> None:
    rows = [r for r in portfolio.shipped() if r.load == load]
    assert len({r.setting for r in rows}) >= 90
    assert {r.setting for r in rows} <= set(portfolio.settings())
    assert {r.application for r in rows} == set(scenarios.APPLICATIONS)
    best = portfolio.tuned(load)[0]
    assert best.energy < 1.0
    assert best.policy().name == best.setting
