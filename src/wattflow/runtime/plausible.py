"""Bounds on the joules that nodes report: no node draws more than its parts can, for longer than time has passed.

The bounds are wide, for they tell lies and broken counters from readings, not good readings from better ones.
"""

from __future__ import annotations

import math
from collections import Counter

from wattflow.runtime.messages import Energy, Node, Window

BASE_W, CPU_W, DEVICE_W = 1000.0, 100.0, 2000.0
"""More than a board, a processor and a device of any machine draw."""
SLACK_S = 10.0
"""Seconds that clocks of two machines may differ by, and that a meter may lag behind."""
SLACK_J = 1e-6
"""Rounding: an account that should be 0 may be a little less."""


def most_w(node: Node) -> float:
    """Watts that a node of this size cannot exceed."""
    return BASE_W + CPU_W * node.cpus + DEVICE_W * len(node.devices)


class Plausible:
    """Judges what nodes report. What it does not believe is counted and not taken.

    Args:
        refused: Counts what was not believed, by reason.
    """

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._windows_until_s: dict[str, float] = {}
        self._attempts: dict[str, tuple[float, float]] = {}

    def seen_until(self, node: str, ended_s: float) -> None:
        """Remember that a node's windows were taken up to a time."""
        self._windows_until_s[node] = max(ended_s, self._windows_until_s.get(node, -math.inf))

    def window(self, node: Node, window: Window, now_s: float) -> bool:
        """Believe a window that is over, comes after the one before it, and holds no more than the node can draw."""
        length_s = window.ended_s - window.began_s
        # Joules told twice for one time would be booked twice; a second node of the same name could do that, too.
        in_order = window.began_s >= self._windows_until_s.get(node.name, -math.inf) - SLACK_S
        if not (length_s > 0 and in_order and window.ended_s <= now_s + SLACK_S):
            return self._refuse("a window out of time")
        most_j = most_w(node) * (length_s + 1.0)
        parts = (window.counted_j, window.idle_j, window.tasks_j, window.unattributed_j)
        if not all(abs(joules) <= most_j for joules in parts) or min(window.counted_j, window.tasks_j) < -SLACK_J:
            return self._refuse("implausible joules of a node")
        self.seen_until(node.name, window.ended_s)
        return True

    def attempt(self, node: Node, energy: Energy, placed_s: float, now_s: float) -> bool:
        """Believe an attempt's joules that its node can have drawn since, beside all its other attempts' joules."""
        watts = most_w(node)
        most_j = watts * (now_s - placed_s + SLACK_S)
        since_s, sum_j = self._attempts.get(node.name, (placed_s, 0.0))
        since_s = min(since_s, placed_s)
        # Half of the upper end: a band holds a share of what nobody claims, which may double what the node drew.
        parts = (energy.energy_j, energy.low_j, energy.high_j / 2, energy.marginal_j)
        if not all(abs(joules) <= most_j for joules in parts) or energy.energy_j < -SLACK_J:
            return self._refuse("implausible joules of an attempt")
        # Each attempt alone may be plausible and all of them together not: a node has no more than its watts.
        if sum_j + energy.energy_j > watts * (now_s - since_s + SLACK_S):
            return self._refuse("implausible joules of all attempts of a node")
        self._attempts[node.name] = (since_s, sum_j + energy.energy_j)
        return True

    def _refuse(self, reason: str) -> bool:
        self._refused[reason] += 1
        return False
