"""The curriculum: stages, hard examples, mutants, and imitation of annealing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wattflow.learn import evolve, imitation, scenarios, stages, streams
from wattflow.learn.hardship import HARDEST, Hardship
from wattflow.learn.imitation import Lessons
from wattflow.learn.scenarios import Scenario
from wattflow.policy import weights


def test_every_generation_has_its_stage_and_the_last_one_never_ends() -> None:
    found = [stages.stage_of(generation).name for generation in range(200)]
    assert list(dict.fromkeys(found)) == [stage.name for stage in stages.STAGES]
    assert stages.stage_of(10**6) is stages.STAGES[-1]


def test_the_first_stage_knows_the_truth_and_has_tight_deadlines(small: Scenario) -> None:
    first = stages.STAGES[0]
    made = first.shaped(replace(small, runtime_error=0.2, power_error=0.1), 5)
    assert (made.runtime_error, made.power_error) == (0.0, 0.0)
    assert made.stream.slack in first.slacks and made.stream.workflows <= first.workflows
    assert evolve.PLAIN.shaped(small, 5) is small


def test_hard_scenarios_are_drawn_more_often_and_none_twice_for_a_direction() -> None:
    hardship = Hardship(40)
    for scenario in range(40):
        hardship.note(scenario, 1.0 if scenario < 10 else -1.0)
    rng = np.random.default_rng(1)
    for hard, least, most in ((0.0, 0.2, 0.3), (0.6, 0.55, 0.85)):
        drawn = hardship.draw(rng, 400, 3, hard)
        assert all(len(set(row)) == 3 for row in drawn.tolist())
        assert least < (drawn < 40 // HARDEST).mean() < most
    hardship.note(0, -9.0)
    assert hardship.order()[0] == 1  # one win makes it easier
    hardship.forget(1)
    assert hardship.loss[1] == 0.0


def test_mutants_differ_in_one_thing_and_clusters_keep_their_kinds(small: Scenario) -> None:
    made = [stages.mutant(small, seed) for seed in range(30)]
    assert {one.name.rpartition("-")[2] for one in made} == {"load", "mix", "known"}
    kinds = {node.class_key for node in small.cluster.nodes}
    for one in made:
        assert {node.class_key for node in one.cluster.nodes} == kinds
        assert len({node.name for node in one.cluster.nodes}) == len(one.cluster.nodes)
        assert 0.2 <= one.stream.load <= 0.9
        if one.name.endswith("load"):
            assert one.cluster is small.cluster and one.stream.load != small.stream.load


def test_mutants_of_the_hardest_take_the_places_of_the_easiest(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "draw", lambda seed, *_: small)
    monkeypatch.setattr(evolve, "fit", lambda *_: True)
    settings = evolve.EvolutionSettings(pool=4, chosen_on=1, directions=2, tries=1, staged=False)
    trainer = evolve.Trainer(settings)
    trainer.hardship.loss[:] = 0.0, 3.0, 1.0, -2.0
    before = list(trainer.scenarios)
    trainer._mutate(1)
    assert [a is b for a, b in zip(before, trainer.scenarios, strict=True)] == [True, True, True, False]
    changed = trainer.scenarios[3].scenario
    assert isinstance(changed, Scenario) and changed.name.startswith(small.name) and trainer.hardship.loss[3] == 0.0


def lessons() -> Lessons:
    """The flagship's price prefers row 0; annealing takes the row whose second feature is high."""
    rng = np.random.default_rng(3)
    rows = rng.normal(0.0, 1.0, (300 * 3, 28))
    decision = np.repeat(np.arange(300), 3)
    right = np.zeros(900, bool)
    right[np.arange(300) * 3 + rows[:, 1].reshape(300, 3).argmax(axis=1)] = True
    price = np.tile([0.0, 0.1, 0.1], 300)
    return Lessons(rows, price, decision, right, np.arange(900) // 90, 1.0)


def test_imitation_learns_which_rows_are_right_and_leaves_other_heads_alone(tmp_path: Path) -> None:
    imitation.save(tmp_path / "lessons.npz", lessons())
    known = imitation.load(tmp_path / "lessons.npz")
    start = evolve.start(1).theta
    theta, before, after = imitation.fitted(start, known)
    assert before < 0.5 < 0.85 < after
    moved = np.flatnonzero(theta != start)
    assert moved.max() < weights.HASTE
    assert imitation.agreement(known, np.zeros(900)) == before
    none = imitation.weaker(theta, 0.0)
    assert np.array_equal(none, start)
    some = known.of(streams.APPLICATIONS[:2])
    assert set(some.application.tolist()) == {0, 1} and some.decision.max() + 1 == len(set(some.decision.tolist()))


def test_annealing_teaches_decisions_of_a_small_batch(small: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "instances_of", lambda *_: small.stream.instances)
    monkeypatch.setattr(imitation, "WORTH", -1.0)
    found = [one for seed in range(3) for one in imitation.taught(small.stream.application, seed)]
    assert found
    for rows, price, right in found:
        assert rows.shape == (len(price), 28) and 0 <= right < len(price)
