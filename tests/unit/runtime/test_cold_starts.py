"""Cold starts that were measured are what the engine decides with."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.executors.process import ProcessExecutor
from wattflow.runtime.service import Service
from wattflow.store.schema import open_store

from .test_process import call, on_executor
from .test_recovery import Hand, closed, in_this_process, opened, task

USED = m.Node(name="used", cpus=1.0, memory_bytes=1 << 30, busy=[0.0, 1.0], watts=[10.0, 30.0])
THRIFTY = m.Node(name="thrifty", cpus=1.0, memory_bytes=1 << 30, busy=[0.0, 1.0], watts=[10.0, 29.0])
"""A twentieth cheaper: worth it unless a container must be made for a task that runs 10 s."""


async def ran_one(service: Service, driver: Hand, cold_s: float, key: str, in_end: bool = False) -> None:
    await service.submit(m.Submission(workflow=key, tasks=[task(key, estimate_s=10.0)], seal=True), "me")
    fence = driver.leases[-1].fence
    service.started(fence, service.now(), 0.0 if in_end else cold_s)
    service.ended(m.Ended(fence=fence, outcome="done", cold_s=cold_s))
    await service.stored()


@pytest.mark.parametrize("kept", ["running", "journal", "snapshot"])
@pytest.mark.parametrize(("cold_s", "node"), [(0.0, "thrifty"), (0.006, "thrifty"), (3.0, "used")])
def test_a_measured_cold_start_decides_where_the_next_task_goes(
    tmp_path: Path, cold_s: float, node: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)

    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "least-energy")
        service.announce(USED)
        await ran_one(service, driver, cold_s, "a")
        if kept == "snapshot":
            await take_snapshot(service, open_store(tmp_path / "s.db"), tmp_path)
        if kept != "running":
            await closed(service, writer)
            service, driver, writer = await opened(tmp_path, "least-energy")
        assert service.decider.cold_start_s("function") == (3.0 if cold_s == 3.0 else 0.0)
        service.announce(THRIFTY)
        await service.submit(m.Submission(workflow="w", tasks=[task("b", estimate_s=10.0)], seal=True), "me")
        await closed(service, writer)
        assert [lease.node for lease in driver.leases[-1:]] == [node]

    asyncio.run(body())


def test_the_mean_of_a_function_follows_its_cold_starts_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(USED)
        await ran_one(service, driver, 3.0, "a")  # told at its start and at its end: one cold start
        assert service.decider.cold_start_s("function") == 3.0
        await ran_one(service, driver, 0.01, "b")  # warm: says nothing of a cold one
        await closed(service, writer)
        again, driver, writer = await opened(tmp_path)
        await ran_one(again, driver, 2.0, "c", in_end=True)  # as agents tell it
        assert again.decider.cold_start_s("function") == pytest.approx(2.8)
        assert again.decider.cold_start_s("another") == 0.0
        await closed(again, writer)

    asyncio.run(body())


def test_an_attempt_that_is_open_over_a_restart_counts_once(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(USED)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")]), "me")
        service.started(driver.leases[0].fence, service.now(), 3.0)
        await service.stored()
        await closed(service, writer)
        again, driver, writer = await opened(tmp_path)
        again.ended(m.Ended(fence=driver.resumed[0].fence, outcome="done", cold_s=1.0))
        await again.stored()
        assert again.decider.cold_start_s("function") == 3.0
        await closed(again, writer)

    asyncio.run(body())


def test_loading_a_kernel_into_an_fpga_is_the_devices_number(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        fpga = m.Device(kind="fpga", model="played", memory_bytes=0)
        service.announce(m.Node(name="f", cpus=1.0, memory_bytes=1 << 30, devices=[fpga]))
        only = [m.Variant(name="fpga", fpga="fir")]
        await service.submit(m.Submission(workflow="w", tasks=[task("a", variants=only)]), "me")
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="done", cold_s=3.0))
        await service.stored()
        assert service.decider.cold_start_s("function") == 0.0
        await closed(service, writer)

    asyncio.run(body())


def test_time_behind_other_calls_of_a_worker_is_no_cold_start() -> None:
    async def body(executor: ProcessExecutor) -> None:
        calls = [executor.run(call(n, time.sleep, 0.5, isolate=False)) for n in range(5)]
        finished = sorted(await asyncio.gather(*calls), key=lambda finish: finish.started_s)
        assert finished[-1].cold_s < 0.5  # it waited twice as long for its turn

    on_executor(body)
