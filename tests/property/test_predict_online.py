"""Recursive least squares is batch least squares; the corrector finds a slower machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.predict.online import AdaptiveWidth, Corrector, RecursiveLeastSquares, shadow_test


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 60), st.sampled_from([1.0, 0.97]))
def test_recursive_equals_batch(seed: int, width: int, count: int, forgetting: float) -> None:
    rng = np.random.default_rng(seed)
    x, y, noise = rng.normal(size=(count, width)), rng.normal(size=count), rng.uniform(0.5, 2.0, count)
    variance = rng.uniform(0.5, 4.0, width)
    solver = RecursiveLeastSquares(variance, forgetting)
    for i in range(count):
        solver.update(x[i], float(y[i]), float(noise[i]))
    age = forgetting ** np.arange(count - 1, -1, -1)
    penalty = np.diag(1.0 / variance) * forgetting**count
    weight = age / noise
    batch = np.linalg.solve((x * weight[:, None]).T @ x + penalty, (x * weight[:, None]).T @ y)
    np.testing.assert_allclose(solver.weight, batch, rtol=1e-6, atol=1e-8)


def test_growing_keeps_what_was_learned() -> None:
    solver = RecursiveLeastSquares(np.ones(2))
    solver.update(np.array([1.0, 0.0]), 2.0)
    before = solver.weight.copy()
    solver.grow(np.ones(1))
    assert solver.weight[:2].tolist() == before.tolist()
    assert solver.weight[2] == 0.0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.6, 1.8))
def test_a_changed_machine_is_learned_from_other_tasks(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    corrector = Corrector()
    for i in range(50):
        corrector.finished(f"task {i % 10}", "slow", math.log(factor) + rng.normal(0, 0.05), scale=0.05)
        corrector.finished(f"task {i % 10}", "same", rng.normal(0, 0.05), scale=0.05)
    left = abs(corrector.correction("never seen", "slow") - math.log(factor))
    assert left < 0.2 * abs(math.log(factor)) + 0.06
    assert abs(corrector.correction("task 3", "same")) < 0.12


def test_one_stuck_task_moves_little() -> None:
    corrector = Corrector()
    for _ in range(20):
        corrector.finished("a", "m", 0.0, scale=0.05)
    corrector.finished("a", "m", 5.0, scale=0.05)
    assert abs(corrector.correction("a", "m")) < 0.1


def test_nothing_finished_changes_nothing() -> None:
    assert Corrector().correction("a", "m", 1e9) == 0.0


def test_sizes_have_a_slope() -> None:
    corrector = Corrector()
    for i in range(200):
        size = 10.0 ** (6 + i % 4)
        corrector.finished("a", "m", 0.1 * math.log(size / 1e6), size, scale=0.05)
    assert corrector.correction("a", "m", 1e8) - corrector.correction("a", "m", 1e7) == pytest.approx(
        0.1 * math.log(10), abs=0.05
    )


def test_a_refit_must_win_in_the_shadow() -> None:
    rng = np.random.default_rng(0)
    now = np.abs(rng.normal(0, 0.2, 100))
    assert shadow_test(now.tolist(), (now * 0.8).tolist())
    assert not shadow_test(now.tolist(), now.tolist())
    assert not shadow_test((now * 0.8).tolist(), now.tolist())
    assert not shadow_test(now[:10].tolist(), (now[:10] * 0.1).tolist()), "ten tasks prove nothing"
    with pytest.raises(ValueError, match="same tasks"):
        shadow_test([0.1], [0.1, 0.2])


def test_forgetting_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="forgetting"):
        RecursiveLeastSquares(np.ones(1), 0.2)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), wrong=st.sampled_from([0.3, 1.0, 3.0]))
def test_intervals_come_to_cover_what_they_promise(seed: int, wrong: float) -> None:
    """However wrong the width as fitted was, and though each task is judged only after ten more have begun."""
    rng = np.random.default_rng(seed)
    true = np.exp(rng.normal(0, 0.2, 1500))
    low, high = math.exp(-wrong * 1.645 * 0.2), math.exp(wrong * 1.645 * 0.2)
    width = AdaptiveWidth()
    covered = []
    for i, value in enumerate(true.tolist()):
        ends = width.interval("t", 1.0, low, high)
        covered.append(ends[0] <= value <= ends[1])
        if i >= 10:
            width.finished("t", float(true[i - 10]), 1.0, low, high)
    assert 0.85 < np.mean(covered[300:]) < 0.95


def test_what_other_kinds_earned_is_half_believed() -> None:
    width = AdaptiveWidth()
    for _ in range(200):
        width.finished("a", 1.0, 1.0, 0.5, 2.0)
    own, other = (width.interval(kind, 1.0, 0.5, 2.0) for kind in "ab")
    assert own[1] < other[1] < 2.0
    assert math.log(other[1]) == pytest.approx(math.log(2.0) * math.exp(0.5 * width.log_factor))
    for _ in range(200):
        width.finished("a", 9.0, 1.0, 0.5, 2.0)
    assert width.interval("b", 1.0, 0.5, 2.0) == width.interval("a", 1.0, 0.5, 2.0), "wider is believed at once"
    before = width.log_factor
    width.finished("a", math.nan, 1.0, 0.5, 2.0)
    assert width.log_factor == before
