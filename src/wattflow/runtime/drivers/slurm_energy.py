"""Joules from Slurm's own accounting, where a site has it: an energy plugin (rapl, ipmi, pm_counters) and a database.

Slurm counts the joules of a job's node while the job ran, whoever else was there. A job is given its CPUs' share of
them; the band goes up to all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from wattflow.runtime import messages as m

log = logging.getLogger(__name__)
Run = Callable[..., Awaitable[tuple[int, str]]]
TRIES = 4
PAUSE_S = 1.0
"""The database hears of a job's end a little later than we do."""
COUNTER_ERROR = 0.02


class SlurmEnergy:
    """Asks `sacct`; a site without accounting is asked once.

    Args:
        run: Runs a command and returns its status and output.
    """

    def __init__(self, run: Run, pause_s: float = PAUSE_S) -> None:
        self._run, self._pause_s = run, pause_s
        self.there: bool | None = None

    async def of_job(self, job: str, fence: int, share: float) -> m.TaskEnergy | None:
        """Joules of a job that is over and had this share of its node's CPUs; None where Slurm does not know."""
        for _ in range(TRIES):
            if self.there is False:
                return None
            counted_j = await self._consumed_j(job)
            if counted_j is not None:
                own_j = counted_j * min(1.0, share)
                low_j, high_j = own_j * (1 - COUNTER_ERROR), counted_j * (1 + COUNTER_ERROR)
                return m.TaskEnergy(fence, m.Energy(own_j, low_j, high_j, "attributed", own_j))
            await asyncio.sleep(self._pause_s)
        return None

    async def _consumed_j(self, job: str) -> float | None:
        """Of the job's row and those of its steps the largest: Slurm 22.05 leaves the job's own empty where it has a
        batch step only, and steps that ran at the same time count the same node."""
        try:
            code, out = await self._run("sacct", "-n", "-P", "-j", job, "-o", "State,ConsumedEnergyRaw")
        except OSError:
            code, out = 127, "there is no sacct"
        if code != 0:
            log.info("no energy from Slurm's accounting: %s", out.strip()[:200])
            self.there = False
            return None
        rows = [row.partition("|")[::2] for row in out.split("\n") if row]
        joules = [float(told) for _, told in rows if told.strip().isdecimal()]
        if not joules or any(state.startswith(("RUNNING", "PENDING")) for state, _ in rows):
            return None
        self.there = True
        return max(joules) or None
