"""Distillation finds the terms that a network is made of."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from research import distil
from wattflow.policy import distilled, placing, weights


def test_a_sparse_network_is_found_again() -> None:
    rng = np.random.default_rng(4)
    rows, decision = rng.normal(0.0, 1.0, (4000, placing.N)), np.repeat(np.arange(500), 8)
    rows[:, : placing.AROUND_N] = rows[::8, : placing.AROUND_N].repeat(8, axis=0)
    theta = np.zeros(weights.SIZE)
    used = [placing.AROUND_N + 3, placing.AROUND_N + 9]
    distilled.place_head(theta)[used] = [0.04, -0.02]
    theta[weights.DOZE + 9] = -0.33
    made, card = distil.distil(theta, rows, decision)
    found = distilled.place_head(made)
    assert sorted(np.argsort(-np.abs(found))[:2].tolist()) == used
    assert found[used] == pytest.approx([0.04, -0.02], rel=0.06)
    assert made[weights.DOZE + 9] == -0.33
    assert card["explained"] > 0.99 and card["same_choice"] > 0.95


def test_what_all_candidates_share_explains_nothing() -> None:
    rng = np.random.default_rng(5)
    decision = np.repeat(np.arange(100), 4)
    shared = rng.normal(size=100).repeat(4)
    assert np.abs(distil.within(shared, decision)).max() < 1e-12
