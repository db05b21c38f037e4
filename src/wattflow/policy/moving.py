"""Which features moved a decision of the learned policy: the network in numpy, asked again with one feature at a time
taken away. For `Engine.explain`, so read rather than quick: O(candidates × features × network).

A feature is taken away by giving the candidate the mean of all candidates in its place (occlusion; Zeiler and Fergus,
arXiv:1311.2901): what the correction loses is what the feature moved. What all candidates share so moves nothing,
which is right: it cannot prefer one to another. Weights without hidden units and attention are a sum, whose terms are
told as they stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.policy import attending, placing, weights

Floats = NDArray[np.float64]

NAMES = (*placing.AROUND, *placing.CANDIDATE, "constant")
"""What `moved` has a column for."""


def place_rows(theta: Floats) -> Floats:
    """The place head's weights: a row for each feature, then the biases; a column for each hidden unit, then the linear
    part's."""
    return theta[weights.PLACE :][: (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)


def out_weights(theta: Floats) -> Floats:
    """What each hidden unit counts for."""
    return theta[weights.PLACE + (placing.N + 1) * weights.WIDTH :][: weights.HIDDEN]


def is_sum(theta: Floats) -> bool:
    """Whether the place head is no more than a weighted sum."""
    attends = len(theta) == weights.LARGE_SIZE and theta[weights.ATTEND + attending.OUT :].any()
    return not out_weights(theta).any() and not attends


def place(theta: Floats, rows: Floats) -> Floats:
    """f of each row of features, without attention."""
    head = place_rows(theta)
    inside = rows @ head[:-1] + head[-1]
    hidden = inside[..., : weights.HIDDEN]
    return np.asarray(inside[..., weights.HIDDEN] + _soft(hidden) @ out_weights(theta))


def seen(theta: Floats, rows: Floats, row: int, changed: Floats) -> Floats:
    """What attention adds to f of one of the rows, were it each of ``changed`` instead."""
    if len(theta) < weights.LARGE_SIZE or row >= attending.ROWS:
        return np.zeros(len(changed))
    head = theta[weights.ATTEND : weights.ATTEND + attending.OUT].reshape(-1, attending.THREE)
    _, keys, values = _three(head, rows[: attending.ROWS])
    question, key, value = _three(head, changed)
    match = question @ keys.T
    match[:, row] = (question * key).sum(axis=1)
    share = np.exp(0.5 * (match - match.max(axis=1, keepdims=True)))
    share /= share.sum(axis=1, keepdims=True)
    found = share @ values + share[:, row, None] * (value - values[row])
    return np.asarray(_soft(found) @ theta[weights.ATTEND + attending.OUT :][: attending.SIZE_OF])


def corrections(theta: Floats, rows: Floats) -> Floats:
    """f of the candidates of one variant, before it is softly held."""
    return place(theta, rows) + np.array([float(seen(theta, rows, i, rows[i : i + 1])[0]) for i in range(len(rows))])


def moved(theta: Floats, rows: Floats, offers: NDArray[np.int64], most: float) -> Floats:
    """How far each feature, and last the constant, moved the logarithm of each candidate's price.

    ``offers`` says which rows were priced together (candidates of one variant); corrections are softly held within
    ±``most``. Of a weighted sum its terms, which sum to f.
    """
    if is_sum(theta):
        head = place_rows(theta)[:, weights.HIDDEN]
        return np.column_stack([rows * head[:-1], np.full(len(rows), head[-1])])
    found = np.zeros((len(rows), placing.N + 1))
    mean = rows.mean(axis=0)
    for i, mine in enumerate(rows):
        together = rows[offers == offers[i]]
        at = int((offers[:i] == offers[i]).sum())
        changed = np.vstack([np.where(np.eye(placing.N, dtype=bool), mean, mine), mine])
        f = place(theta, changed) + seen(theta, together, at, changed)
        held = f / (1.0 + np.abs(f) / most)
        found[i, :-1] = held[-1] - held[:-1]
    return found


def _three(head: Floats, rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Questions, keys and values of rows of features."""
    made = rows[:, placing.AROUND_N :] @ head[:-1] + head[-1]
    size = attending.SIZE_OF
    return made[:, :size], made[:, size : 2 * size], made[:, 2 * size :]


def _soft(x: Any) -> Any:
    return x / (1.0 + np.abs(x))
