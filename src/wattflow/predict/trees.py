"""Boosted trees as flat arrays, evaluated by one compiled loop: microseconds for a single row.

LightGBM trains; its trees are copied into `Trees`, which does not need it to predict. All splits are
numeric (``x <= threshold`` goes left); a missing value follows the side that LightGBM chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import MissingExtra
from wattflow.predict import trees
from wattflow.predict.compiled import compiled
from wattflow.predict.observations import Floats, Ints

if TYPE_CHECKING:
    import lightgbm


@dataclass(frozen=True, slots=True)
class BoostSetting:
    """Settings of boosting. ``loss`` is ``l1`` or ``l2``; no rounds, no trees."""

    loss: str = "l1"
    leaves: int = 15
    rounds: int = 200
    rate: float = 0.05
    least_rows: int = 10


def boost(rows: Floats, target: Floats, setting: BoostSetting, seed: int = 0) -> trees.Trees:
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


def _lightgbm(rows: Floats, target: Floats, setting: BoostSetting, seed: int) -> trees.Trees:
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


Arrays = tuple[Ints, Ints, Floats, Ints, Ints, Ints, Floats]
"""Columns of `Trees` as the compiled loop takes them."""


@dataclass(frozen=True, slots=True)
class Trees:
    """An ensemble. Node i is a leaf where ``feature[i] < 0``; tree t starts at node ``root[t]``.

    Attributes:
        missing: 1 where NaN goes left, 0 where it goes right, 2 where NaN counts as zero.
        base: Added to the sum of the leaves.
    """

    root: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing: Ints
    value: Floats
    base: float

    def predict(self, rows: Floats) -> Floats:
        """Sum over the trees for each row."""
        out = np.empty(len(rows))
        _predict_rows(np.ascontiguousarray(rows, np.float64), self._arrays(), self.base, out)
        return out

    def predict_row(self, row: Floats) -> float:
        """Predict one row; the caller hands over a contiguous float64 vector."""
        return float(_predict_row(row, self._arrays(), self.base))

    def _arrays(self) -> Arrays:
        return self.root, self.feature, self.threshold, self.left, self.right, self.missing, self.value


@compiled
def _predict_row(row: Floats, arrays: Arrays, base: float) -> float:
    root, feature, threshold, left, right, missing, value = arrays
    total = base
    for t in range(root.size):
        node = root[t]
        while feature[node] >= 0:
            x = row[feature[node]]
            # True for NaN only.
            if x != x:
                # LightGBM without missing values in training treats NaN as 0.
                if missing[node] == 2:
                    go_left = threshold[node] >= 0.0
                else:
                    go_left = missing[node] == 1
            else:
                go_left = x <= threshold[node]
            node = left[node] if go_left else right[node]
        total += value[node]
    return total


@compiled
def _predict_rows(rows: Floats, arrays: Arrays, base: float, out: Floats) -> None:
    for i in range(rows.shape[0]):
        out[i] = _predict_row(rows[i], arrays, base)


class _Builder:
    """Collects nodes of one tree after another."""

    def __init__(self) -> None:
        self.root: list[int] = []
        self.nodes: list[list[float]] = []  # feature, threshold, left, right, missing, value

    def add(self, feature: int, threshold: float, missing: int, value: float) -> int:
        self.nodes.append([feature, threshold, -1, -1, missing, value])
        return len(self.nodes) - 1

    def build(self, base: float) -> Trees:
        table = np.array(self.nodes, np.float64).reshape(len(self.nodes), 6)
        whole: list[NDArray[np.int64]] = [table[:, i].astype(np.int64) for i in (0, 2, 3, 4)]
        return Trees(
            np.array(self.root, np.int64),
            whole[0],
            table[:, 1].copy(),
            whole[1],
            whole[2],
            whole[3],
            table[:, 5].copy(),
            base,
        )


def none(base: float = 0.0) -> Trees:
    """Make an ensemble of no trees: the base everywhere."""
    return _Builder().build(base)


def renamed(ensemble: Trees, columns: Ints) -> Trees:
    """Move the trees to a wider table in which their feature i stands at ``columns[i]``."""
    feature = np.where(ensemble.feature >= 0, columns[np.maximum(ensemble.feature, 0)], -1)
    return replace(ensemble, feature=feature)


def from_lightgbm(booster: lightgbm.Booster) -> Trees:
    """Copy a LightGBM regression booster. Categorical splits are refused."""
    builder = _Builder()
    for tree in booster.dump_model()["tree_info"]:
        builder.root.append(_add_lightgbm(builder, tree["tree_structure"]))
    return builder.build(0.0)


def _add_lightgbm(builder: _Builder, node: Mapping[str, Any]) -> int:
    if "leaf_value" in node:
        return builder.add(-1, 0.0, 0, float(node["leaf_value"]))
    if node["decision_type"] != "<=":
        raise ValueError(f"only numeric splits can be flattened, not {node['decision_type']!r}")
    # Without `zero_as_missing` the types are None and NaN; under None a NaN counts as 0.
    missing = 2 if node["missing_type"] != "NaN" else int(node["default_left"])
    place = builder.add(int(node["split_feature"]), float(node["threshold"]), missing, 0.0)
    for side, column in (("left_child", 2), ("right_child", 3)):
        builder.nodes[place][column] = _add_lightgbm(builder, node[side])
    return place
