"""The energy-HEFT sweep, NSGA-II with sleep, and the searches that are shown beside the policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research import evaluate, fronts, hindsight, portfolio, search_front, shipped, sweep
from research.evaluate import Place
from research.portfolio import Result
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.plan.annealing import Game
from wattflow.policy import registry, weights


def test_the_sweep_has_ninety_settings_or_more_and_each_is_the_planner_with_that_time_out(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(sweep.settings())) == len(sweep.settings()) >= 90
    some = ("eheft:deadline=0:slack=0.3", "dewts:deadline=1:slack=0")
    monkeypatch.setattr(sweep, "plans", lambda: some)
    drawn = [small.draw(seed) for seed in range(2)]
    found = dict(sweep.results(small, drawn))
    assert list(found) == list(sweep.settings())
    for plan in some:
        for sleep in (0, 300):
            text = f"{plan}:sleep={sleep}"
            alone = tuple(
                portfolio.measure(workload, small.cluster, registry.load(text), seed, small.options)
                for seed, workload in enumerate(drawn)
            )
            assert found[text] == alone
    assert len({results[0].energy_j for results in found.values()}) > 3


def test_break_even_is_when_sleeping_costs_what_it_saves(small: Scenario) -> None:
    for node, seconds in zip(small.cluster.nodes, sweep.break_even_s(small.cluster).tolist(), strict=True):
        if node.sleep is None:
            assert seconds == np.inf
        else:
            assert seconds >= node.sleep.wake_s + node.sleep.enter_s
            assert node.power is not None
            saved = seconds * (node.power.watts[0] - node.sleep.watts)
            changing = (node.sleep.wake_s + node.sleep.enter_s) * (node.sleep.wake_w - node.sleep.watts)  # type: ignore[operator]
            assert saved >= changing * (1.0 - 1e-9)


def test_genes_of_a_known_schedule_give_it_back(small: Scenario) -> None:
    coded = search_front.Coded(Game(small.draw(0), small.cluster))
    for order, node, option in coded.game.starts:
        again = coded.schedule(coded.genes(order, node, option))
        known = coded.game.schedule(order, node, option)
        assert again.node.tolist() == node.tolist() and again.option.tolist() == option.tolist()
        assert again.energy_j == pytest.approx(known.energy_j)
        assert again.makespan_s == pytest.approx(known.makespan_s)


def test_any_genes_are_a_schedule_with_parents_first(small: Scenario) -> None:
    workload = small.draw(0)
    coded = search_front.Coded(Game(workload, small.cluster))
    made = coded.schedule(np.random.default_rng(1).random(search_front.GENES * len(workload)))
    parents = workload.parent
    children = np.repeat(np.arange(len(workload)), np.diff(workload.parent_start))
    assert sorted(made.order.tolist()) == list(range(len(workload)))
    assert (made.start_s[children] >= made.end_s[parents] - 1e-9).all()


def test_nsga2_lets_nodes_sleep_and_is_no_worse_than_what_it_starts_from(small: Scenario) -> None:
    pytest.importorskip("pymoo")
    workload = small.draw(0)
    found = search_front.front(workload, small.cluster, generations=4)
    awake = portfolio.measure(workload, small.cluster, "heft", 0)
    assert min(one.energy_j for one in found.results) < 0.9 * awake.energy_j
    assert found.evaluations == 4 * search_front.POPULATION
    assert [r.energy_j for r in search_front.front(workload, small.cluster, generations=4).results] == [
        r.energy_j for r in found.results
    ]


def test_a_front_has_each_best_point_once() -> None:
    points = np.array([[1.0, 5.0], [1.0, 5.0], [2.0, 5.0], [2.0, 3.0], [3.0, 3.0], [1.0, 6.0]])
    assert fronts.undominated(points).tolist() == [[1.0, 5.0], [2.0, 3.0]]
    mine, theirs = ([Result(e, m, m, m) for m, e in pairs] for pairs in ([(1.0, 1.0)], [(2.0, 1.0), (1.0, 2.0)]))
    one = fronts.compared(mine, 0.1, theirs, 0.2)
    assert one.ours > one.theirs and (one.points, one.their_points) == (1, 2)


def test_searches_are_given_our_seconds_and_are_kept_as_data(small: Scenario) -> None:
    pytest.importorskip("pymoo")
    folder = Path(small.stream.instances[0]).parents[1]
    todo = [Place("app", -1, load, "edge-cloud", str(folder)) for load in (0.3, 0.6, 0.8)]
    (place,) = hindsight.places(todo)
    assert place.load == 0.6
    found = hindsight.searched(place)
    assert 30 < found.tasks <= hindsight.MOST_TASKS
    assert set(found.results) == {*hindsight.POLICIES, hindsight.ANNEALING, hindsight.NSGA2}
    budget_s = found.seconds["shielded"].all
    assert found.seconds["nsga2"].search >= budget_s and found.seconds["annealing"].search > 0.0
    assert found.results["annealing"].energy_j < found.results["kubernetes"].energy_j
    assert hindsight.from_data(json.loads(json.dumps(hindsight.as_data(found)))) == found


def test_of_a_front_counts_the_cheapest_point_within_the_bound() -> None:
    baseline = Result(100.0, 10.0, 10.0, 10.0)
    late, dear, best = (replace(baseline, energy_j=e, mean_s=m) for e, m in ((10.0, 11.0), (90.0, 9.0), (80.0, 10.1)))
    assert hindsight.best_of([late, dear, best], baseline) == best
    assert hindsight.best_of([late, replace(late, mean_s=20.0)], baseline) == late


def test_the_row_network_is_the_network_in_every_scenario_with_weights_that_have_not_seen_it() -> None:
    for application, fold in evaluate.held_out():
        card = weights.load(shipped.weights_of(fold))[1]
        assert application in card["held_out"] and application not in card["applications"]
        policy = evaluate.our_network(fold)
        assert policy.params["lean"] == 1.0
        assert all(policy.params[name] == value for name, value in registry.load("wattflow").params.items())
    off = [
        (fold, load) for fold in range(4) for load in scenarios.LOADS if evaluate.dials(fold, load).get("lean") == 0.0
    ]
    for fold, load in off:  # there the row `learned` is the portfolio's best setting of the flagship
        tuned = next(t for t in portfolio.tuned(load, scenarios.FOLDS[fold]) if t.setting.startswith("wattflow:"))
        assert evaluate.our_policy(fold, load).params["second"] == tuned.policy().params["second"]
