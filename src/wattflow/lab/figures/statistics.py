"""Confidence intervals over seeds, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def t_cdf(t: float, freedom: int) -> float:
    """P(T ≤ t) of Student's t with a whole number of degrees of freedom: the finite sums 26.7.3 and 26.7.4 of
    Abramowitz & Stegun, Handbook of Mathematical Functions, 1964."""
    # Through the angle: no overflow for any t.
    angle = math.atan2(abs(t), math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    if freedom % 2:
        term, total = math.cos(angle), 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cos2 * (2 * k) / (2 * k + 1)
        inside = 2.0 / math.pi * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cos2 * (2 * k - 1) / (2 * k)
        inside = math.sin(angle) * total
    return 0.5 + math.copysign(inside / 2.0, t)


def t_quantile(probability: float, freedom: int) -> float:
    """Return the t with P(T ≤ t) = probability ≥ 0.5, by bisection to 1e-12."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return high


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None]:
    """Return mean and half width of its t interval: None for one value, 0 for equal ones."""
    count = len(values)
    # Exactly rounded, so that the order of seeds does not matter.
    mean = math.fsum(values) / count
    if count < 2:
        return mean, None
    # Exactly 0: rounding would give an interval to runs that are all the same.
    if max(values) == min(values):
        return values[0], 0.0
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, t_quantile(0.5 + confidence / 2.0, count - 1) * deviation / math.sqrt(count)


def reduction(before: float, after: float) -> float | None:
    """(before − after) / before as a share; None where before is 0 and after is not."""
    if before == 0:
        return 0.0 if after == 0 else None
    return (before - after) / before


def pareto_front(x: Sequence[float], y: Sequence[float]) -> NDArray[np.int64]:
    """Indices of the points that no other beats in both (less is better), by rising x. Equal points are all kept."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    order = np.lexsort((ys, xs))
    front: list[int] = []
    best_x, best_y = math.nan, math.inf
    for i in order.tolist():
        if math.isnan(xs[i]) or math.isnan(ys[i]):
            continue
        # Equal points are all on the front; the same energy later in time is not.
        if ys[i] < best_y or (ys[i] == best_y and xs[i] == best_x):
            front.append(i)
            best_x, best_y = xs[i], ys[i]
    return np.array(front, np.int64)
