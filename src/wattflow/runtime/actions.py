"""Carry out the engine's actions: attempts launched and stopped, nodes asleep or woken, functions warmed, clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattflow.live import Act
from wattflow.live.protocol import Action
from wattflow.runtime.drivers.base import Driver, Sink
from wattflow.runtime.messages import Ended, Lease, Level
from wattflow.runtime.nodes import Nodes
from wattflow.runtime.records import Attempts
from wattflow.runtime.waking import Waking
from wattflow.runtime.warming import Warming


@dataclass(slots=True)
class Actions:
    """Turns actions into orders to the driver.

    Attributes:
        sink: The service, for what cannot be launched.
        node_state: Notes a node's new state.
    """

    driver: Driver
    sink: Sink
    nodes: Nodes
    attempts: Attempts
    waking: Waking
    warming: Warming
    node_state: Callable[[str, str], None]

    def launch(self, leases: Sequence[Lease]) -> None:
        """Have attempts run. Where the driver raises, all of them are refused: fences keep those that run apart."""
        try:
            self.driver.launch(leases)
        except Exception as error:
            # Some of them may have been launched: their reports carry fences of attempts that are over, and change
            # nothing.
            reason = self.sink.aside.put("launch of attempts", [lease.fence for lease in leases], error)
            for lease in leases:
                self.sink.ended(Ended(fence=lease.fence, outcome="refused", reason=f"not launched: {reason}"))

    def do(self, action: Action) -> None:
        """Have one done; what it names may be gone by now."""
        if action.kind == Act.STOP:
            attempt = self.attempts.of_engine(action.who)
            if attempt is not None:
                # From here on a bad end is the end: what was cancelled is not tried again.
                attempt.stopping = True
                self.driver.cancel([attempt.fence])
        elif action.kind in (Act.SLEEP, Act.WAKE):
            self._power(action)
        elif action.kind == Act.WARM:
            self.warming.order(action)
        elif action.kind in (Act.FREQUENCY, Act.CAP):
            self._level(action)

    def _level(self, action: Action) -> None:
        """Order what the node announced that it can do; of others the engine knows one level, and nothing is done."""
        node = self.nodes.by_engine(action.who)
        level = getattr(self.driver, "level", None)
        if node is None or level is None:
            return
        clocks = node.spec.clocks_mhz
        if action.kind == Act.CAP and node.spec.caps:
            level(node.spec.name, Level("cap_w", float(max(0, action.value))))
        elif action.kind == Act.FREQUENCY and action.value < len(clocks):
            level(node.spec.name, Level("clock_mhz", clocks[action.value] if action.value else 0.0))

    def _power(self, action: Action) -> None:
        node = self.nodes.by_engine(action.who)
        if node is not None and action.kind == Act.WAKE:
            # Before it is ordered: after a restart in between, the node is woken again rather than forgotten.
            self.node_state(node.spec.name, "waking")
            self.waking.order(node.spec.name, node.spec.wake_s)
        elif node is not None:
            self.driver.power(node.spec.name, on=False)
