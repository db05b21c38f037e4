"""The backbone's residuals, smoothed: a Gaussian process per task over machine, size and input data.

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
# Typical log effects of machine, input and size; what the likelihood is drawn to.
PRIOR = np.log(np.array([0.15, 0.10, 0.05, 0.10, 0.05, 0.2, 1.0, 0.06]))
_CLIP, _TASKS_TUNED, _ROWS_TUNED, _STEPS, _ROBUST_ROUNDS, _HUBER = 0.5, 12, 64, 15, 3, 2.0
# Data sets with exact repeats would drive the noise to nothing and the matrix to singularity.
_LEAST_NOISE = float(np.log(0.01))
# Solving is cubic in the rows of a task; the latest count.
_ROWS_MOST = 160


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where rows stand: machine index, log of size, identity of the data (−1: unknown)."""

    machine: Ints
    log_size: Floats
    data: Ints

    def take(self, rows: Ints) -> Coordinates:
        return Coordinates(self.machine[rows], self.log_size[rows], self.data[rows])


@dataclass(frozen=True, slots=True)
class Kriging:
    """Fitted processes; rows of task k are ``start[k] … start[k + 1]``."""

    scales: Floats
    distance: Floats
    start: Ints
    places: Coordinates
    weight: Floats

    def predict(self, task: Ints, places: Coordinates, distance: Floats | None = None) -> Floats:
        """Predict the residual. ``distance`` ([machine of the row, fitted machine]) replaces the fitted distances."""
        result = np.zeros(len(task))
        table = self.distance if distance is None else distance
        for k in np.unique(task).tolist():
            rows = np.flatnonzero(task == k)
            fitted = np.arange(self.start[k], self.start[k + 1])
            if len(fitted):
                matrix = covariance(self.scales, places.take(rows), self.places.take(fitted), table)
                result[rows] = matrix @ self.weight[fitted]
        return result


def covariance(scales: Floats, one: Coordinates, other: Coordinates, distance: Floats) -> Floats:
    offset, data, data_machine, size, size_machine, machine_length, size_length, _ = np.exp(scales)
    near = np.exp(-(distance[np.ix_(one.machine, other.machine)] ** 2) / (2 * machine_length**2))
    same = (one.data[:, None] == other.data[None, :]) & (one.data[:, None] >= 0)
    close = np.exp(-((one.log_size[:, None] - other.log_size[None, :]) ** 2) / (2 * size_length**2))
    return np.asarray(
        offset**2 * near + same * (data**2 + data_machine**2 * near) + close * (size**2 + size_machine**2 * near)
    )


def tune(residual: Floats, task: Ints, places: Coordinates, distance: Floats, seed: int = 0) -> Floats:
    """Find the scales of greatest penalised marginal likelihood over a sample of the tasks."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.unique(task))[:_TASKS_TUNED]
    sets = []
    for k in chosen.tolist():
        # A sample: likelihood is cubic as well.
        rows = rng.permutation(np.flatnonzero(task == k))[:_ROWS_TUNED]
        if len(rows) > 1:
            sets.append((_Parts.of(places.take(rows), distance), np.clip(residual[rows], -_CLIP, _CLIP)))

    def cost(scales: Floats) -> tuple[float, Floats]:
        # A normal prior of width 1 in the logs: scales may differ from it by factors of e, not of a
        # hundred.
        total, slope = 0.5 * float(np.sum((scales - PRIOR) ** 2)), scales - PRIOR
        for parts, values in sets:
            value, towards = parts.likelihood(scales, values)
            total, slope = total + value, slope + towards
        return total, slope

    bounds = [(-6.0, 3.0)] * 7 + [(_LEAST_NOISE, 3.0)]
    found = minimize(cost, PRIOR, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    return np.asarray(found.x, np.float64)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of the covariance of one set of rows, whatever the scales."""

    machine: Floats
    same: Floats
    gap: Floats

    @classmethod
    def of(cls, where: Coordinates, distance: Floats) -> _Parts:
        same = (where.data[:, None] == where.data[None, :]) & (where.data[:, None] >= 0)
        gap = (where.log_size[:, None] - where.log_size[None, :]) ** 2
        return cls(distance[np.ix_(where.machine, where.machine)] ** 2, same.astype(np.float64), gap)

    def likelihood(self, scales: Floats, values: Floats) -> tuple[float, Floats]:
        """Return the negative log marginal likelihood and its slope in the log scales (Rasmussen & Williams, 5.9)."""
        variance = np.exp(2 * scales)
        near = np.exp(-self.machine / (2 * variance[5]))
        close = np.exp(-self.gap / (2 * variance[6]))
        shared = variance[0] + variance[2] * self.same + variance[4] * close
        alike = variance[3] + variance[4] * near
        matrix = shared * near + variance[1] * self.same + variance[3] * close
        # Jitter on top of the noise, so that equal rows stay solvable.
        matrix[np.diag_indices(len(values))] += variance[7] + 1e-9
        lower = np.linalg.cholesky(matrix)
        # The inverse is needed whole, for the slopes; for a few dozen rows it is cheap.
        inverse = np.linalg.inv(lower)
        inverse = inverse.T @ inverse
        solved = inverse @ values
        pull = inverse - np.outer(solved, solved)
        slope = np.array(
            [
                variance[0] * np.sum(pull * near),
                variance[1] * np.sum(pull * self.same),
                variance[2] * np.sum(pull * self.same * near),
                variance[3] * np.sum(pull * close),
                variance[4] * np.sum(pull * close * near),
                0.5 * np.sum(pull * shared * near * self.machine) / variance[5],
                0.5 * np.sum(pull * alike * close * self.gap) / variance[6],
                variance[7] * np.trace(pull),
            ]
        )
        return float(0.5 * values @ solved + np.log(np.diag(lower)).sum()), slope


def fit_kriging(
    residual: Floats, task: Ints, places: Coordinates, distance: Floats, fit: tuple[int, Floats]
) -> Kriging:
    """Solve for each task. ``fit`` is (tasks, scales). Outlying rows count less, by iterated noise."""
    tasks, scales = fit
    order, weights, start = [], [], np.zeros(tasks + 1, np.int64)
    noise = float(np.exp(scales[-1]))
    for k in range(tasks):
        # The latest rows of the task.
        rows = np.flatnonzero(task == k)[-_ROWS_MOST:]
        start[k + 1] = start[k] + len(rows)
        if not len(rows):
            continue
        where = places.take(rows)
        matrix = covariance(scales, where, where, distance)
        trust: Floats = np.ones(len(rows))
        solved: Floats = np.zeros(len(rows))
        for _ in range(_ROBUST_ROUNDS):
            # Less trust is more noise; outlying rows then pull less (Huber's weights).
            solved = np.asarray(np.linalg.solve(matrix + np.diag(noise**2 / trust), residual[rows]), np.float64)
            trust = np.minimum(1.0, _HUBER / np.maximum(np.abs(residual[rows] - matrix @ solved) / noise, 1e-9))
        order.append(rows)
        weights.append(solved)
    rows = np.concatenate(order) if order else np.zeros(0, np.int64)
    return Kriging(scales, distance, start, places.take(rows), np.concatenate(weights) if weights else np.zeros(0))
