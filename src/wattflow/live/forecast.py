"""What a roll-out of a policy from a live State, or a replay, found: joules, waits, deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SPREAD = 0.2
"""σ of the logarithm of runtimes around their estimates, as they are drawn for looks."""


@dataclass(frozen=True, slots=True)
class Look:
    """Outcome of one policy on the workflows that count.

    Attributes:
        energy_j: All nodes.
        response_s: Mean seconds from submission to the end.
        late: Workflows that miss their deadline.
        last_s: Until the last of them ends.
        ended: Tasks that end as far as was looked.
    """

    energy_j: float
    response_s: float
    late: float
    last_s: float = 0.0
    ended: float = 0.0

    @classmethod
    def of(cls, energy_j: float, ends: Ends, since_s: float, ended: float = 0.0) -> Look:
        """From the ends of the workflows that count."""
        late = float(np.count_nonzero(ends.end_s > ends.due_s + 1e-6))
        response_s = float((ends.end_s - ends.submit_s).mean()) if len(ends.end_s) else 0.0
        return cls(energy_j, response_s, late, float(ends.end_s.max(initial=since_s)) - since_s, ended)

    @classmethod
    def mean(cls, looks: Sequence[Look]) -> Look:
        """Over draws."""
        return cls(*(float(np.mean([getattr(look, one.name) for look in looks])) for one in fields(cls)))


@dataclass(frozen=True, slots=True)
class Ends:
    """Workflows by columns: when each was submitted, should end and ends."""

    submit_s: Floats
    due_s: Floats
    end_s: Floats


__all__ = ["SPREAD", "Ends", "Look"]
