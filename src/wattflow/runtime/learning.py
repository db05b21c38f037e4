"""What ends and wakes teach: runtimes, nodes' speeds and wake times, told to the engine when they are news."""

from __future__ import annotations

import logging

import msgspec

from wattflow.runtime import messages as m
from wattflow.runtime.decider import Decider
from wattflow.runtime.estimates import Estimates
from wattflow.runtime.nodes import NodeRecord
from wattflow.runtime.records import AttemptRecord

log = logging.getLogger(__name__)


class Learning:
    """Feeds the estimates, and tells the engine of nodes that are not what they said."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self.estimates = Estimates()

    def finished(self, attempt: AttemptRecord, end: m.Ended, node: m.Node) -> None:
        """A task ended well: its runtime counts; a node that is not as fast as it said is told to the engine."""
        self.estimates.finished(attempt.task.spec.function_name, end, node.name, node.speed)
        speed = self.estimates.news(node.name, node.speed)
        if speed is not None:
            log.info("node %s has the speed %.3g, not %.3g", node.name, speed, node.speed)
            self._decider.node(msgspec.structs.replace(node, speed=speed))

    def woke(self, node: NodeRecord, wake_s: float | None) -> None:
        """The engine counts with the time that waking really took."""
        if wake_s is not None and node.spec.sleeps:
            self._decider.node(msgspec.structs.replace(node.spec, wake_s=wake_s))
