"""Which features moved a decision of the learned policy: the network in numpy, asked again with one feature at a time
taken away. For `Engine.explain`, so read rather than quick: O(candidates × features × network).

A feature is taken away by giving the candidate the mean of all candidates in its place (occlusion; Zeiler and Fergus,
arXiv:1311.2901): what the correction loses is what the feature moved. What all candidates share so moves nothing,
which is right: it cannot prefer one to another. Weights without hidden units are a sum, whose terms are
told as they stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.policy import placing, weights

Floats = NDArray[np.float64]

NAMES = (*placing.AROUND, *placing.CANDIDATE, "constant")
"""Columns of `moved`."""


def place_rows(theta: Floats) -> Floats:
    """Return the place head's weights: a row for each feature, then the biases; a column for each hidden unit, then the
    linear part's."""
    return theta[weights.PLACE :][: (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)


def out_weights(theta: Floats) -> Floats:
    """Return the weight of each hidden unit in the sum."""
    return theta[weights.PLACE + (placing.N + 1) * weights.WIDTH :][: weights.HIDDEN]


def is_sum(theta: Floats) -> bool:
    """Tell whether the place head is no more than a weighted sum."""
    return not out_weights(theta).any()


def place(theta: Floats, rows: Floats) -> Floats:
    """f of each row of features, before it is softly held."""
    head = place_rows(theta)
    inside = rows @ head[:-1] + head[-1]
    hidden = inside[..., : weights.HIDDEN]
    return np.asarray(inside[..., weights.HIDDEN] + _soft(hidden) @ out_weights(theta))


def moved(theta: Floats, rows: Floats, most: float) -> Floats:
    """Return how far each feature, and last the constant, moved the logarithm of each candidate's price.

    Corrections are softly held within ±``most``. Of a weighted sum its terms, which sum to f.
    """
    if is_sum(theta):
        head = place_rows(theta)[:, weights.HIDDEN]
        # A sum is exact as it stands: no feature has to be taken away.
        return np.column_stack([rows * head[:-1], np.full(len(rows), head[-1])])
    found = np.zeros((len(rows), placing.N + 1))
    mean = rows.mean(axis=0)
    for i, mine in enumerate(rows):
        # A row for each feature with the mean in its place, and the candidate itself last.
        changed = np.vstack([np.where(np.eye(placing.N, dtype=bool), mean, mine), mine])
        f = place(theta, changed)
        # As `learned.soft` holds it: what was moved is told after that, as the price felt it.
        held = f / (1.0 + np.abs(f) / most)
        found[i, :-1] = held[-1] - held[:-1]
    return found


def _soft(x: Any) -> Any:
    return x / (1.0 + np.abs(x))
