"""Nodes that were told to wake: how long each takes is learned, one that does not come is told again, then given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)
TRIES = 3
LEAST_S = 30.0
"""Nobody is given up sooner, however quick it was before."""
SLACK = 3.0
"""A node may take so many times its learned time."""
WEIGHT = 0.3


@dataclass(slots=True)
class _Order:
    """A node on its way: since when, how often it was told, when it is told again."""

    began_s: float
    tries: int
    timer: asyncio.TimerHandle


class Waking:
    """Orders to wake that have not been followed by the node itself.

    Args:
        now: The service's clock.
        wake: Tells the driver to wake a node.
        give_up: Marks a node that did not wake, with the reason.
        least_s: Shortest wait for a node.
    """

    def __init__(
        self,
        now: Callable[[], float],
        wake: Callable[[str], None],
        give_up: Callable[[str, str], None],
        least_s: float = LEAST_S,
    ) -> None:
        self._now, self._wake, self._give_up, self._least_s = now, wake, give_up, least_s
        self._orders: dict[str, _Order] = {}
        self._learned_s: dict[str, float] = {}

    def order(self, node: str, expected_s: float) -> None:
        """Wake a node; one that is on its way already is left alone."""
        if node in self._orders:
            return
        # Before the driver is told: it may answer at once, and `awake` must find the order.
        self._orders[node] = _Order(self._now(), 1, self._later(node, expected_s))
        self._wake(node)

    def awake(self, node: str) -> float | None:
        """The node is here: seconds that waking takes it, learned over its wakes; None where nobody had woken it."""
        order = self._orders.pop(node, None)
        if order is None:
            return None
        order.timer.cancel()
        took_s, before_s = self._now() - order.began_s, self._learned_s.get(node)
        # A moving mean: firmware updates and disks change it, one slow boot should not.
        self._learned_s[node] = took_s if before_s is None else before_s + WEIGHT * (took_s - before_s)
        return self._learned_s[node]

    def forget(self, node: str) -> None:
        """The node is lost for another reason."""
        order = self._orders.pop(node, None)
        if order is not None:
            order.timer.cancel()

    def close(self) -> None:
        """Wait for nobody any more."""
        for node in list(self._orders):
            self.forget(node)

    def wake_s(self, node: str) -> float | None:
        """Return what was learned of a node."""
        return self._learned_s.get(node)

    def _later(self, node: str, expected_s: float) -> asyncio.TimerHandle:
        # By what this node took before: a rack of slow firmware must not be taken for dead, nor a dead one waited
        # for.
        wait_s = max(self._least_s, SLACK * self._learned_s.get(node, expected_s))
        return asyncio.get_running_loop().call_later(wait_s, self._again, node, expected_s)

    def _again(self, node: str, expected_s: float) -> None:
        order = self._orders[node]
        if order.tries >= TRIES:
            del self._orders[node]
            self._give_up(node, f"did not wake: told {TRIES} times in {self._now() - order.began_s:.0f} s")
            return
        log.warning("node %s has not woken; telling it again", node)
        order.tries += 1
        order.timer = self._later(node, expected_s)
        self._wake(node)
