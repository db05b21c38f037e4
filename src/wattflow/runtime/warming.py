"""Orders of the policy to hold functions ready ahead of need, and what became of them."""

from __future__ import annotations

import logging

from wattflow.live import COLD
from wattflow.live.protocol import Action
from wattflow.runtime import messages as m
from wattflow.runtime.decider import Decider
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.nodes import Nodes

log = logging.getLogger(__name__)


class Warming:
    """Turns WARM actions into orders to the driver. What a node cannot hold ready is cold there for the engine, too.

    Functions are known by the last task that named them; after a restart, by the tasks that are open.
    """

    def __init__(self, decider: Decider, driver: Driver, nodes: Nodes) -> None:
        self._decider, self._driver, self._nodes = decider, driver, nodes
        self._orders: dict[str, m.Warm | None] = {}

    def seen(self, spec: m.Task, owner: str = "") -> None:
        """A task was submitted: this is what its function is made of, and whose it is."""
        own = [spec.function, *(variant.function for variant in spec.variants if not variant.fpga)]
        objects = list(dict.fromkeys(name for name in own if name is not None))
        order = m.Warm(spec.function_name, objects, spec.python or "", owner)
        # None for a command, so that `order` can tell it from a function that was not seen since the start.
        self._orders[spec.function_name] = order if objects else None

    def order(self, action: Action) -> None:
        """The policy wants a container of a function on a node, or one that can take any: all that start cold."""
        node = self._nodes.by_engine(action.who)
        if node is None:
            return
        names = [self._decider.function_name(action.value)] if action.value >= 0 else self._slow()
        for name in names:
            order = self._orders.get(name)
            if order is not None:
                self._driver.warm(node.spec.name, order)
            elif action.value >= 0:
                # The engine hears of it with the next event: until then nothing can be placed there.
                self.told(node.spec.name, m.Warmed(name, False, reason="it is a command, or not seen since the start"))

    def told(self, node: str, told: m.Warmed) -> None:
        """A node says what became of an order, or that what was warm is not any more."""
        record = self._nodes.get(node)
        if record is None:
            return
        if told.ready:
            record.warm.add(told.function_name)
            log.info("%s is warm on %s after %.3g s", told.function_name, node, told.seconds)
            return
        record.warm.discard(told.function_name)
        log.info("%s is not warm on %s: %s", told.function_name, node, told.reason)
        # A report of a function that the engine never saw would be an unknown id to it, and end the turn.
        if self._decider.knows(told.function_name):
            self._decider.put(COLD, record.engine, function=told.function_name)

    def _slow(self) -> list[str]:
        return [name for name in self._orders if self._decider.cold_start_s(name) > 0]
