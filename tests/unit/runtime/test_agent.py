"""The agent of a node: what it holds it tells the end of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.machine import this_node


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


def test_a_fault_inside_the_agent_ends_the_attempt_instead_of_holding_it_for_ever(tmp_path: Path) -> None:
    spec = m.Task(key="t", name="t", command=["true"])
    lease = m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=spec, variant=0, device=-1, share=0.0,
                    inputs=[])  # fmt: skip

    async def main() -> None:
        server = Server(lease)
        broken: Any = Broken()
        energy: Any = NoEnergy()
        agent = Agent(server, this_node("n", 1.0, 1 << 30), broken, energy, broken, tmp_path)
        await agent.start()
        await asyncio.wait_for(server.told.wait(), 30)
        await agent.stop()
        assert [(end.fence, end.outcome) for end in server.ends] == [(7, "refused")]
        assert "a fault of our own" in str(server.ends[0].reason)

    asyncio.run(main())
