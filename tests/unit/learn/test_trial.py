"""Trials of the learned policy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge, TrialWeights, WeightsTrial
from wattflow.plan import measured
from wattflow.policy import registry, weights


def test_a_trial_is_the_simulation_however_often_it_runs(small: Scenario) -> None:
    workload = small.draw(3)
    trial = WeightsTrial(workload, small.cluster, "learned", 3, small.options)
    plain = measured.measure(workload, small.cluster, "wattflow", 3, small.options)
    moved = trial.run(np.full(weights.SIZE, 0.3))
    assert trial.run(np.zeros(weights.SIZE)) == plain
    assert trial.run(np.full(weights.SIZE, 0.3)) == moved != plain


def test_the_reference_scores_nothing_and_late_seconds_cost(small: Scenario) -> None:
    judge = Judge(small, 3)
    assert judge.gain(judge.reference) == 0.0
    slow = measured.Result(
        judge.reference.energy_j,
        judge.baseline.mean_s * 1.5,
        judge.baseline.p95_s,
        judge.baseline.makespan_s,
        tail_s=judge.baseline.tail_s,
    )
    beyond = math.log(1.5 / Judge.BOUND)
    step = Judge.STEP * (1.0 - math.exp(-beyond / Judge.WIDTH))
    assert judge.penalty(slow) == pytest.approx(step + Judge.PRICE * beyond)
    assert not judge.keeps(slow)
    assert Judge(small, 3, TrialWeights(wait=1.0)).penalty(slow) == 0.0


def test_random_clusters_are_as_wide_as_promised() -> None:
    drawn = [scenarios.random_cluster(np.random.default_rng(i), f"c{i}") for i in range(200)]
    counts = [len(cluster.nodes) for cluster in drawn]
    kinds = [len({node.class_key for node in cluster.nodes}) for cluster in drawn]
    assert min(counts) == 2 and max(counts) > 50 and max(counts) <= 64
    assert min(kinds) == 1 and max(kinds) == 6


def test_a_wish_reaches_the_policy() -> None:
    policy = TrialWeights(response=0.25, makespan=0.5, wait=0.1).policy()
    assert policy.params["energy"] == 0.25
    assert policy.params["wait"] == 0.1
    assert policy.name == registry.load("learned").name
