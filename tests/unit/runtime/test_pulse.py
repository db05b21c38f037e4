"""The loop's pulse: what holds it up is told apart from a machine that is busy."""

from __future__ import annotations

import asyncio
import time

from wattflow.runtime.clock import Pulse


def test_a_callback_that_keeps_the_loop_is_seen() -> None:
    async def body() -> Pulse:
        pulse = Pulse()
        beating = asyncio.create_task(pulse.run())
        await asyncio.sleep(0.05)
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0.05)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        return pulse

    pulse = asyncio.run(body())
    assert pulse.held_s.longest_s >= 0.08
    assert pulse.late_s.longest_s >= pulse.held_s.longest_s
    pulse.forget()
    assert pulse.late_s.count == pulse.held_s.count == 0
