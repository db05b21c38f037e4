"""The local driver: one agent in the server's own process, reached by calls, started again where it ends by a fault."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from wattflow.runtime.agent import Agent
from wattflow.runtime.aside import SetAside
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.transport import DirectTransport, Transport
from wattflow.store.objects import Objects

log = logging.getLogger(__name__)
FIRST_S, LONGEST_S = 0.5, 30.0
"""Waits before an agent is started again: doubled each time, begun anew after a life of twice the longest."""
STOP_S = 10.0
"""Longest wait for agents that were told to end; nothing of theirs outlives the process."""


class Keeper:
    """Keeps agents running until told to stop."""

    def __init__(self) -> None:
        self._running: list[asyncio.Task[None]] = []

    def keep(self, name: str, make: Callable[[], Agent], aside: SetAside) -> None:
        """Run an agent, and another one in its place whenever it ends; what ended it is put aside."""
        self._running.append(asyncio.create_task(_keep(name, make, aside), name=f"agent {name}"))

    async def stop(self) -> None:
        """End all of them; one that does not end in time is left behind."""
        for task in self._running:
            task.cancel()
        if self._running:
            # Not gathered without a limit: one agent that hangs must not keep the server from ending.
            _, late = await asyncio.wait(self._running, timeout=STOP_S)
            for task in late:
                log.error("%s does not end", task.get_name())


async def _keep(name: str, make: Callable[[], Agent], aside: SetAside) -> None:
    wait_s = FIRST_S
    while True:
        began_s = time.monotonic()
        try:
            agent = make()
            agent.boot = f"{name}.{agent.boot}"  # one lineage: the next one may take over at once
            await agent.run()
            log.warning("the agent of node %s ended", name)
        except Exception as error:
            aside.put("agent of node", name, error)
        # Only a long life resets the wait: an agent that fails at once would be restarted twice a second for ever.
        if time.monotonic() - began_s > 2 * LONGEST_S:
            wait_s = FIRST_S
        await asyncio.sleep(wait_s)
        wait_s = min(LONGEST_S, 2 * wait_s)


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
