"""Cancelling of tasks, a piece at a time: a workflow of thousands must not hold up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from wattflow.live import CANCEL
from wattflow.runtime.decider import Decider
from wattflow.runtime.records import TaskRecord

PIECE = 16
"""Tasks that are cancelled before others have a turn of the loop."""


class Cancelling:
    """Asks the engine to cancel.

    Args:
        soon: Plans a turn.
    """

    def __init__(self, decider: Decider, soon: Callable[[], None]) -> None:
        self._decider, self._soon = decider, soon
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, tasks: Sequence[TaskRecord], reason: str) -> None:
        """Cancel what has not started of these, while the caller goes on."""
        begun = asyncio.create_task(self.cancel(tasks, reason))
        # The loop keeps only weak references to its tasks: one that nobody holds may be collected half-way.
        self._under_way.add(begun)
        begun.add_done_callback(self._under_way.discard)

    async def cancel(self, tasks: Sequence[TaskRecord], reason: str | None = None) -> None:
        """Cancel what is still open of these; with a reason, only what has not started."""
        for number, task in enumerate(tasks, start=1):
            # Looked at again: between two pieces a task may have begun, or ended.
            if task.state == "waiting" or (task.state == "running" and reason is None):
                task.reason = reason or task.reason
                self._decider.put(CANCEL, task.engine)
            if number % PIECE == 0:
                self._soon()
                await asyncio.sleep(0)
        self._soon()
