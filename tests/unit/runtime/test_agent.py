"""The agent of a node: what it holds it tells the end of."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.aside import Away, SetAside
from wattflow.runtime.drivers import local
from wattflow.runtime.executors.process import Finish
from wattflow.runtime.machine import this_node
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.transport import Denied, Outbox, Unreachable


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


class Quick(Broken):
    """Ends whatever it is given at once, as if it had used a processor for a while."""

    def __init__(self) -> None:
        self.machine_s = 1.0

    async def run(self, *_: Any) -> Finish:  # type: ignore[override]
        self.machine_s += 0.3
        return Finish("done", 0.0, 0.0, cpu_s=0.3)

    def use(self, _: int) -> None:
        return None

    def sample(self) -> None:
        return None

    def with_device_energy(self, joules: list[m.TaskEnergy]) -> list[m.TaskEnergy]:
        return joules


class Billed(Server):
    """Waits for the joules of what it leased."""

    def __init__(self, lease: m.Lease) -> None:
        super().__init__(lease)
        self.joules: list[m.TaskEnergy] = []
        self.windows: list[m.Window] = []
        self.billed = asyncio.Event()

    async def sync(self, sync: m.Sync) -> m.Orders:
        self.joules += sync.energy
        self.windows += sync.windows
        if self.joules:
            self.billed.set()
        return await super().sync(sync)


@pytest.mark.slow
def test_a_task_that_ends_at_once_after_the_agents_start_has_its_joules(tmp_path: Path) -> None:
    async def body() -> Billed:
        server, quick = Billed(lease()), Quick()
        node: Any = quick
        energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", machine=lambda: {"machine": quick.machine_s})
        agent = Agent(server, this_node("n", 1.0, 1 << 30), node, energy, node, tmp_path)
        await agent.start()
        await asyncio.wait_for(server.billed.wait(), 60)
        await agent.stop()
        return server

    server = asyncio.run(body())
    told = server.joules[0]
    assert told.fence == 7 and told.energy.energy_j > 0
    assert sum(window.tasks_j for window in server.windows) == pytest.approx(told.energy.energy_j)


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


@pytest.mark.slow
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


class Picky(Server):
    """Refuses what its wire could not carry, as msgspec and a strict server do."""

    def __init__(self, lease: m.Lease) -> None:
        super().__init__(lease)
        self.energies: list[m.TaskEnergy] = []

    async def sync(self, sync: m.Sync) -> m.Orders:
        m.pack(sync)
        if any(end.cpu_s > 1e12 for end in sync.ended):
            denied = Denied("422: Expected `float` <= 1e12 - at `$.ended[0].cpu_s`")
            denied.status = 422
            raise denied
        self.energies += sync.energy
        return await super().sync(sync)


def test_news_that_cannot_be_told_are_set_aside_and_the_rest_arrives(tmp_path: Path) -> None:
    """An end that the wire or the server refuses does not end the agent: a bare end stands for it."""

    async def body() -> None:
        lease = m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=m.Task(key="a", name="a"))
        server = Picky(lease)
        broken: Any = Broken()
        energy: Any = NoEnergy()
        agent = Agent(server, this_node("n"), broken, energy, broken, tmp_path)
        agent._tell_end(m.Ended(fence=1, outcome="failed", reason="a lone \udcff"))
        agent._tell_end(m.Ended(fence=2, outcome="done", cpu_s=1e300))
        agent._tell_end(m.Ended(fence=3, outcome="done"))
        agent._outbox.energy.append(m.TaskEnergy(3, m.Energy(1.0, 1.0, 1.0, "measured")))
        running = asyncio.create_task(agent.run())
        while {end.fence for end in server.ends} < {1, 2, 3}:
            await asyncio.sleep(0.01)
        assert not running.done()
        ends = {end.fence: end for end in server.ends}
        assert ends[3].outcome == "done" and len(server.energies) == 1
        for fence in (1, 2):
            assert ends[fence].outcome == "failed" and "could not be told" in str(ends[fence].reason)
        assert agent.aside.counts["news (ended) of"] == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 30))


def test_an_end_that_the_server_does_not_know_is_told_again(tmp_path: Path) -> None:
    async def body() -> None:
        lease = m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=m.Task(key="a", name="a"))
        server = Server(lease)
        broken: Any = Broken()
        energy: Any = NoEnergy()
        agent = Agent(server, this_node("n"), broken, energy, broken, tmp_path)
        running = asyncio.create_task(agent.run())
        while [end.fence for end in server.ends].count(7) < 3:  # the lease comes with every answer
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 30))


def test_a_fault_in_sampling_does_not_end_the_agent(tmp_path: Path) -> None:
    class Faulty(NoEnergy):
        def sample(self, *_: Any) -> tuple[list[m.TaskEnergy], None]:
            raise OSError(24, "Too many open files")

    async def body() -> None:
        lease = m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=m.Task(key="a", name="a"))
        server = Server(lease)
        broken: Any = Broken()
        energy: Any = Faulty()
        broken.sample = lambda: None
        agent = Agent(server, this_node("n"), broken, energy, broken, tmp_path)
        running = asyncio.create_task(agent.run())
        while agent.aside.counts["turn of the agent's loop"] < 2:
            await asyncio.sleep(0.01)
        assert not running.done() and server.ends
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 30))


def test_a_report_is_no_larger_than_the_server_takes() -> None:
    box = Outbox()
    box.ended = [m.Ended(fence=i, outcome="done", result=m.Blob(data=bytes(1 << 16))) for i in range(1000)]
    sizes = []
    while not box.empty:
        sizes.append(len(m.pack(box.take().ended)))
    assert max(sizes) < 32 << 20 and sum(sizes) > 1000 << 16


def test_an_agent_that_ends_by_a_fault_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FIRST_S", 0.01)

    class Mortal:
        boot = "0"

        async def run(self) -> None:
            lives.append(1)
            if len(lives) < 3:
                raise RuntimeError("a fault of our own")
            await asyncio.sleep(60)

    lives: list[int] = []

    async def body() -> None:
        keeper, aside = local.Keeper(), SetAside()
        made: Any = Mortal
        keeper.keep("n", made, aside)
        while len(lives) < 3:
            await asyncio.sleep(0.01)
        await keeper.stop()
        assert aside.counts == {"agent of node": 2}

    asyncio.run(asyncio.wait_for(body(), 30))


class Slow(Broken):
    """Runs until it is told to end; may be asked to stop by the fence that it was begun with."""

    def __init__(self) -> None:
        self.over, self.stopped = asyncio.Event(), list[int]()

    def sample(self) -> None:
        return None

    def use(self, _: int) -> None:
        return None

    def stop(self, fence: int) -> None:
        self.stopped.append(fence)

    def with_device_energy(self, joules: Any) -> Any:
        return joules

    async def run(self, lease: m.Lease, work: Any, _: object) -> Any:
        work.on_log(b"before")
        await self.over.wait()
        work.on_log(b"after")
        return Finish("done", 1.0, 2.0)


class Energetic(NoEnergy):
    def __init__(self) -> None:
        self.joules: list[m.TaskEnergy] = []

    def sample(self, *_: Any) -> tuple[list[m.TaskEnergy], None]:
        told, self.joules = self.joules, []
        return told, None

    def ended(self, fence: int, cpu_s: float) -> None:
        self.joules = [m.TaskEnergy(fence, m.Energy(1.0, 1.0, 1.0, "measured"))]


def test_an_agent_goes_on_with_what_it_runs_under_another_fence(tmp_path: Path) -> None:
    async def body() -> None:
        spec = m.Task(key="a", name="a", command=["true"])
        first = m.Lease(fence=7, task=1, number=1, node="n", workflow="w", spec=spec)
        server, slow, energy = Picky(first), Slow(), Energetic()
        logged: list[tuple[int, int, bytes]] = []

        async def log(fence: int, offset: int, data: bytes) -> None:
            logged.append((fence, offset, data))

        server.log = log  # type: ignore[method-assign]
        runs: Any = slow
        meter: Any = energy
        agent = Agent(server, this_node("n"), runs, meter, runs, tmp_path)
        running = asyncio.create_task(agent.run())
        while server.held != [7] or not logged:
            await asyncio.sleep(0.01)
        server.lease = msgspec.structs.replace(first, fence=8, number=2, adopts=7)
        while server.held != [8]:
            await asyncio.sleep(0.01)
        agent._stop(8)
        assert slow.stopped == [7, 7]  # as executor and as devices
        slow.over.set()
        while not server.energies:
            await asyncio.sleep(0.01)
        assert {end.fence for end in server.ends} == {8} and server.energies[0].fence == 8
        assert logged == [(7, 0, b"before"), (8, 0, b"after")]
        server.lease = msgspec.structs.replace(first, fence=9, number=3, adopts=8)  # its end did not arrive in time
        while {end.fence for end in server.ends} != {8, 9}:
            await asyncio.sleep(0.01)
        assert server.ends[-1].outcome == "done"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 30))
