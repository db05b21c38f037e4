"""Flattened trees give what the library that trained them gives."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.predict import trees


def table(seed: int, rows: int, missing: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).round(1)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + rng.normal(0, 0.1, rows)
    x[rng.random(x.shape) < missing] = np.nan
    return x, y


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(60, 300), st.sampled_from([0.0, 0.2]), st.sampled_from(["l1", "l2"]))
def test_flat_lightgbm_trees_equal_lightgbm(seed: int, rows: int, missing: float, loss: str) -> None:
    x, y = table(seed, rows, missing)
    options = {
        "objective": f"regression_{loss}",
        "verbose": -1,
        "num_threads": 1,
        "min_child_samples": 5,
        "num_leaves": 7,
    }
    booster = lightgbm.train(options, lightgbm.Dataset(x, y), 30)
    flat = trees.from_lightgbm(booster)
    fresh, _ = table(seed + 1, 100, 0.3)
    np.testing.assert_allclose(flat.predict(fresh), booster.predict(fresh), rtol=0, atol=1e-9)
    assert flat.predict_row(np.ascontiguousarray(fresh[0])) == pytest.approx(booster.predict(fresh[:1])[0], abs=1e-9)


def test_columns_without_variation_are_left_out_and_do_not_matter() -> None:
    x, y = table(2, 200, 0.0)
    wide = np.column_stack([np.full(200, np.nan), x[:, 0], np.ones(200), x[:, 1:]])
    wider = wide.copy()
    wider[:, 0], wider[:, 2] = 7.0, -3.0
    model = trees.boost(wide, y, trees.BoostSetting(rounds=20))
    np.testing.assert_array_equal(model.predict(wide), model.predict(wider))
    assert np.mean(np.abs(model.predict(wide) - y)) < 0.7 * np.mean(np.abs(y))


def test_no_trees_give_the_base() -> None:
    assert trees.none(2.5).predict(np.zeros((3, 2))).tolist() == [2.5, 2.5, 2.5]
    assert trees.boost(np.ones((9, 2)), np.arange(9.0), trees.BoostSetting()).predict(np.ones((1, 2)))[0] == 4.0


def test_categorical_splits_are_refused() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (200, 1)).astype(float)
    y = np.where(np.isin(x[:, 0], [0, 2]), 1.0, -1.0)
    options = {"objective": "regression", "verbose": -1, "min_child_samples": 5, "min_data_per_group": 1,
               "num_threads": 1}  # fmt: skip
    booster = lightgbm.train(options, lightgbm.Dataset(x, y, categorical_feature=[0]), 3)
    with pytest.raises(ValueError, match="numeric splits"):
        trees.from_lightgbm(booster)
