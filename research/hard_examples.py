"""Hard examples: which scenarios of a pool are tried, by how much the weights lose there.

Uniform draws spend most trials where the policy wins anyway. A share of them goes to the quarter of the pool in which
it does worst beside the flagship, joules and fines together. Losses are running means over the trials of the
directions, which are the weights and some noise, so they cost nothing extra.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FADES = 0.3
"""Share of the latest trial in a scenario's loss."""
HARDEST = 4
"""One in so many scenarios is hard."""


class HardExamples:
    """Losses of the scenarios of a pool."""

    def __init__(self, count: int) -> None:
        self.loss = np.zeros(count)
        self.tried = np.zeros(count, bool)

    def note(self, scenario: int, loss: float) -> None:
        """What the weights lost in a trial; less than 0 where they won."""
        share = FADES if self.tried[scenario] else 1.0
        self.loss[scenario] += share * (loss - self.loss[scenario])
        self.tried[scenario] = True

    def order(self) -> NDArray[np.int64]:
        """Scenarios, the hardest first."""
        return np.argsort(-self.loss, kind="stable")

    def draw(self, rng: np.random.Generator, directions: int, tries: int, hard: float) -> NDArray[np.int64]:
        """For each direction the scenarios to try, none twice; a share of them among the hardest."""
        count = len(self.loss)
        tries = min(tries, count)
        chosen = rng.permuted(np.tile(np.arange(count), (directions, 1)), axis=1)[:, :tries]
        if hard <= 0.0:
            return chosen
        worst = self.order()[: max(1, count // HARDEST)]
        for row in chosen:
            for i in np.flatnonzero(rng.random(tries) < hard).tolist():
                one = int(rng.choice(worst))
                if one not in row:
                    row[i] = one
        return chosen

    def forget(self, scenario: int) -> None:
        """Another scenario took its place."""
        self.loss[scenario], self.tried[scenario] = 0.0, False
