"""Attempts beyond what a node's processors can do take turns, for a moment: short calls are leased ahead of need."""

from __future__ import annotations

import asyncio
from collections import deque

TIMES = 2.0
"""Attempts begin at once while they ask together for no more than so many times the processors: one starts while
another ends, and policies that promise less than was asked for place more than fit."""
LONGEST_S = 0.05
"""Whoever was held back for so long begins anyhow: those before it are not short after all."""


class Turns:
    """Processors asked for by the attempts that run."""

    def __init__(self, processors: float) -> None:
        self._room = TIMES * processors
        self._taken = 0.0
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()

    async def take(self, cpus: float) -> None:
        """Wait for a turn, not for long."""
        # Behind those who wait already, whatever would fit: a small one must not overtake for ever.
        if self._queue or (self._taken and self._taken + cpus > self._room):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append((cpus, turn))
            timer = asyncio.get_running_loop().call_later(LONGEST_S, _begin, turn)
            try:
                await turn
            except asyncio.CancelledError:
                turn.cancel()
                raise
            finally:
                timer.cancel()
        self._taken += cpus

    def give_back(self, cpus: float) -> None:
        """An attempt is over; those whose turn it is now begin."""
        self._taken = max(0.0, self._taken - cpus)
        coming = self._taken
        while self._queue:
            asked, turn = self._queue[0]
            if not turn.done() and coming and coming + asked > self._room:
                return
            self._queue.popleft()
            # One that was let go by its timer has counted itself already, in `take`.
            coming += 0.0 if turn.done() else asked
            _begin(turn)


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
