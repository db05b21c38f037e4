"""Clocks that the operator states of Slurm's nodes: announced, asked for with a job, never ordered for a node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from wattflow.live.protocol import Placement
from wattflow.runtime import messages as m
from wattflow.runtime.drivers import registry, slurm
from wattflow.runtime.drivers.base import Levelling, Site
from wattflow.runtime.drivers.slurm import Stated, gpus_of
from wattflow.runtime.records import AttemptRecord, TaskRecord, WorkflowRecord

from .test_recovery import closed, opened

STATED = {"clocks_mhz": "2600,2000", "gpu_clocks_mhz": "1980,1485,1305", "watts": "50,200",
          "gpu_watts": "80,700"}  # fmt: skip
CLOCKS, GPU_CLOCKS = [2600.0, 2000.0], [1980.0, 1485.0, 1305.0]


class Played:
    """Stands for Slurm's commands and for the service."""

    def __init__(self) -> None:
        self.state, self.asked, self.announced = "idle", list[tuple[str, ...]](), list[m.Node]()

    async def run(self, *command: str) -> tuple[int, str]:
        self.asked.append(command)
        gres = "gpu:h200:2(S:0-1)" if command[-1].endswith("%G") else ""
        return (0, f"n1|8|1000|{self.state}|{gres}\n" if command[0] == "sinfo" else "7\n")

    def announce(self, node: m.Node) -> None:
        self.announced.append(node)

    def gone(self, node: str, reason: str) -> None:
        """Nobody asks."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()
    monkeypatch.setattr(slurm, "_run", found.run)
    return found


def driver_of(played: Played, folder: Path, options: dict[str, str]) -> Any:
    driver: Any = registry.make("slurm", Site(None, folder, options))  # type: ignore[arg-type]
    driver._sink = played
    asyncio.run(driver._look_at_nodes())
    return driver


def flags(played: Played, driver: Any, *, frequency: int = 0, level: int = 0) -> list[str]:
    """Return the clock that sbatch is given, where the engine chose this level on the node as it was announced last."""
    flow = WorkflowRecord("w", "w", "o", 1, {}, 0.0)
    spec = m.Task(key="a", name="a", command=["true"], variants=[m.Variant(gpu=float(level > 0))])
    task = TaskRecord(1, flow, spec, 1, 0.0, 0.0)
    placed = Placement(1, 1, 1, 1, 0, 0, 0, 0b10 if level else 0, frequency, 1.0, level)
    attempt = AttemptRecord.begun(task, placed, 1, "n1", (), 0.0)
    attempt.slow_down(placed, played.announced[-1])
    asyncio.run(driver._submit(attempt.lease))
    return [word for word in played.asked[-1] if "freq" in word]


def test_nothing_changes_where_nobody_states_clocks(played: Played, tmp_path: Path) -> None:
    driver = driver_of(played, tmp_path, {})
    assert played.announced == [m.Node(name="n1", cpus=8.0, memory_bytes=1000 << 20, keep_alive_s=0.0)]
    assert flags(played, driver, frequency=1) == []


def test_the_level_of_a_policy_is_a_clock_that_its_job_asks_for(played: Played, tmp_path: Path) -> None:
    driver = driver_of(played, tmp_path, STATED)
    (node,) = played.announced
    assert node.clocks_mhz == CLOCKS
    assert (node.busy, node.watts, node.provenance) == ([0.0, 8.0], [50.0, 200.0], "guessed")
    assert node.devices == [m.Device(kind="gpu", model="h200", idle_w=80.0, full_w=700.0, clocks_mhz=GPU_CLOCKS)] * 2
    assert flags(played, driver) == []
    assert flags(played, driver, frequency=1) == ["--cpu-freq=2000000"]
    assert flags(played, driver, level=2) == ["--gpu-freq=1305"]


def test_a_policy_takes_a_lower_clock_of_a_node_as_it_is_announced(played: Played, tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "dewts")
        service.announce(played.announced[-1])
        spec = m.Task(key="a", name="a", function_name="f", command=["true"], estimate_s=100.0)
        await service.submit(m.Submission(workflow="w", tasks=[spec], seal=True, deadline_s=4000.0), "me")
        await service.stored()
        assert [lease.level for lease in driver.leases] == [m.Level("clock_mhz", 2000.0)]
        await closed(service, writer)

    driver_of(played, tmp_path / "slurm", STATED)
    asyncio.run(body())


def test_an_order_for_a_whole_node_is_full_clock_from_then_on(played: Played, tmp_path: Path) -> None:
    """Slurm cannot slow jobs that run: a policy that counted on it would break its cap."""
    driver = driver_of(played, tmp_path, STATED)
    # As the service asks it; said of its class, so that the driver stays what it is to a type checker.
    assert issubclass(type(driver), Levelling)
    for node, value in (("n1", 0.0), ("elsewhere", 2000.0), ("n1", 2000.0), ("n1", 2000.0)):
        driver.level(node, m.Level("clock_mhz", value))
        asyncio.run(driver._look_at_nodes())
    assert [node.clocks_mhz for node in played.announced] == [CLOCKS, []] and played.announced[-1].devices
    for played.state in ("down", "idle"):
        asyncio.run(driver._look_at_nodes())
    assert len(played.announced) == 3 and played.announced[-1].clocks_mhz == []


@pytest.mark.parametrize(
    ("gres", "models"),
    [
        ("(null)", []), ("", []), ("gpu:2", ["generic"] * 2), ("gpu:1080ti:1", ["1080ti"]), ("shard:8", []),
        ("fpga:1,gpu:a100:1(S:0),gpu:h200:2(S:0-1)", ["a100", "h200", "h200"]),
    ],
)  # fmt: skip
def test_gpus_are_read_from_generic_resources(gres: str, models: list[str]) -> None:
    assert [device.model for device in gpus_of(gres, Stated(GPU_CLOCKS))] == models
