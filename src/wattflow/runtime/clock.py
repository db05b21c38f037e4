"""A clock that looks like the wall's and never goes back, and how long the event loop is held up.

The lag is that of a timer which should go off a hundred times a second. It is late when something keeps the loop (a
callback, the collector, another thread with the GIL), but also when the machine gives this thread no processor. The
kernel counts the latter apart (``schedstat``), so both are told.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from wattflow.store.durations import Durations


class Clock:
    """Wall time at the start, carried on by the monotonic clock: steps of the wall clock do not touch it.

    Args:
        at_least_s: The last time that was told before a restart.
    """

    def __init__(self, at_least_s: float = 0.0) -> None:
        # Never before the last time that was told: the engine's journal has steps at it, and its clock cannot go
        # back.
        self._offset_s = max(time.time(), at_least_s) - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset_s + time.monotonic()

    def of_monotonic(self, monotonic_s: float) -> float:
        """The same moment on this clock."""
        return self._offset_s + monotonic_s

    def sane(self, time_s: float, at_least_s: float) -> float:
        """Another machine's time, kept within what can be: not before its cause, not in the future."""
        # An agent's clock may be wrong by hours; an attempt that ends before it begins would spoil every mean.
        return max(at_least_s, min(time_s, self.now()))


EVERY_S = 0.01
SCHEDSTAT = Path("/proc/thread-self/schedstat")


class Pulse:
    """Beats in the loop that runs it.

    Attributes:
        late_s: How late the beats were by the clock, since the start.
        held_s: The same without the time in which the thread could run and had no processor.
    """

    def __init__(self) -> None:
        self.late_s, self.held_s = Durations(), Durations()

    async def run(self) -> None:
        """Beat until cancelled."""
        loop = asyncio.get_running_loop()
        file = _opened()
        try:
            while True:
                due_s, starved_s = loop.time() + EVERY_S, _starved_s(file)
                await asyncio.sleep(EVERY_S)
                late_s = max(0.0, loop.time() - due_s)
                self.late_s.add(late_s)
                self.held_s.add(max(0.0, late_s - (_starved_s(file) - starved_s)))
        finally:
            if file is not None:
                os.close(file)

    def forget(self) -> None:
        """Begin anew: what was measured so far is of no interest."""
        self.late_s.clear()
        self.held_s.clear()


def _opened() -> int | None:
    try:
        return os.open(SCHEDSTAT, os.O_RDONLY)
    except OSError:
        return None


def _starved_s(file: int | None) -> float:
    """Seconds so far in which this thread waited for a processor; 0 where the kernel does not tell."""
    return int(os.pread(file, 128, 0).split()[1]) / 1e9 if file is not None else 0.0
