"""Shares of GPUs: what a process sees, and how the counter's joules are split. NVML and MPS are played."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wattflow.energy.meters.port import Domain, Reading
from wattflow.runtime import messages as m
from wattflow.runtime.executors import gpu as module
from wattflow.runtime.executors.gpu import GpuExecutor
from wattflow.runtime.executors.process import AttemptWork, Finish


class Counter:
    """A meter whose counter a test moves."""

    name = "played"
    domains = (Domain("gpu-0", "gpu"),)

    def __init__(self) -> None:
        self.joules = 100.0

    def read(self) -> Reading:
        return Reading(0.0, {"gpu-0": self.joules})

    def close(self) -> None:
        return None


class Processes:
    """Keeps what it is asked to run until a test lets it end."""

    def __init__(self) -> None:
        self.seen: dict[int, AttemptWork] = {}
        self.ends: dict[int, asyncio.Event] = {}

    async def run(self, work: AttemptWork) -> Finish:
        self.seen[work.fence] = work
        self.ends[work.fence] = asyncio.Event()
        await self.ends[work.fence].wait()
        return Finish("done", 0.0, 1.0)


class FakeMps:
    """A daemon that starts, or does not."""

    works = True

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment, self.active, self.reason, self.folder = environment, False, "no driver", "/run/mps"

    def start(self) -> FakeMps:
        self.active = self.works
        return self

    def stop(self) -> None:
        self.active = False


def lease(fence: int, share: float, memory: int = 0) -> m.Lease:
    spec = m.Task(key="k", name="n", command=["x"], variants=[m.Variant(gpu=share, gpu_memory_bytes=memory)])
    return m.Lease(fence=fence, task=1, number=1, node="n", workflow="w", spec=spec, device=0)


def test_exclusive_and_time_sliced_processes_see_one_gpu_and_no_daemon() -> None:
    for sharing, slots in (("exclusive", 1), ("time-slice", 10)):
        executor = GpuExecutor(Counter(), sharing, ["H"], [1 << 30])  # type: ignore[arg-type]
        assert executor.devices()[0].slots == slots
        assert executor.environment(0, 0.25, 0) == {"CUDA_VISIBLE_DEVICES": "0"}


def test_shares_under_mps_and_the_split_of_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Mps", FakeMps)
    monkeypatch.setattr(module, "_alive", lambda mps: mps.active)

    async def body() -> None:
        counter, processes = Counter(), Processes()
        executor = GpuExecutor(counter, "mps", ["H"], [80 << 30])
        first = asyncio.create_task(executor.run(lease(1, 0.25, 8 << 30), 0, AttemptWork(fence=1), processes))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        env = processes.seen[1].environment
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25" and env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M" and processes.seen[1].isolate
        counter.joules += 10  # the first alone
        second = asyncio.create_task(executor.run(lease(2, 0.75), 0, AttemptWork(fence=2), processes))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        counter.joules += 40  # both: a quarter and three quarters
        processes.ends[1].set()
        await first
        counter.joules += 5  # the second alone
        processes.ends[2].set()
        await second
        assert executor.joules(1) == (10 + 10, "attributed") and executor.joules(2) == (30 + 5, "attributed")
        assert executor.joules(1) is None
        await executor.close()

    asyncio.run(body())


def test_without_a_daemon_the_attempt_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Mps", FakeMps)
    monkeypatch.setattr(FakeMps, "works", False)
    executor = GpuExecutor(Counter(), "mps", ["H"], [1])
    processes: Any = Processes()
    finish = asyncio.run(executor.run(lease(1, 0.5), 0, AttemptWork(fence=1), processes))
    assert finish.outcome == "refused" and "no driver" in (finish.reason or "")
