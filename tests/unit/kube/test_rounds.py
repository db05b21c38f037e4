"""One round of deciding: however much it places, the loop gets its turn again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from wattflow.kube import scheduler_process, settings

from .making import node, pod
from .test_sleeping import Patches

pytestmark = pytest.mark.slow


def test_placements_that_take_long_are_put_back_and_all_come_in_the_end() -> None:
    """A thousand last looks in one round kept the lease from being renewed, and the scheduler ended."""
    text = 'policy = "fifo"\n[lease]\nleader_elect = false\n[energy]\nprofiles = false\n[workflows]\nargo = false'

    async def run() -> None:
        scheduler = scheduler_process.make(Patches(), settings.parse(text))
        ticks = itertools.count()
        scheduler.clock = lambda: next(ticks) * 0.1  # each placement takes a while
        scheduler._on_node("ADDED", node("n", allocatable={"cpu": "32"}))
        for number in range(20):
            scheduler._on_pod("ADDED", pod(f"p{number}", schedulerName="wattflow", cpu="1"))
        began_s = scheduler.clock()
        again_s = scheduler.decide()
        assert 0 < len(scheduler.book.records) < 20 and began_s <= again_s < scheduler.clock(), "at once, with the rest"
        for _ in range(20):
            scheduler.decide()
        assert len(scheduler.book.records) == 20 and not scheduler.book.waiting

    asyncio.run(run())
