"""Short calls are leased ahead of need, and wait on their node for their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.executors import limits
from wattflow.runtime.learned_facts import AHEAD, ENOUGH_CALLS, SHORT_S, Ahead

from .test_recovery import NODE, closed, opened

SHORT = "a" * 64


def call(key: str = "k", **about: object) -> m.Task:
    return m.Task(key=key, name=key, function=SHORT, call=m.Blob(data=b""), python="3.11", **about)  # type: ignore[arg-type]


def end(seconds: float, fence: int = 1) -> m.Ended:
    return m.Ended(fence=fence, outcome="done", started_s=10.0, ended_s=10.0 + seconds)


def known(*seconds: float) -> Ahead:
    made = Ahead(held_back=True)
    for one in seconds:
        made.ended(call(), end(one))
    return made


def test_only_functions_whose_calls_were_all_short_lately_are_counted_by_a_part() -> None:
    short = [SHORT_S / 2] * ENOUGH_CALLS
    assert known(*short).counted(call())[0].cpus == 1 / AHEAD
    assert known(*short[1:]).counted(call())[0].cpus == 1.0
    assert known(*short, 1.0, *short).counted(call())[0].cpus == 1.0
    assert known(*short, 1.0, *(short * 8)).counted(call())[0].cpus == 1 / AHEAD
    assert known(*short).counted(m.Task(key="k", name="k", function="b" * 64, call=m.Blob()))[0].cpus == 1.0


@pytest.mark.parametrize("variant", [m.Variant(cpus=2.0), m.Variant(gpu=0.5), m.Variant(fpga="fir")])
def test_what_asks_for_more_than_a_processor_or_for_a_device_is_counted_whole(variant: m.Variant) -> None:
    made = known(*[0.001] * ENOUGH_CALLS)
    assert made.counted(call(variants=[m.Variant(), variant])) == [m.Variant(), variant]
    assert made.counted(call(isolate=False))[0].cpus == 1.0
    made.held_back = False
    assert made.counted(call())[0].cpus == 1.0


def test_a_node_has_the_next_short_calls_at_hand(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.learning.ahead.held_back = True
        service.announce(NODE)
        for round_ in range(2):
            tasks = [call(f"{round_}-{n}") for n in range(40)]
            await service.submit(m.Submission(workflow="w", tasks=tasks), "me")
            assert len(driver.leases) == (2, 2 * AHEAD)[round_]
            while driver.leases:
                told, driver.leases[:] = list(driver.leases), []
                for lease in told:
                    service.ended(end(0.001, lease.fence))
                await service.stored()
        await closed(service, writer)

    asyncio.run(body())


def test_attempts_beyond_the_processors_wait_for_their_turn_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_S", 3600.0)

    async def body() -> None:
        room, begun = limits.ProcessorDemand(1), []  # type: limits.ProcessorDemand, list[int]

        async def attempt(number: int) -> None:
            await room.take(1.0)
            begun.append(number)

        waiting = [asyncio.create_task(attempt(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert begun == [0, 1]
        waiting[2].cancel()
        await asyncio.gather(waiting[2], return_exceptions=True)
        for count in (3, 4):
            room.give_back(1.0)
            await waiting[count]
        assert begun == [0, 1, 3, 4]

    asyncio.run(body())


def test_whoever_waited_for_long_begins_anyhow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_S", 0.0)

    async def body() -> None:
        room = limits.ProcessorDemand(1)
        for _ in range(5):
            await room.take(1.0)
        for _ in range(5):
            room.give_back(1.0)
        await room.take(64.0)  # more than there are: alone it begins at once

    asyncio.run(body())
