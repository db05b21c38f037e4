"""Clocks and caps of a Kubernetes node by annotation: a played tree of the kernel's files, a small API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kube.small_api import SmallApi, small_api
from research.played_sysfs import FULL_KHZ, FULL_UW, ceiling_khz, play_sysfs
from wattflow.kube import node_levels
from wattflow.kube.client import Client
from wattflow.kube.node_levels import NodeLevels, read_order, serve, targets
from wattflow.levels import sysfs
from wattflow.levels.holder import Holder
from wattflow.model.errors import InvalidInput

NODES = "/api/v1/nodes"


def holder_of(tree: Path, notes: Path) -> Holder:
    return Holder([sysfs.cpufreq(tree), sysfs.powercap(tree)], notes, watched=False)


def limit_uw(tree: Path, package: int = 0) -> int:
    return int((tree / f"class/powercap/intel-rapl:{package}/constraint_0_power_limit_uw").read_text())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return play_sysfs(tmp_path / "sys", packages=2)


def test_an_order_is_set_told_and_given_back(tree: Path, tmp_path: Path) -> None:
    levels = NodeLevels(holder_of(tree, tmp_path / "notes"))
    told = levels.follow('{"clock_mhz": 2000, "cap_w": 200}')
    assert [ceiling_khz(tree, n) for n in (0, 1)] == [2_000_000] * 2
    # A node's cap is shared by its packages.
    assert [limit_uw(tree, n) for n in (0, 1)] == [100_000_000] * 2
    assert told["in_force"]["cpu-policy0.clock_mhz"] == 2000 and not told["refused"]
    assert told["knobs"]["package-0.cap_w"][1] == FULL_UW / 1e6
    # The clock alone is taken out of the order: the cap stays.
    told = levels.follow('{"cap_w": 200}')
    assert ceiling_khz(tree) == FULL_KHZ and limit_uw(tree) == 100_000_000 and set(told["in_force"]) == {
        "package-0.cap_w", "package-1.cap_w"}  # fmt: skip
    assert levels.follow("")["in_force"] == {} and limit_uw(tree) == FULL_UW


def test_an_order_ends_with_its_time(tree: Path, tmp_path: Path) -> None:
    now = [100.0]
    levels = NodeLevels(holder_of(tree, tmp_path / "notes"), lambda: now[0])
    levels.follow('{"clock_mhz": 2000, "until_s": 150}')
    assert ceiling_khz(tree) == 2_000_000
    now[0] = 150.0
    assert levels.follow('{"clock_mhz": 2000, "until_s": 150}')["in_force"] == {} and ceiling_khz(tree) == FULL_KHZ


@pytest.mark.parametrize("text", ["fast", "[1]", '{"clock_mhz": "low"}', '{"clock_mhz": -1}', '{"cap_w": true}', "{"])
def test_what_is_no_order_is_told_and_leaves_full_clock(text: str, tree: Path, tmp_path: Path) -> None:
    levels = NodeLevels(holder_of(tree, tmp_path / "notes"))
    levels.follow('{"clock_mhz": 2000}')
    told = levels.follow(text)
    assert "is no order" in told["refused"]["order"] and ceiling_khz(tree) == FULL_KHZ
    with pytest.raises(InvalidInput):
        read_order(text, 0.0)


def test_what_cannot_be_set_is_told_by_knob(tree: Path, tmp_path: Path) -> None:
    levels = NodeLevels(holder_of(tree, tmp_path / "notes"))
    told = levels.follow('{"clock_mhz": 9000, "gpu-0.clock_mhz": 1300}')
    assert "out of range" in told["refused"]["cpu-policy0.clock_mhz"]
    assert "no such knob" in told["refused"]["gpu-0.clock_mhz"] and told["in_force"] == {}
    assert ceiling_khz(tree) == FULL_KHZ


def test_a_setting_that_somebody_else_changes_is_theirs(tree: Path, tmp_path: Path) -> None:
    levels = NodeLevels(holder_of(tree, tmp_path / "notes"))
    levels.follow('{"cpu-policy0.clock_mhz": 2000}')
    (tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").write_text("1500000\n")
    told = levels.follow('{"cpu-policy0.clock_mhz": 2000}')
    assert told["in_force"] == {} and "1500" in told["refused"]["cpu-policy0.clock_mhz"]
    assert ceiling_khz(tree) == 1_500_000


def test_a_cap_without_packages_is_refused_by_name() -> None:
    assert targets({"cap_w": 100.0}, []) == {"cap_w": 100.0}


def test_the_annotation_is_followed_and_answered(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_levels, "LOOK_S", 0.01)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.005)

    def annotate(api: SmallApi, order: str) -> None:
        api.put(NODES, {"metadata": {"name": "n", "annotations": {node_levels.ORDER: order}}})

    def status(api: SmallApi) -> Any:
        told = api.items[NODES]["/n"]["metadata"].get("annotations", {}).get(node_levels.STATUS, "{}")
        return json.loads(told)

    async def main() -> None:
        async with small_api() as (api, where), Client(where) as client:
            annotate(api, '{"clock_mhz": 2000}')
            stop = asyncio.Event()
            levels = NodeLevels(holder_of(tree, tmp_path / "notes"))
            task = asyncio.create_task(serve(client, "n", levels, stop))
            await until(lambda: status(api).get("in_force", {}).get("cpu-policy0.clock_mhz") == 2000)
            assert ceiling_khz(tree) == 2_000_000
            annotate(api, "")
            await until(lambda: status(api).get("in_force") == {})
            assert ceiling_khz(tree) == FULL_KHZ
            annotate(api, '{"clock_mhz": 1000}')
            await until(lambda: ceiling_khz(tree) == 1_000_000)
            # Whoever ends gives everything back.
            stop.set()
            await task
            assert ceiling_khz(tree) == FULL_KHZ

    asyncio.run(main())


def test_a_silent_api_server_has_no_say(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_levels, "LOOK_S", 0.01)
    monkeypatch.setattr(node_levels, "SILENT_S", 0.05)

    async def main() -> None:
        async with small_api() as (api, where), Client(where) as client:
            api.put(NODES, {"metadata": {"name": "n", "annotations": {node_levels.ORDER: '{"clock_mhz": 2000}'}}})
            stop = asyncio.Event()
            task = asyncio.create_task(serve(client, "n", NodeLevels(holder_of(tree, tmp_path / "notes")), stop))
            async with asyncio.timeout(60):
                while ceiling_khz(tree) == FULL_KHZ:
                    await asyncio.sleep(0.005)
                api.items[NODES].clear()
                while ceiling_khz(tree) != FULL_KHZ:
                    await asyncio.sleep(0.005)
            stop.set()
            await task

    asyncio.run(main())
