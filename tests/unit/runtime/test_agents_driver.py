"""Agents that pull: only a call of theirs is a sign of life."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.aside import Aside
from wattflow.runtime.drivers.agents import AgentsDriver


class Service:
    """A sink whose clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.aside = Aside()
        self.lost: list[str] = []
        self.gone_now = asyncio.Event()

    def now(self) -> float:
        return self.now_s

    def announce(self, node: m.Node) -> None:
        return None

    def gone(self, node: str, reason: str) -> None:
        self.lost.append(node)
        self.gone_now.set()


def test_news_for_a_dead_agent_do_not_keep_it_alive() -> None:
    """A lease that comes for an agent which died while its call waited here says nothing about the agent."""

    async def body() -> None:
        sink: Any = Service()
        driver = AgentsDriver(lost_after_s=3.0)
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        call = m.Sync(node="n", boot="boot", wait_s=1.0)
        await driver.report(call)
        waiting = asyncio.create_task(driver.orders(call))
        await asyncio.sleep(0)
        sink.now_s += 0.9
        driver.cancel([])
        driver._agents["n"].tell()  # news that bring no order
        await asyncio.sleep(0)
        sink.now_s += 2.2
        await asyncio.wait_for(sink.gone_now.wait(), 10)
        assert sink.lost == ["n"] and (await waiting).announce
        await driver.stop()

    asyncio.run(body())


def test_a_long_wait_is_answered_before_the_agent_would_be_given_up() -> None:
    async def body() -> None:
        sink: Any = Service()
        driver = AgentsDriver(lost_after_s=0.2)
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        call = m.Sync(node="n", boot="boot", wait_s=30.0)
        await driver.report(call)
        assert await asyncio.wait_for(driver.orders(call), 10) == m.Orders()
        assert sink.lost == []
        await driver.stop()

    asyncio.run(body())


def test_devices_that_the_engine_does_not_know_are_refused_before_it_hears_of_them() -> None:
    with pytest.raises(msgspec.ValidationError, match="kind"):
        msgspec.convert({"kind": "abacus"}, m.Device)
    assert msgspec.convert({"kind": "fpga"}, m.Device).slots == 1
