"""Questions of a policy's ``prepare`` about the State's sizes, to lay out its memory; part of `policy.view`."""

from __future__ import annotations

from typing import Any

import numpy as np


def shape_count(state: Any) -> int:
    """Return how many task shapes there are; for ``prepare``."""
    return len(state.shapes)


def first_variants(state: Any, shapes: Any) -> Any:
    """Return the first variant of each of these shapes; for ``prepare``."""
    return np.asarray(state.shapes.variant_first[shapes])


def candidate_room(state: Any) -> int:
    """Return the most candidates that a score can be asked about at once; for ``prepare``."""
    return len(state.candidates)
