"""The conformance suite on a cluster that is only played, and what playing means."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.runtime import messages as m
from wattflow.runtime.drivers.simulated import PlayedLoad, SimulatedDriver, Stage
from wattflow.store.objects import FolderObjects
from wattflow.testing.check_driver import CHECKS, Rig, check_driver

POWER = PowerProfile((0.0, 4.0), (50.0, 130.0))
CLUSTER = Cluster(name="played", nodes=(
    Node("quick", cores=4, memory_bytes=8 << 30, speed=2.0, power=POWER),
    Node("slow", cores=4, memory_bytes=8 << 30, speed=0.5, power=POWER),
))  # fmt: skip


def test_the_simulated_driver_keeps_the_contract(tmp_path: Path) -> None:
    passed = asyncio.run(check_driver(lambda objects: SimulatedDriver(objects, CLUSTER, tmp_path / "sim"), tmp_path))
    assert len(passed) == len(CHECKS)


def test_a_played_node_is_as_busy_as_what_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, worked_s = [100.0], [0.0]
    stage = SimpleNamespace(machine=lambda: {"machine": worked_s[0]}, memory_bytes={1: 2 << 30, 2: 1 << 30})
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    load = PlayedLoad(m.Node(name="n", cpus=4.0, memory_bytes=8 << 30), cast(Stage, stage))
    now_s[0] = 102.0
    assert load.read(20.0).cpu_busy == 0.0, "whatever the machine does that plays it"
    now_s[0], worked_s[0] = 104.0, 4.0
    told = load.read(20.0)
    assert (told.cpu_busy, told.memory_used_bytes, told.watts) == (0.5, 3 << 30, 20.0)


def test_a_command_is_not_started_and_lasts_as_long_as_its_node_is_fast(tmp_path: Path) -> None:
    async def main() -> None:
        objects = FolderObjects(tmp_path / "objects")
        rig = Rig(SimulatedDriver(objects, CLUSTER, tmp_path / "sim"), objects, 60.0)
        await rig.driver.start(rig.sink)
        await rig.sink.until(lambda: len(rig.sink.nodes) == 2, 60.0)
        lease = rig.lease(command=["rm", "-rf", "/nonexistent"], estimate_s=1.0)
        assert lease.node == "quick"
        (end,) = await rig.end(lease)
        assert end.outcome == "done" and end.started_s is not None and end.ended_s is not None
        assert 0.5 <= end.ended_s - end.started_s < 30.0  # half as long as on a node of speed 1, and a busy machine
        await rig.driver.stop()

    began_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began_s >= 0.5
