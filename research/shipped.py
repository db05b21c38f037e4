"""Files beside the research code: rules of folds, curves of the training that they come from, the portfolio's table."""

from __future__ import annotations

from pathlib import Path

from wattflow.policy import weights

DATA = Path(__file__).parent / "data"
LEARNED = DATA / "learned"


def weights_of(fold: int) -> Path:
    """Weights that have not seen a fold's applications; those of the package for −1."""
    return LEARNED / f"fold-{fold}.npz" if fold >= 0 else weights.shipped()
