"""How long the event loop is held up: a timer that should go off a hundred times a second, and how late it does.

A timer is late when something keeps the loop (a callback, the collector, another thread with the interpreter's lock),
but also when the machine gives this thread no processor. The kernel counts the latter apart (``schedstat``), so both
are told: late by the clock, and late by this process's own doing.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from wattflow.store.durations import Durations

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
