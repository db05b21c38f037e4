"""Runtimes learned as tasks finish, by function: a mean in logarithms that forgets slowly."""

from __future__ import annotations

import math

from wattflow.runtime.messages import Ended

WEIGHT = 0.1
SHORTEST_S = 1e-4


class Estimates:
    """What the engine is told about a task that did not say how long it takes."""

    def __init__(self) -> None:
        self._log_s: dict[str, tuple[int, float]] = {}

    def finished(self, function: str, end: Ended) -> None:
        """A task of this function ended well."""
        if end.started_s is None or end.ended_s is None:
            return
        value = math.log(max(SHORTEST_S, end.ended_s - end.started_s))
        count, mean = self._log_s.get(function, (0, 0.0))
        weight = max(WEIGHT, 1.0 / (count + 1))
        self._log_s[function] = (count + 1, mean + weight * (value - mean))

    def runtime_s(self, function: str) -> float | None:
        """Seconds it will take; None while nothing is known."""
        known = self._log_s.get(function)
        return math.exp(known[1]) if known is not None else None
