"""Conformal intervals cover what they promise on data they have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.predict import conformal


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from(["normal", "skewed", "heavy"]))
def test_split_conformal_covers_its_level(seed: int, level: float, shape: str) -> None:
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[..., object]] = {
        "normal": rng.normal, "skewed": rng.gumbel, "heavy": lambda size: rng.standard_t(3, size)
    }  # fmt: skip
    draw = draws[shape]
    low, high = conformal.split_conformal(np.asarray(draw(size=2000)), level)
    fresh = np.asarray(draw(size=4000))
    assert abs(np.mean((fresh >= low) & (fresh <= high)) - level) < 0.04


def test_the_average_coverage_over_small_calibrations_is_at_least_the_level() -> None:
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(2000):
        low, high = conformal.split_conformal(rng.normal(size=60), 0.9)
        inside.append(low <= rng.normal() <= high)
    assert 0.88 < np.mean(inside) < 0.95


def test_too_few_scores_promise_nothing() -> None:
    assert conformal.split_conformal(np.array([0.1, -0.2]), 0.9) == (-math.inf, math.inf)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_tasks_of_different_spread_are_each_covered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spread = np.array([0.02, 0.1, 0.5])

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        task = rng.integers(0, 3, count)
        return rng.normal(size=count) * spread[task], task

    residual, task = rows(3000)
    found = conformal.calibrate(residual, task, rng.integers(0, 5, 3000), 3)
    fresh, which = rows(6000)
    low, high = found.interval(np.zeros(6000), which, 0.9)
    for k in range(3):
        mine = which == k
        assert abs(np.mean((fresh[mine] >= low[mine]) & (fresh[mine] <= high[mine])) - 0.9) < 0.05


def test_the_point_is_lowered_when_that_lessens_relative_error() -> None:
    rng = np.random.default_rng(0)
    residual = rng.normal(0, 0.6, 4000)
    found = conformal.calibrate(residual, np.zeros(4000, np.int64), rng.integers(0, 5, 4000), 1)
    fresh = rng.normal(0, 0.6, 4000)
    point = found.point(np.zeros(4000), np.zeros(4000, np.int64))
    assert found.shift > 0
    assert np.mean(np.abs(np.exp(point - fresh) - 1)) < np.mean(np.abs(np.exp(-fresh) - 1))


def test_a_new_group_is_as_wide_as_the_worst_one_left_out() -> None:
    residual = np.concatenate([np.linspace(-0.1, 0.1, 100), np.linspace(-3, 3, 100)])
    found = conformal.calibrate_worst_group(residual, np.repeat([0, 1], 100))
    low, high = found.interval(np.zeros(1), np.zeros(1, np.int64), 0.9)
    assert high[0] == pytest.approx(2.7, abs=0.2)
    assert low[0] == pytest.approx(-2.7, abs=0.2)


def test_few_residuals_give_a_wide_interval() -> None:
    found = conformal.calibrate(np.array([0.1]), np.zeros(1, np.int64), np.zeros(1, np.int64), 2)
    low, high = found.interval(np.zeros(1), np.ones(1, np.int64), 0.9)
    assert high[0] - low[0] > 4


def test_a_further_error_is_added_as_an_independent_one() -> None:
    rng = np.random.default_rng(0)
    heavy = rng.standard_t(3, 4000) * 0.1
    task = np.zeros(4000, np.int64)
    one = conformal.calibrate(heavy, task, rng.integers(0, 5, 4000), 1)
    low, high = conformal.widened(one, 0.2).interval(np.zeros(1), np.zeros(1, np.int64), 0.9)
    new = rng.standard_t(3, 20000) * 0.1 + rng.normal(0, 0.2, 20000)
    assert np.mean((new >= low[0]) & (new <= high[0])) == pytest.approx(0.9, abs=0.02)
