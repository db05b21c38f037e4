"""Gradient boosting, returned as flat trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.model.errors import MissingExtra
from wattflow.predict import trees
from wattflow.predict.observations import Floats


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of boosting. ``loss`` is ``l1`` or ``l2``; no rounds, no trees."""

    loss: str = "l1"
    leaves: int = 15
    rounds: int = 200
    rate: float = 0.05
    least_rows: int = 10


def fit(rows: Floats, target: Floats, setting: Setting, seed: int = 0) -> trees.Trees:
    """Train with one setting."""
    if setting.rounds == 0:
        return trees.none()
    # A column that never varies cannot split.
    varied = np.flatnonzero(
        [np.ptp(column[np.isfinite(column)]) > 0 if np.isfinite(column).any() else False for column in rows.T]
    )
    # Nothing to split by: the median is the best constant for absolute error.
    if not len(varied):
        return trees.none(float(np.median(target)))
    return trees.renamed(_lightgbm(np.ascontiguousarray(rows[:, varied]), target, setting, seed), varied)


def _lightgbm(rows: Floats, target: Floats, setting: Setting, seed: int) -> trees.Trees:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra("boosting needs LightGBM; install wattflow[predict]") from None
    options = {
        "objective": "regression_l1" if setting.loss == "l1" else "regression",
        "learning_rate": setting.rate,
        "num_leaves": setting.leaves,
        "min_child_samples": setting.least_rows,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "feature_fraction": 0.9,
        "seed": seed,
        "verbose": -1,
        # One thread and row-wise: the same rows give the same trees on any machine.
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
    }
    booster = lightgbm.train(options, lightgbm.Dataset(rows, target), setting.rounds)
    return trees.from_lightgbm(booster)
