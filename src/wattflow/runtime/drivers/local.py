"""The local driver: one agent in the server's own process, reached by calls instead of HTTP."""

from __future__ import annotations

from collections.abc import Callable

from wattflow.runtime.agent import Agent
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.drivers.keeping import Keeper
from wattflow.runtime.transport import DirectTransport, Transport
from wattflow.store.objects import Objects


class LocalDriver(AgentsDriver):
    """Runs everything on this machine.

    Args:
        make: Puts the agent together, given how it reaches the server.
    """

    name = "local"

    def __init__(self, objects: Objects, make: Callable[[Transport], Agent], lost_after_s: float = 30.0) -> None:
        super().__init__(lost_after_s)
        self._objects, self._make = objects, make
        self._keeper = Keeper()

    async def start(self, sink: Sink) -> None:
        """Start the agent; it announces its node. One that ends by a fault is started again."""
        await super().start(sink)
        self._keeper.keep("local", lambda: self._make(DirectTransport(self, self._objects)), sink.aside)

    async def stop(self) -> None:
        """End the agent and everything that it runs."""
        await super().stop()
        await self._keeper.stop()
