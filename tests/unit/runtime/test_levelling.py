"""An agent sets clocks and limits that the server orders, and gives them back: on played files, with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from research.played_sysfs import FULL_KHZ, FULL_UW, ceiling_khz, play_sysfs
from wattflow.levels import sysfs
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob
from wattflow.live import Act
from wattflow.live.protocol import Action, Placement
from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.actions import Actions
from wattflow.runtime.agent import Agent
from wattflow.runtime.drivers.slurm import level_flags
from wattflow.runtime.executors.process import Finish
from wattflow.runtime.learned_facts import Learning
from wattflow.runtime.levelling import SILENT_S, TRY_AGAIN_S, AgentLevels
from wattflow.runtime.records import AttemptRecord, Nodes, TaskRecord, WorkflowRecord

from .test_agent import Broken, NoEnergy, Server

NODE = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30, devices=[m.Device(kind="gpu")])


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return play_sysfs(tmp_path / "sys", packages=2)


def on(tree: Path, work: Callable[[AgentLevels], Coroutine[Any, Any, None]], clock: Clock | None = None) -> None:
    """Do something with the levels of an agent on a played tree; everything is as before at the end."""

    async def main() -> None:
        holder = Holder([sysfs.cpufreq(tree), sysfs.powercap(tree)], tree.parent / "notes", watched=False)
        levels = AgentLevels(holder, clock or Clock())
        try:
            await work(levels)
        finally:
            levels.close()

    asyncio.run(main())
    assert ceiling_khz(tree) == FULL_KHZ and limit_uw(tree) == FULL_UW


def limit_uw(tree: Path, package: int = 0) -> int:
    return int((tree / f"class/powercap/intel-rapl:{package}/constraint_0_power_limit_uw").read_text())


def lease(fence: int, level: m.Level | None = None, device: int = -1) -> m.Lease:
    task = m.Task(key="a", name="a", command=["true"])
    return m.Lease(fence=fence, task=1, number=0, node="n", workflow="w", spec=task, level=level, device=device)


def test_what_can_be_set_is_announced_and_read_as_frequencies(tree: Path) -> None:
    async def work(levels: AgentLevels) -> None:
        told = levels.describe(NODE)
        assert told.clocks_mhz[0] == 3600.0 and told.clocks_mhz[-1] == 1800.0 and told.caps
        assert told.devices[0].clocks_mhz == [], "no clock of a GPU can be set here"
        known = facts.node_of(told)
        assert len(known.frequencies) == 8 and known.frequencies[-1].speed == 0.5
        assert known.frequencies[-1].power == pytest.approx(0.5 * 1.125 / 2)

    on(tree, work)


def test_an_agent_without_levels_announces_none() -> None:
    told = AgentLevels().describe(NODE)
    assert told == NODE and len(facts.node_of(told).frequencies) == 1


def test_orders_for_the_node_stand_until_the_next(tree: Path) -> None:
    async def work(levels: AgentLevels) -> None:
        await levels.order(m.Level("clock_mhz", 2000.0))
        assert [ceiling_khz(tree, n) for n in (0, 1)] == [2_000_000] * 2
        await levels.order(m.Level("cap_w", 200.0))
        assert [limit_uw(tree, n) for n in (0, 1)] == [100_000_000] * 2, "packages share the node's cap"
        await levels.order(m.Level("clock_mhz", 0.0))
        await levels.order(m.Level("cap_w", 1e6))
        assert ceiling_khz(tree) == FULL_KHZ and limit_uw(tree) == FULL_UW

    on(tree, work)


def test_attempts_that_share_a_device_have_the_highest_level_that_one_wants(tree: Path) -> None:
    async def work(levels: AgentLevels) -> None:
        async with levels.held(lease(1, m.Level("clock_mhz", 2000.0))):
            assert ceiling_khz(tree) == 2_000_000
            async with levels.held(lease(2, m.Level("clock_mhz", 2600.0))):
                assert ceiling_khz(tree) == 2_600_000
            assert ceiling_khz(tree) == 2_000_000
            with pytest.raises(RuntimeError):
                async with levels.held(lease(3, m.Level("clock_mhz", 2600.0))):
                    raise RuntimeError("the attempt fails")
            assert ceiling_khz(tree) == 2_000_000
        assert ceiling_khz(tree) == FULL_KHZ

    on(tree, work)


class Gpu:
    """A GPU whose limit is a number."""

    name = "played"
    limit_w: float = 700.0

    def knobs(self) -> list[Knob]:
        return [Knob("gpu-0", "cap_w", "played", 200.0, 700.0, 1.0, mine=True)]

    def read(self, knob: Knob) -> float | None:
        return self.limit_w

    def write(self, knob: Knob, value: float | None) -> None:
        self.limit_w = 700.0 if value is None else value

    def users(self, knob: Knob) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        """Nothing to close."""


def test_a_device_has_its_own_level_and_one_that_wants_none_has_full_clock(tmp_path: Path) -> None:
    async def main() -> None:
        gpu = Gpu()
        levels = AgentLevels(Holder([gpu], tmp_path, watched=False))
        async with levels.held(lease(1, m.Level("cap_w", 400.0, 0), device=0)):
            assert gpu.limit_w == 400.0
            async with levels.held(lease(2, device=0)):
                assert gpu.limit_w == 700.0
            assert gpu.limit_w == 400.0
        assert gpu.limit_w == 700.0
        levels.close()

    asyncio.run(main())


def test_a_level_that_is_refused_is_full_clock_and_announced_no_more_for_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        tree = play_sysfs(tmp_path / "sys")
        holder = Holder([sysfs.cpufreq(tree)], tmp_path / "notes", watched=False)
        levels = AgentLevels(holder, clock)
        assert levels.describe(NODE).clocks_mhz
        (tree / "devices/system/cpu/cpufreq/policy1/scaling_max_freq").unlink()
        (tree / "devices/system/cpu/cpufreq/policy1/scaling_max_freq").mkdir()  # neither read nor written any more
        await levels.order(m.Level("clock_mhz", 2000.0))
        assert ceiling_khz(tree) == FULL_KHZ and levels.changed.is_set() and levels.describe(NODE).clocks_mhz == []
        levels.changed.clear()
        clock.now_s += TRY_AGAIN_S
        await levels.check()
        assert levels.changed.is_set() and levels.describe(NODE).clocks_mhz
        levels.close()

    asyncio.run(main())


def test_a_server_that_is_not_heard_of_has_no_say(tree: Path) -> None:
    clock = Clock()

    async def work(levels: AgentLevels) -> None:
        await levels.order(m.Level("clock_mhz", 2000.0))
        clock.now_s += SILENT_S
        levels.heard()
        clock.now_s += SILENT_S
        await levels.check()
        assert ceiling_khz(tree) == 2_000_000
        clock.now_s += 1.0
        await levels.check()
        assert ceiling_khz(tree) == FULL_KHZ

    on(tree, work, clock)


def test_what_somebody_else_changed_is_theirs_and_announced(tmp_path: Path) -> None:
    async def main() -> None:
        tree = play_sysfs(tmp_path / "sys", policies=1)
        levels = AgentLevels(Holder([sysfs.cpufreq(tree)], tmp_path / "notes", watched=False), Clock())
        await levels.order(m.Level("clock_mhz", 2000.0))
        (tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").write_text("1500000")
        await levels.check()
        assert ceiling_khz(tree) == 1_500_000 and levels.changed.is_set()
        assert levels.describe(NODE).clocks_mhz == []
        levels.close()
        assert ceiling_khz(tree) == 1_500_000

    asyncio.run(main())


class Asked:
    """A driver that keeps the orders."""

    def __init__(self) -> None:
        self.levels: list[tuple[str, m.Level]] = []

    def level(self, node: str, order: m.Level) -> None:
        self.levels.append((node, order))


def test_actions_of_the_engine_become_orders_where_a_node_can() -> None:
    driver, nodes = Asked(), Nodes()
    nodes.add(m.Node(name="can", cpus=1.0, memory_bytes=1, clocks_mhz=[3600.0, 2000.0], caps=True), 1)
    nodes.add(m.Node(name="cannot", cpus=1.0, memory_bytes=1), 2)
    sink: Any = SimpleNamespace(now=lambda: 0.0, gone=lambda *_: None)
    actions = Actions(None, driver, sink, nodes, {}, None, lambda: None, lambda *_: None)  # type: ignore[arg-type]
    for who in (1, 2, 3):
        for kind, value in ((Act.FREQUENCY, 1), (Act.FREQUENCY, 0), (Act.FREQUENCY, 7), (Act.CAP, 150)):
            actions.do(Action(kind, who, value))
    assert driver.levels == [
        ("can", m.Level("clock_mhz", 2000.0)), ("can", m.Level("clock_mhz", 0.0)), ("can", m.Level("cap_w", 150.0)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "flags"),
    [
        (None, []),
        (m.Level("cap_w", 100.0), []),
        (m.Level("clock_mhz", 0.0), []),
        (m.Level("clock_mhz", 2400.0), ["--cpu-freq=2400000"]),
        (m.Level("clock_mhz", 1305.0, 0), ["--gpu-freq=1305"]),
    ],
)
def test_slurm_is_told_in_its_own_words(level: m.Level | None, flags: list[str]) -> None:
    assert level_flags(level) == flags


class Playing(Server):
    """Orders a cap for the node and a level for its one lease; keeps what is announced."""

    def __init__(self, lease: m.Lease) -> None:
        super().__init__(lease)
        self.announced: list[m.Node] = []

    async def announce(self, node: m.Node, boot: str) -> None:
        self.announced.append(node)

    async def sync(self, sync: m.Sync) -> m.Orders:
        orders = await super().sync(sync)
        return m.Orders(leases=orders.leases, levels=[m.Level("cap_w", 200.0)])


class Reading(Broken):
    """Stands for devices: what runs on them reads the clock and the limit that it has."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.seen = tree, list[tuple[int, int]]()

    async def run(self, *_: Any) -> Finish:  # type: ignore[override]
        self.seen.append((ceiling_khz(self.tree), limit_uw(self.tree)))
        return Finish("done", 0.0, 0.0)

    def use(self, fence: int) -> None:
        return None


def test_an_agent_carries_out_levels_of_node_and_attempt_and_leaves_none_behind(tree: Path) -> None:
    async def main() -> tuple[Playing, Reading]:
        server, devices = Playing(lease(7, m.Level("clock_mhz", 2000.0))), Reading(tree)
        energy, executor = NoEnergy(), Broken()
        energy.ended = lambda *_: None  # type: ignore[attr-defined]
        agent = Agent(server, NODE, executor, energy, devices, tree.parent / "work")  # type: ignore[arg-type]
        holder = Holder([sysfs.cpufreq(tree), sysfs.powercap(tree)], tree.parent / "notes", watched=False)
        agent.levels = AgentLevels(holder)
        await agent.start()
        await asyncio.wait_for(server.told.wait(), 60)
        await agent.stop()
        return server, devices

    server, devices = asyncio.run(main())
    assert server.announced[0].caps and server.announced[0].clocks_mhz
    assert devices.seen == [(2_000_000, 100_000_000)] and server.ends[0].outcome == "done"
    assert ceiling_khz(tree) == FULL_KHZ and limit_uw(tree) == FULL_UW


def test_an_attempt_at_a_lower_clock_teaches_no_runtime() -> None:
    flow = WorkflowRecord("w", "w", "o", 1, {}, 0.0)
    task = TaskRecord(1, flow, m.Task(key="a", name="a", function_name="f", command=["true"]), 1, 0.0, 0.0)
    end = m.Ended(fence=1, outcome="done", started_s=10.0, ended_s=15.0)
    learning = Learning(None)  # type: ignore[arg-type]
    node = m.Node(name="n", cpus=1.0, memory_bytes=1, clocks_mhz=[3600.0, 2000.0])
    for frequency, known_s in ((1, None), (0, 5.0)):
        attempt = AttemptRecord(1, 1, task, 1, "n", 0.0, lease(1))
        attempt.slow_down(Placement(1, 1, 1, 1, 0, 0, 0, 0, frequency, 1.0), node)
        learning.finished(attempt, end, NODE)
        assert learning.estimates.runtime_s("f") == (known_s and pytest.approx(known_s))


def test_the_level_of_a_device_becomes_the_clock_of_its_lease() -> None:
    flow = WorkflowRecord("w", "w", "o", 1, {}, 0.0)
    task = TaskRecord(1, flow, m.Task(key="a", name="a", function_name="f", command=["true"]), 1, 0.0, 0.0)
    cards = [m.Device(kind="gpu"), m.Device(kind="gpu", clocks_mhz=[1980.0, 1500.0, 1300.0])]
    node = m.Node(name="n", cpus=1.0, memory_bytes=1, clocks_mhz=[3600.0, 2000.0], devices=cards)
    # On the second device at its second level; on the first, which announced none, nothing is asked for.
    for devices, level, clock_mhz in ((0b10, 2, 1300.0), (0b10, 0, None), (0b01, 1, None)):
        attempt = AttemptRecord(1, 1, task, 1, "n", 0.0, lease(1))
        attempt.slow_down(Placement(1, 1, 1, 1, 0, 0, 0, devices, 0, 1.0, level), node)
        asked = attempt.lease.level
        assert (asked and (asked.value, asked.device)) == (clock_mhz and (clock_mhz, 1))


def test_the_level_of_a_device_without_clocks_becomes_the_limit_of_its_lease(tmp_path: Path) -> None:
    async def main() -> None:
        gpu, flow = Gpu(), WorkflowRecord("w", "w", "o", 1, {}, 0.0)
        levels = AgentLevels(Holder([gpu], tmp_path, watched=False))
        task = TaskRecord(1, flow, m.Task(key="a", name="a", command=["true"]), 1, 0.0, 0.0)
        attempt = AttemptRecord(1, 1, task, 1, "n", 0.0, lease(1, device=0))
        attempt.slow_down(Placement(1, 1, 1, 1, 0, 0, 0, 0b1, 0, 1.0, 2), levels.describe(NODE))
        async with levels.held(attempt.lease):
            assert gpu.limit_w == 504.0
        assert gpu.limit_w == 700.0
        levels.close()

    asyncio.run(main())


def test_a_clock_of_processors_is_none_of_the_gpu_beside_them(tree: Path) -> None:
    async def work(levels: AgentLevels) -> None:
        async with levels.held(lease(1, m.Level("clock_mhz", 2000.0), device=0)):
            assert ceiling_khz(tree) == 2_000_000
        assert ceiling_khz(tree) == FULL_KHZ

    on(tree, work)
