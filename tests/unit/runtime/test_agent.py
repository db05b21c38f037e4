"""The agent of a node: what it holds it tells the end of."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.away import Away
from wattflow.runtime.machine import this_node
from wattflow.runtime.transport import Unreachable


class Server:
    """Hands out one lease and keeps what it is told."""

    def __init__(self, lease: m.Lease) -> None:
        self.lease, self.told = lease, asyncio.Event()
        self.ends: list[m.Ended] = []
        self.held: list[int] = []

    async def announce(self, node: m.Node, boot: str) -> None:
        return None

    async def sync(self, sync: m.Sync) -> m.Orders:
        self.ends += sync.ended
        self.held = list(sync.holding)
        if self.ends and not self.held:
            self.told.set()
        await asyncio.sleep(0.005)
        return m.Orders(leases=[self.lease])

    async def log(self, fence: int, offset: int, data: bytes) -> None:
        return None

    async def get(self, name: str) -> bytes:
        return b""

    async def put(self, data: bytes) -> str:
        return ""

    async def close(self) -> None:
        return None


class Broken:
    """Stands for executors and devices that fail in a way that nobody foresaw."""

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def cpu_s(self) -> dict[int, float]:
        return {}

    def busy(self) -> list[float]:
        return []

    async def run(self, *_: Any) -> None:
        raise RuntimeError("a fault of our own")


class NoEnergy:
    watts = None
    provenance = "modelled"

    def sample(self, *_: Any) -> tuple[list[m.TaskEnergy], None]:
        return [], None

    def close(self) -> None:
        return None


def lease() -> m.Lease:
    spec = m.Task(key="t", name="t", command=["true"])
    return m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=spec, variant=0, device=-1, share=0.0,
                   inputs=[])  # fmt: skip


async def until_told(server: Server, folder: Path) -> None:
    """An agent that breaks at whatever it starts, until the server has heard of an end."""
    broken: Any = Broken()
    energy: Any = NoEnergy()
    agent = Agent(server, this_node("n", 1.0, 1 << 30), broken, energy, broken, folder)
    await agent.start()
    await asyncio.wait_for(server.told.wait(), 30)
    await agent.stop()


def test_a_fault_inside_the_agent_ends_the_attempt_instead_of_holding_it_for_ever(tmp_path: Path) -> None:
    server = Server(lease())
    asyncio.run(until_told(server, tmp_path))
    assert [(end.fence, end.outcome) for end in server.ends] == [(7, "refused")]
    assert "a fault of our own" in str(server.ends[0].reason)


class Absent(Server):
    """Cannot be reached a few times, at the announcement and later."""

    def __init__(self, lease: m.Lease) -> None:
        super().__init__(lease)
        self.failing = {"announce": 2, "sync": 3}

    def _try(self, call: str) -> None:
        self.failing[call] -= 1
        if self.failing[call] >= 0:
            raise Unreachable(f"no {call}")

    async def announce(self, node: m.Node, boot: str) -> None:
        self._try("announce")

    async def sync(self, sync: m.Sync) -> m.Orders:
        self._try("sync")
        return await super().sync(sync)


def test_a_server_that_is_away_is_told_once_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "wattflow.runtime.agent"):
        asyncio.run(until_told(Absent(lease()), tmp_path))
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.split(" after")[0] for line in told] == [
        "no announce; trying again", "the server is back", "no sync; trying again", "the server is back"
    ]  # fmt: skip


def test_what_stays_away_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([*(number / 5 for number in range(901)), 180.2])
    away = Away(logging.getLogger("wattflow.away"), "the server", lambda: next(times))
    away.answered()  # nothing to tell
    for _ in range(901):
        away.failed(Unreachable("no answer"))
    away.answered()
    away.answered()
    assert caplog.messages == ["no answer; trying again"] * 4 + ["the server is back after 180 s"]
