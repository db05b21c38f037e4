"""Agents that pull: only a call of theirs is a sign of life."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.aside import SetAside
from wattflow.runtime.drivers.agents import AgentsDriver, NameTaken


class Service:
    """A sink whose clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.aside = SetAside()
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
        driver = AgentsDriver(lost_after_s=1.0)
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        call = m.Sync(node="n", boot="boot", wait_s=1.0)
        await driver.report(call)
        waiting = asyncio.create_task(driver.orders(call))
        while driver._agents["n"].silent_s < 0.2:
            await asyncio.sleep(0.01)
        silent_s = driver._agents["n"].silent_s
        driver._agents["n"].tell()  # news that bring no order
        for _ in range(10):  # the turn that waits looks for orders, and finds none
            await asyncio.sleep(0)
        assert driver._agents["n"].silent_s >= silent_s
        await asyncio.wait_for(sink.gone_now.wait(), 60)
        assert sink.lost == ["n"]
        assert (await waiting) in (m.Orders(), m.Orders(announce=True))
        await driver.stop()

    asyncio.run(body())


@pytest.mark.slow
def test_the_servers_own_pause_is_not_taken_for_the_agents_silence() -> None:
    """The loop does not run for several times what makes an agent lost; its call lies unread meanwhile."""

    async def body() -> None:
        sink: Any = Service()
        driver = AgentsDriver(lost_after_s=1.0)
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        for _ in range(2):
            await asyncio.sleep(0.1)
            time.sleep(2.0)  # as SIGSTOP, a migration or a held loop does
            await asyncio.sleep(0)
            await driver.report(m.Sync(node="n", boot="boot"))
        assert sink.lost == []
        await asyncio.wait_for(sink.gone_now.wait(), 10)  # silence while the server listens
        await driver.stop()

    asyncio.run(body())


def test_two_machines_of_one_name_are_told_apart() -> None:
    async def body() -> None:
        sink: Any = Service()
        driver = AgentsDriver(lost_after_s=0.3)
        await driver.start(sink)
        node = m.Node(name="n", cpus=1.0, memory_bytes=1)
        driver.announce(node, "first.1")
        with pytest.raises(NameTaken, match="give this one another --name"):
            driver.announce(node, "second.1")
        assert sink.lost == [] and driver.knows("n", "first.1")
        driver.announce(node, "first.2")  # the same folder's next agent: the one before is dead
        assert sink.lost == ["n"] and driver.knows("n", "first.2")
        sink.gone_now.clear()
        await asyncio.wait_for(sink.gone_now.wait(), 10)
        driver.announce(node, "second.1")  # the first is dead: another machine may stand for it
        assert driver.knows("n", "second.1")
        await driver.stop()

    asyncio.run(body())


def test_an_agent_that_was_only_silent_is_told_to_be_back() -> None:
    async def body() -> None:
        sink: Any = Service()
        back: list[tuple[str, tuple[int, ...]]] = []
        sink.returned = lambda node, fences: back.append((node, tuple(fences)))
        driver = AgentsDriver(lost_after_s=0.2)
        await driver.start(sink)
        node = m.Node(name="n", cpus=1.0, memory_bytes=1)
        driver.announce(node, "one.1")
        spec = m.Task(key="a", name="a", command=["true"])
        driver.launch([m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=spec)])
        await asyncio.wait_for(sink.gone_now.wait(), 10)
        driver.announce(node, "one.1")
        assert back == [("n", (7,))]
        assert await driver.orders(m.Sync(node="n", boot="one.1", holding=[7])) == m.Orders()  # no orphan yet
        driver.announce(node, "one.2")  # another life runs nothing of it
        assert back == [("n", (7,))]
        await driver.stop()

    asyncio.run(body())


def test_one_bad_report_does_not_keep_the_others_from_being_heard() -> None:
    async def body() -> None:
        sink: Any = Service()
        heard: list[int] = []

        def ended(end: m.Ended) -> None:
            if end.fence == 1:
                raise KeyError("what nobody foresaw")
            heard.append(end.fence)

        sink.ended = ended
        driver = AgentsDriver()
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        spec = m.Task(key="k", name="k", command=["true"])
        driver.launch([m.Lease(fence=f, task=1, number=1, node="n", workflow="w", spec=spec) for f in (1, 2)])
        await driver.report(m.Sync(node="n", boot="boot", ended=[m.Ended(fence=f, outcome="done") for f in (1, 2)]))
        assert heard == [2] and sink.aside.counts == {"news of node": 1}
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


def test_a_level_that_a_given_up_turn_has_taken_is_told_again() -> None:
    """A slow server answers turns that its agent waits for no more."""

    async def body() -> None:
        sink: Any = Service()
        driver = AgentsDriver()
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "boot")
        given_up = asyncio.create_task(driver.orders(m.Sync(node="n", boot="boot", wait_s=5.0)))
        await asyncio.sleep(0)
        low, full = m.Level("clock_mhz", 1000.0), m.Level("clock_mhz")
        driver.level("n", low)
        assert (await asyncio.wait_for(given_up, 10)).levels == [low]
        told: list[m.Level] = []
        for _ in range(8):
            told += (await driver.orders(m.Sync(node="n", boot="boot"))).levels
            sink.now_s += 1.0
        assert told == [low, low], "a few times, not for ever"
        driver.level("n", low)
        driver.level("n", full)
        assert (await driver.orders(m.Sync(node="n", boot="boot"))).levels == [full], "the later counts"
        await driver.stop()

    asyncio.run(body())
