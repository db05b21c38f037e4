"""The curriculum: stages, hard examples, mutants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research import curriculum, training
from research.hard_examples import HARDEST, HardExamples
from research.recipe import ScratchSettings
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario


def test_every_generation_has_its_stage_and_the_last_one_never_ends() -> None:
    found = [curriculum.stage_of(generation).name for generation in range(200)]
    assert list(dict.fromkeys(found)) == [stage.name for stage in curriculum.STAGES]
    assert curriculum.stage_of(10**6) is curriculum.STAGES[-1]


def test_the_first_stage_knows_the_truth_and_has_tight_deadlines(small: Scenario) -> None:
    first = curriculum.STAGES[0]
    made = first.shaped(replace(small, runtime_error=0.2, power_error=0.1), 5)
    assert (made.runtime_error, made.power_error) == (0.0, 0.0)
    assert made.stream.slack in first.slacks and made.stream.workflows <= first.workflows
    assert training.PLAIN.shaped(small, 5) is small


def test_hard_scenarios_are_drawn_more_often_and_none_twice_for_a_direction() -> None:
    pool = HardExamples(40)
    for scenario in range(40):
        pool.note(scenario, 1.0 if scenario < 10 else -1.0)
    rng = np.random.default_rng(1)
    for hard, least, most in ((0.0, 0.2, 0.3), (0.6, 0.55, 0.85)):
        drawn = pool.draw(rng, 400, 3, hard)
        assert all(len(set(row)) == 3 for row in drawn.tolist())
        assert least < (drawn < 40 // HARDEST).mean() < most
    pool.note(0, -9.0)
    assert pool.order()[0] == 1  # one win makes it easier
    pool.forget(1)
    assert pool.loss[1] == 0.0


def test_mutants_differ_in_one_thing_and_clusters_keep_their_kinds(small: Scenario) -> None:
    made = [curriculum.mutant(small, seed) for seed in range(30)]
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
    monkeypatch.setattr(training, "fit", lambda *_: True)
    settings = ScratchSettings(pool=4, chosen_on=1, directions=2, tries=1, staged=False)
    trainer = training.ScratchTrainer(settings)
    trainer.hard.loss[:] = 0.0, 3.0, 1.0, -2.0
    before = list(trainer.scenarios)
    trainer._mutate(1)
    assert [a is b for a, b in zip(before, trainer.scenarios, strict=True)] == [True, True, True, False]
    changed = trainer.scenarios[3].scenario
    assert isinstance(changed, Scenario) and changed.name.startswith(small.name) and trainer.hard.loss[3] == 0.0
