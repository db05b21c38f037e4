"""What all rivals have in common: they look at the rows of open decisions and choose one of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from research.rivals.network import Floats, Net, Whole, best
from wattflow.learn import episode
from wattflow.policy import placing

FEATURES = (*placing.AROUND, *placing.CANDIDATE)
POOLED = 2 * episode.WIDTH + 1


def column(name: str) -> int:
    """The place of a feature by its name."""
    return FEATURES.index(name)


@dataclass(frozen=True, slots=True)
class Look:
    """Open decisions as a rival sees them.

    Attributes:
        inputs: What its network reads.
        starts: Where each decision's choices begin among all choices.
        rows: The environment's row that each choice stands for.
    """

    inputs: Floats
    starts: Whole
    rows: Whole


@dataclass(slots=True)
class Agent:
    """A rival with its networks. Subclasses say what it looks at.

    Attributes:
        net: Gives each choice its score; the greatest is taken.
        critic: The value of a decision from `pooled` features, for the trainer; None where ``net`` is one itself.
        card: What it was made from.
    """

    net: Net
    critic: Net | None = None
    card: dict[str, Any] = field(default_factory=dict)
    name = ""
    paper = ""
    joint = False
    """Whether it chooses among tasks too, or is given one at a time in the flagship's order."""
    shown = 64
    """Rows of a decision, at most."""

    def look(self, seen: Floats, shown: Whole, asks: Sequence[Any]) -> Look:
        """Decisions of several streams: features and number of their rows, and the engine's own rows."""
        raise NotImplementedError

    def scores(self, look: Look) -> Floats:
        """One number for each choice."""
        return np.asarray(self.net.forward(look.inputs)[:, 0])

    def choose(self, seen: Floats, shown: Whole, asks: Sequence[Any]) -> Whole:
        """The row of each decision that is thought best."""
        look = self.look(seen, shown, asks)
        return np.asarray(look.rows[look.starts + best(self.scores(look), look.starts)], np.int64)


def flat(seen: Floats, shown: Whole) -> tuple[Floats, Whole, Whole]:
    """All rows that there are one after the other, where each decision begins, and their numbers within it."""
    many = np.minimum(shown, seen.shape[1])
    there = np.arange(seen.shape[1])[None, :] < many[:, None]
    starts = np.cumsum(many) - many
    return seen[there], starts, np.nonzero(there)[1]


def pooled(seen: Floats, shown: Whole) -> Floats:
    """A decision as a whole: mean and maximum of its rows, and how many there are."""
    rows, starts, _ = flat(seen, shown)
    many = np.minimum(shown, seen.shape[1])[:, None]
    mean = np.add.reduceat(rows, starts) / many
    return np.hstack([mean, np.maximum.reduceat(rows, starts), np.log1p(many) / 4.0]).astype(np.float32)
