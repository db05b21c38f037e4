"""The experiment of the learned policy: what becomes of results, and whose weights judge what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from research import evaluate, learned_experiment, own_folder, portfolio, shipped, tables_of_ours
from research.evaluate import OURS, Place, Row
from research.notes import notes
from research.portfolio import Result
from wattflow.learn import scenarios
from wattflow.model.errors import InvalidInput
from wattflow.policy import learned as learned_policy
from wattflow.policy import weights
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import sample_states

PLACES = [Place(name, 0, load, c) for name in ("a", "b") for c in ("mixed", "random-0") for load in (0.3, 0.6, 0.8)]


def loaded(workflows: Path | None = None) -> learned_experiment.LearnedSettings:
    settings = learned_experiment.load(workflows).settings
    assert isinstance(settings, learned_experiment.LearnedSettings)
    return settings


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
    return {f.name: (f.value, f.ok) for f in learned_experiment.outcome(rows(ours, slower), 1.0).figures}


def test_bars_are_met_by_a_better_policy_and_missed_by_a_worse_one() -> None:
    good, near, bad = figures(48.0), figures(53.0), figures(55.0)
    assert good["learned_below_kubernetes_load_0.3"] == (pytest.approx(-51.7, abs=0.5), True)
    assert good["learned_against_portfolio"][1] and not bad["learned_against_portfolio"][1]
    assert near["learned_worst_scenario_against_portfolio"] == (pytest.approx(100.0 / 52.5), True)
    assert bad["learned_worst_scenario_against_portfolio"] == (pytest.approx(300.0 / 52.5), False)
    assert good["learned_worst_scenario_against_portfolio"] == (pytest.approx(-400.0 / 52.5), True)
    assert good["learned_against_portfolio_random_clusters"][1]
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
    outcome = learned_experiment.outcome([*rows(48.0), *judged, *partly], 1.0)
    names = [row[0] for row in outcome.sheets[-1].rows]
    assert names == ["dqn-placement", "portfolio", OURS]
    found = {f.name: (f.value, f.ok) for f in outcome.figures}
    value, ok = found["learned_against_dqn_placement"]
    assert value == pytest.approx(-19.8, abs=0.3) and ok
    assert found["learned_within_bound_beyond_dqn_placement"] == (len(PLACES), True)
    assert "learned_against_distilled" not in found


def test_every_application_is_judged_with_weights_that_have_not_seen_it() -> None:
    assert sorted(name for name, _ in evaluate.held_out()) == sorted(scenarios.APPLICATIONS)
    sample = sample_states()[0]
    for fold in range(len(scenarios.FOLDS)):
        mine = {name for name, number in evaluate.held_out() if number == fold}
        theta, card = weights.load(shipped.weights_of(fold))
        assert set(card["held_out"]) == mine and not mine & set(card["applications"])
        state = Simulation(sample.workload, sample.cluster, evaluate.our_policy(fold, 0.6)).state
        place = int(state.memory[learned_policy.NOTES.theta])
        assert (state.memory[place : place + len(theta)] == theta).all(), "the file that the card is of is used"


def workflow(folder: Path, name: str) -> None:
    """A file with one small workflow, in the common format."""
    folder.mkdir(parents=True, exist_ok=True)
    task = {"name": "a", "id": "a", "parents": [], "children": []}
    ran = {"id": "a", "runtimeInSeconds": 5.0, "coreCount": 1}
    told = {"specification": {"tasks": [task], "files": []}, "execution": {"tasks": [ran], "machines": []}}
    (folder / name).write_text(json.dumps({"name": "w", "schemaVersion": "1.5", "workflow": told}))


def test_ours_and_opponents_are_one_family_of_tests() -> None:
    judged = [*rows(48.0), *(replace(row, policy="shielded") for row in rows(47.0) if row.policy == OURS)]
    table = {(row.place, row.policy): row for row in judged}
    names = ["kubernetes", "portfolio", "wattflow"]
    beside = {mine: tables_of_ours.beside(table, PLACES, mine, names) for mine in (OURS, "shielded")}
    family = tables_of_ours.corrected(beside)
    assert len(family) == 6
    least = min(one.p for some in beside.values() for one in some.all.values())
    assert min(p for p, _ in family.values()) == pytest.approx(min(1.0, 6 * least))
    # two applications can show nothing
    assert all(p == 1.0 for _, p in family.values())


def test_scenarios_in_which_learned_is_the_portfolio_are_counted_and_told() -> None:
    judged = rows(48.0)
    theirs = {row.place: row.results for row in judged if row.policy == "portfolio"}
    judged = [
        replace(row, results=theirs[row.place]) if row.policy == OURS and row.place.load == 0.3 else row
        for row in judged
    ]
    found = {f.name: f for f in learned_experiment.outcome(judged, 1.0).figures}
    assert found["learned_scenarios_that_are_the_portfolio"].value == len(PLACES) / 3
    off = [
        (fold, load) for fold in range(4) for load in scenarios.LOADS if evaluate.dials(fold, load).get("lean") == 0.0
    ]
    there = [Place("a", fold, load, "mixed") for fold in range(4) for load in scenarios.LOADS]
    told = "\n".join(notes(there, False))
    assert all(f"fold {fold} at {load:g}" in told for fold, load in off)
    assert "network" in told and "Annealing" not in told


def test_other_workflows_are_not_said_to_be_held_out() -> None:
    told = "\n".join(notes([Place("mine", -1, 0.3, "mixed", "folder")], True))
    assert "not held out" in told and "trained without it" not in told and "Annealing" in told


def test_parts_are_kept_by_what_they_depend_on(tmp_path: Path) -> None:
    settings = learned_experiment.kept_in(loaded(), tmp_path)
    folder = learned_experiment._folder(settings)
    assert folder is not None and folder.parent == tmp_path
    assert learned_experiment._folder(replace(settings, workers=9)) == folder
    assert learned_experiment._folder(replace(settings, plan=replace(settings.plan, seeds=1))) != folder
    assert "minutes" in learned_experiment.expected(loaded())


def test_a_folder_of_other_workflows_takes_the_place_of_ours(tmp_path: Path) -> None:
    workflow(tmp_path / "mine", "a.json")
    (tmp_path / "mine" / "meta.json").write_text('{"about": "no workflow"}')
    (tmp_path / "mine" / "cut.json").write_text('{"name": ')
    workflow(tmp_path / "blast", "mine.json")
    settings = loaded(tmp_path)
    found = learned_experiment.places(settings)
    assert {place.application for place in found} == {"blast", "mine"}
    assert {place.fold for place in found} == {-1}
    assert own_folder.usable(str(tmp_path), "mine") == (str(tmp_path / "mine" / "a.json"),)
    judged = [
        Row(place, row.policy, row.setting, row.results)
        for place in found[-6:]
        for row in rows(48.0)
        if row.place == PLACES[0]
    ]
    outcome = learned_experiment.outcome(judged, 1.0)
    assert not [f.name for f in outcome.figures if "training_seed" in f.name]
    said = "\n".join(outcome.notes)
    assert "meta.json: " in said and "cut.json: " in said and "2 files" in said
    assert "trained without it" not in said and "without the application" not in said
    assert "Seen in training: blast;" in "\n".join(notes(found, False))
    assert "trained without it" in "\n".join(notes(PLACES, False))


def test_a_folder_without_a_workflow_is_refused_with_every_reason(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    with pytest.raises(InvalidInput, match="no folder of workflows"):
        learned_experiment.places(settings)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"(?s)2 problems.*one: holds no workflow.*meta.json.*two: "):
        learned_experiment.places(settings)
