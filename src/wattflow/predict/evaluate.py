"""Held-out evaluation: splits that never cut through a run, a machine or a source, and the figures made from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Floats, Ints, Texts

Split = tuple[Ints, Ints]


def group_folds(group: Texts, folds: int = 5, seed: int = 0) -> Iterator[Split]:
    """Yield folds in which all rows of a group stay together; groups are dealt out in a seeded order."""
    found, number = np.unique(group, return_inverse=True)
    # Groups are permuted, not rows; the remainder deals them out evenly.
    fold = np.random.default_rng(seed).permutation(len(found))[number] % min(folds, len(found))
    for f in range(int(fold.max()) + 1):
        yield np.flatnonzero(fold != f), np.flatnonzero(fold == f)


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
