"""Files beside the research code: weights of folds and seeds, distilled rules of folds, the portfolio's table."""

from __future__ import annotations

from pathlib import Path

from wattflow.policy import distilled, weights

DATA = Path(__file__).parent / "data"
LEARNED = DATA / "learned"


def weights_of(fold: int) -> Path:
    """Weights that have not seen a fold's applications; those of the package for −1."""
    return LEARNED / f"fold-{fold}.npz" if fold >= 0 else weights.shipped()


def rule_of(fold: int) -> Path:
    """The rule distilled from the weights of a fold; that of the package for −1."""
    return DATA / "distilled" / f"fold-{fold}.npz" if fold >= 0 else distilled.path()
