"""One round of deciding: however much it places, the loop gets its turn again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from wattflow.kube import scheduler_process, settings
from wattflow.kube.decider_port import Chosen
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.sleeping import MAY_SLEEP
from wattflow.live import Engine
from wattflow.live.shielding import Shielding
from wattflow.policy import registry
from wattflow.policy.base import Policy

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


def test_a_node_that_may_not_sleep_is_not_decided_about_without_a_pause() -> None:
    """A policy that lets nodes sleep at once, and an operator who keeps one on: nobody else got a turn."""
    text = """
policy = "least-energy:sleep=0"
[lease]
leader_elect = false
[energy]
profiles = false
default_profile = "ccf:xeon-6338n-xr11"
[workflows]
argo = false
[sleep]
hook = "/bin/true"
min_on = 1
"""

    async def run() -> int:
        scheduler, rounds = scheduler_process.make(Patches(), settings.parse(text)), 0
        step = scheduler.decider.step

        def counted(now_s: float) -> Chosen:
            nonlocal rounds
            rounds += 1
            if rounds > 500:
                raise AssertionError("the loop is never left")
            return step(now_s)

        scheduler.decider.step = counted  # type: ignore[method-assign]
        scheduler._on_node("ADDED", node("n", {MAY_SLEEP: "true"}))
        deciding = asyncio.create_task(scheduler._decide_forever())
        await asyncio.sleep(0.3)
        deciding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await deciding
        return rounds

    assert asyncio.run(run()) <= 5


def test_a_shield_is_asked_when_a_round_is_over_and_what_it_chooses_decides() -> None:
    text = 'policy = "fifo"\n[lease]\nleader_elect = false\n[energy]\nprofiles = false\n[workflows]\nargo = false'

    class Looking(Shielding):
        looks = 0

        def consider(self, engine: Engine, now_s: float) -> Policy | None:
            self.looks += 1
            return registry.load("sjf") if self.looks == 1 else None

    async def run() -> tuple[int, str]:
        scheduler = scheduler_process.make(Patches(), settings.parse(text))
        decider = scheduler.decider
        assert isinstance(decider, EngineDecider)
        decider.rehearsing = shield = Looking("wattflow")
        deciding = asyncio.create_task(scheduler._decide_forever())
        await asyncio.sleep(0.3)
        deciding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await deciding
        return shield.looks, decider.engine.policy.name

    looks, policy = asyncio.run(run())
    assert looks >= 2 and policy == "sjf", "the next round came at once"
