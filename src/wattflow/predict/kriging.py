"""What the backbone leaves over, smoothed: a Gaussian process per task over machine, size and input data.

    k = o²·M + [same data]·(i² + d²·M) + S·(s² + c²·M)
    M = exp(−dist²/2l²) over machines,  S = exp(−Δlog²/2x²) over sizes

Machines are near when their micro-benchmarks are; the same data on another machine shares an effect of its own. The
eight scales are common to all tasks and chosen by marginal likelihood on the training rows. Away from the data the
process falls back to the backbone. (Rasmussen & Williams, 2006, chapters 2 and 5.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Floats, Ints

# offset, data, data×machine, size, size×machine, machine length, size length, noise
PRIOR = np.log(np.array([0.15, 0.10, 0.05, 0.10, 0.05, 0.2, 1.0, 0.06]))
_CLIP, _TASKS_TUNED, _STEPS, _ROBUST_ROUNDS, _HUBER = 0.5, 14, 15, 3, 2.0
_ROWS_MOST = 400


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows stand: machine index, log of size, identity of the data (−1: unknown)."""

    machine: Ints
    log_size: Floats
    data: Ints

    def take(self, rows: Ints) -> Places:
        return Places(self.machine[rows], self.log_size[rows], self.data[rows])


@dataclass(frozen=True, slots=True)
class Kriging:
    """Fitted processes; rows of task k are ``start[k] … start[k + 1]``."""

    scales: Floats
    distance: Floats
    start: Ints
    places: Places
    weight: Floats

    def predict(self, task: Ints, places: Places, distance: Floats | None = None) -> Floats:
        """Expected residual. ``distance`` ([machine of the row, fitted machine]) replaces the fitted distances."""
        result = np.zeros(len(task))
        table = self.distance if distance is None else distance
        for k in np.unique(task).tolist():
            rows = np.flatnonzero(task == k)
            fitted = np.arange(self.start[k], self.start[k + 1])
            if len(fitted):
                matrix = covariance(self.scales, places.take(rows), self.places.take(fitted), table)
                result[rows] = matrix @ self.weight[fitted]
        return result


def covariance(scales: Floats, one: Places, other: Places, distance: Floats) -> Floats:
    offset, data, data_machine, size, size_machine, machine_length, size_length, _ = np.exp(scales)
    near = np.exp(-(distance[np.ix_(one.machine, other.machine)] ** 2) / (2 * machine_length**2))
    same = (one.data[:, None] == other.data[None, :]) & (one.data[:, None] >= 0)
    close = np.exp(-((one.log_size[:, None] - other.log_size[None, :]) ** 2) / (2 * size_length**2))
    return np.asarray(
        offset**2 * near + same * (data**2 + data_machine**2 * near) + close * (size**2 + size_machine**2 * near)
    )


def tune(residual: Floats, task: Ints, places: Places, distance: Floats, seed: int = 0) -> Floats:
    """Scales of greatest penalised marginal likelihood over a sample of the tasks."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.unique(task))[:_TASKS_TUNED]
    sets = []
    for k in chosen.tolist():
        rows = np.flatnonzero(task == k)
        rows = rng.permutation(rows)[:150]
        sets.append((places.take(rows), np.clip(residual[rows], -_CLIP, _CLIP)))

    def cost(scales: Floats) -> float:
        if np.any(np.abs(scales) > 6.0):
            return 1e9
        total = 0.5 * float(np.sum((scales - PRIOR) ** 2))
        for where, values in sets:
            matrix = covariance(scales, where, where, distance)
            matrix[np.diag_indices(len(values))] += np.exp(2 * scales[-1])
            try:
                lower = np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                return 1e9
            white = np.linalg.solve(lower, values)
            total += float(0.5 * white @ white + np.log(np.diag(lower)).sum())
        return total

    found = minimize(cost, PRIOR, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(found.x, np.float64)


def fit_kriging(residual: Floats, task: Ints, places: Places, distance: Floats, fit: tuple[int, Floats]) -> Kriging:
    """Solve for each task. ``fit`` is (tasks, scales). Outlying rows count less, by iterated noise."""
    tasks, scales = fit
    order, weights, start = [], [], np.zeros(tasks + 1, np.int64)
    noise = float(np.exp(scales[-1]))
    for k in range(tasks):
        rows = np.flatnonzero(task == k)[-_ROWS_MOST:]
        start[k + 1] = start[k] + len(rows)
        if not len(rows):
            continue
        where = places.take(rows)
        matrix = covariance(scales, where, where, distance)
        trust: Floats = np.ones(len(rows))
        solved: Floats = np.zeros(len(rows))
        for _ in range(_ROBUST_ROUNDS):
            solved = np.asarray(np.linalg.solve(matrix + np.diag(noise**2 / trust), residual[rows]), np.float64)
            trust = np.minimum(1.0, _HUBER / np.maximum(np.abs(residual[rows] - matrix @ solved) / noise, 1e-9))
        order.append(rows)
        weights.append(solved)
    rows = np.concatenate(order) if order else np.zeros(0, np.int64)
    return Kriging(scales, distance, start, places.take(rows), np.concatenate(weights) if weights else np.zeros(0))
