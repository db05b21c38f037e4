"""Held-out evaluation: splits that never cut through a run, a machine or a source, and the figures made from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Floats, Ints, Texts

Split = tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class FloorFigure:
    """One measured number beside the floor to beat and the goal. ``goal`` is a bound or a closed range."""

    name: str
    value: float
    unit: str
    goal: float | tuple[float, float]
    floor: float | None = None
    higher_is_better: bool = False

    @property
    def ok(self) -> bool:
        # NaN is short of any goal.
        if math.isnan(self.value):
            return False
        if isinstance(self.goal, tuple):
            return self.goal[0] <= self.value <= self.goal[1]
        return self.value >= self.goal if self.higher_is_better else self.value <= self.goal

    def line(self) -> str:
        """Write ``figure NAME VALUE UNIT goal GOAL ok|short``, with the floor before the verdict if there is one."""
        goal = f"{self.goal[0]:g}-{self.goal[1]:g}" if isinstance(self.goal, tuple) else f"{self.goal:g}"
        floor = f" floor {self.floor:g}" if self.floor is not None else ""
        return f"figure {self.name} {self.value:.4g} {self.unit} goal {goal}{floor} {'ok' if self.ok else 'short'}"


def group_folds(group: Texts, folds: int = 5, seed: int = 0) -> Iterator[Split]:
    """Yield folds in which all rows of a group stay together; groups are dealt out in a seeded order."""
    found, number = np.unique(group, return_inverse=True)
    # Groups are permuted, not rows; the remainder deals them out evenly.
    fold = np.random.default_rng(seed).permutation(len(found))[number] % min(folds, len(found))
    for f in range(int(fold.max()) + 1):
        yield np.flatnonzero(fold != f), np.flatnonzero(fold == f)


def leave_one_out(group: Texts) -> Iterator[tuple[str, Split]]:
    """Yield each group left out in turn, with its name."""
    for name in np.unique(group).tolist():
        yield str(name), (np.flatnonzero(group != name), np.flatnonzero(group == name))


def relative_errors(predicted: Floats, true: Floats) -> Floats:
    """Return |predicted − true| / true. A row without a prediction counts as wholly wrong (1), never as left out."""
    error = np.abs(predicted - true) / true
    # A model must not gain by staying silent.
    return np.where(np.isfinite(predicted), error, 1.0)


def coverage(low: Floats, high: Floats, true: Floats) -> float:
    """Share of true values inside their interval; a missing interval does not cover."""
    # NaN ends compare false: they do not cover.
    with np.errstate(invalid="ignore"):
        return float(np.mean((true >= low) & (true <= high)))


def r2_of_log(predicted: Floats, true: Floats) -> float:
    """Return the coefficient of determination of natural logs."""
    residual = np.log(predicted) - np.log(true)
    spread = np.log(true) - np.log(true).mean()
    return 1.0 - float(residual @ residual) / float(spread @ spread)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of rows that were held out, pooled over folds."""

    predicted: Floats
    low: Floats
    high: Floats
    true: Floats

    @classmethod
    def pool(cls, parts: Iterable[HeldOut]) -> HeldOut:
        listed: Sequence[HeldOut] = list(parts)
        return cls(
            *(np.concatenate([getattr(p, name) for p in listed]) for name in ("predicted", "low", "high", "true"))
        )

    @property
    def median_pct(self) -> float:
        return 100.0 * float(np.median(relative_errors(self.predicted, self.true)))

    @property
    def mean_pct(self) -> float:
        return 100.0 * float(np.mean(relative_errors(self.predicted, self.true)))

    @property
    def coverage_pct(self) -> float:
        return 100.0 * coverage(self.low, self.high, self.true)

    @property
    def r2_log(self) -> float:
        return r2_of_log(self.predicted, self.true)
