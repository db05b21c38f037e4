"""Runtimes learned as tasks finish: a mean per function that forgets slowly, corrected by `wattflow.predict.online`.

The mean is in logarithms and of a node of speed 1. What is left over is split by recursive least squares into what the
function and what the node has to do with it; a node that turns out slower or faster than it said is told to the engine
with the speed it has.
"""

from __future__ import annotations

import math

from wattflow.predict.online import Corrector
from wattflow.runtime.messages import Ended

WEIGHT = 0.1
SHORTEST_S = 1e-4
KNOWN_FUNCTIONS = 64
"""Functions that the correction tells apart: its work grows with their square."""
ENOUGH = 20
"""Ends on a node before its speed is believed."""
WORTH = 0.1
"""Relative change of a speed that is worth telling."""
EVERY = 8
"""Beyond the first ends only one in so many is learned from: it runs in the server's loop."""
ALL_OF_FIRST = 200


class Estimates:
    """Estimates for the engine, of tasks that did not say how long they take, and about nodes."""

    def __init__(self) -> None:
        self._log_s: dict[str, tuple[int, float]] = {}
        self._corrector = Corrector()
        self._ends: dict[str, int] = {}
        self._told: dict[str, float] = {}
        self._count = 0

    def finished(self, function: str, end: Ended, node: str = "", speed: float = 1.0) -> None:
        """A task of this function ended well on a node that said it has this speed."""
        if end.started_s is None or end.ended_s is None:
            return
        # In logarithms: runtimes spread by factors, and one of an hour would swamp a thousand of a second.
        value = math.log(max(SHORTEST_S, (end.ended_s - end.started_s) * speed))
        count, mean = self._log_s.get(function, (0, 0.0))
        weight = max(WEIGHT, 1.0 / (count + 1))
        self._log_s[function] = (count + 1, mean + weight * (value - mean))
        self._count += 1
        # The first end of a function has nothing to be compared with.
        if count and node and (self._count <= ALL_OF_FIRST or self._count % EVERY == 0):
            self._correct(function, node, value - mean)

    def runtime_s(self, function: str) -> float | None:
        """Seconds it will take on a node of speed 1; None while nothing is known."""
        known = self._log_s.get(function)
        return math.exp(known[1]) if known is not None else None

    def news(self, node: str, said: float) -> float | None:
        """The speed of a node, where enough ended there to say that it is another than it said or than was told last.

        Speeds are relative, so they are judged against the nodes' mean: with one node there is nothing to learn.
        """
        if self._ends.get(node, 0) < ENOUGH or len([n for n in self._ends.values() if n >= ENOUGH]) < 2:
            return None
        effects = {name: self._corrector.correction("", name) for name, ends in self._ends.items() if ends >= ENOUGH}
        found = said * math.exp(sum(effects.values()) / len(effects) - effects[node])
        before = self._told.get(node, said)
        if not 0 < found < math.inf or abs(found / before - 1.0) < WORTH:
            return None
        self._told[node] = found
        return found

    def _correct(self, function: str, node: str, log_error: float) -> None:
        corrector = self._corrector
        name = function if function in corrector.tasks or len(corrector.tasks) < KNOWN_FUNCTIONS else "others"
        corrector.finished(name, node, log_error)
        self._ends[node] = self._ends.get(node, 0) + 1
