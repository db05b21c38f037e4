"""Figures of held-out predictions beside the floor to beat, and sets with one group left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattflow.predict.evaluate import Split
from wattflow.predict.observations import Texts


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


def leave_one_out(group: Texts) -> Iterator[tuple[str, Split]]:
    """Yield each group left out in turn, with its name."""
    for name in np.unique(group).tolist():
        yield str(name), (np.flatnonzero(group != name), np.flatnonzero(group == name))
