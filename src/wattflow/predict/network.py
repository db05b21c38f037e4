"""A small neural network from usage to watts: two hidden layers of tanh, trained with numpy, evaluated compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.predict.compiled import compiled
from wattflow.predict.observations import Floats

Weights = tuple[Floats, Floats, Floats, Floats, Floats]


@dataclass(frozen=True, slots=True)
class Network:
    """Weights, with the scaling of inputs and output inside."""

    mean: Floats
    spread: Floats
    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats
    w3: Floats
    b3: float

    def predict(self, rows: Floats) -> Floats:
        """Return the output for each row."""
        # Within four deviations: far outside tanh saturates anyway, and inputs unlike the training must not
        # explode.
        scaled = np.clip((rows - self.mean) / self.spread, -4.0, 4.0)
        hidden = np.tanh(np.tanh(scaled @ self.w1 + self.b1) @ self.w2 + self.b2)
        return np.asarray(hidden @ self.w3 + self.b3)

    def predict_row(self, row: Floats) -> float:
        """Predict one row, compiled."""
        weights = (self.w1, self.b1, self.w2, self.b2, self.w3)
        return float(_forward(row, self.mean, self.spread, weights, self.b3))


@compiled
def _forward(row: Floats, mean: Floats, spread: Floats, weights: Weights, b3: float) -> float:
    w1, b1, w2, b2, w3 = weights
    first = np.empty(b1.size)
    for j in range(b1.size):
        total = b1[j]
        for i in range(row.size):
            x = min(max((row[i] - mean[i]) / spread[i], -4.0), 4.0)
            total += x * w1[i, j]
        first[j] = np.tanh(total)
    result = b3
    for j in range(b2.size):
        total = b2[j]
        for i in range(b1.size):
            total += first[i] * w2[i, j]
        result += np.tanh(total) * w3[j]
    return result


def fit_network(rows: Floats, target: Floats, hidden: int = 16, steps: int = 1500, seed: int = 0) -> Network:
    """Train by full-batch Adam on squared error with a small weight decay. Same seed, same weights."""
    rng = np.random.default_rng(seed)
    # A trifle, for columns that never vary.
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-12
    x = np.clip((rows - mean) / spread, -4.0, 4.0)
    centre, width = float(target.mean()), float(target.std()) + 1e-12
    y = (target - centre) / width
    sizes = (x.shape[1], hidden, hidden)
    weights = [
        rng.normal(0, 1 / np.sqrt(sizes[0]), (sizes[0], hidden)),
        np.zeros(hidden),
        rng.normal(0, 1 / np.sqrt(hidden), (hidden, hidden)),
        np.zeros(hidden),
        rng.normal(0, 1 / np.sqrt(hidden), hidden),
        np.zeros(1),
    ]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, steps + 1):
        slopes = _gradients(x, y, weights)
        rate = 0.01 * 0.5 * (1 + np.cos(np.pi * step / steps))
        for i, slope in enumerate(slopes):
            # Weights decay, biases do not.
            slope = slope + (1e-4 * weights[i] if weights[i].ndim == 2 else 0.0)
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope * slope
            weights[i] = weights[i] - rate * (first[i] / (1 - 0.9**step)) / (
                np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8
            )
    w1, b1, w2, b2, w3, b3 = weights
    # The scaling of the output goes into the last layer, so that predicting needs none.
    return Network(mean, spread, w1, b1, w2, b2, w3 * width, float(b3[0] * width + centre))


def _gradients(x: Floats, y: Floats, weights: list[Floats]) -> list[Floats]:
    w1, b1, w2, b2, w3, b3 = weights
    h1 = np.tanh(x @ w1 + b1)
    h2 = np.tanh(h1 @ w2 + b2)
    error = (h2 @ w3 + b3 - y) * (2.0 / len(y))
    back2 = np.outer(error, w3) * (1 - h2 * h2)
    back1 = (back2 @ w2.T) * (1 - h1 * h1)
    return [x.T @ back1, back1.sum(axis=0), h1.T @ back2, back2.sum(axis=0), h2.T @ error, np.array([error.sum()])]
