"""Slices of GPUs: MIG's by a played NVML, AMD's masks by a played topology."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wattflow.energy.meters.port import Domain, Reading
from wattflow.model.errors import MissingExtra
from wattflow.runtime import messages as m
from wattflow.runtime.executors.amd import AmdExecutor, AmdGpu, environment
from wattflow.runtime.executors.fpga import call_kernel
from wattflow.runtime.executors.fpga.registry import kernel
from wattflow.runtime.executors.gpu import GpuExecutor, Slice, Slices, slices_of
from wattflow.runtime.executors.process import AttemptWork, Finish

GIB = 1 << 30
SEVENTH, TWO, THREE = Slice("MIG-a", 1 / 7, 18 * GIB), Slice("MIG-b", 2 / 7, 35 * GIB), Slice("MIG-c", 3 / 7, 71 * GIB)


class Nvml:
    """A GPU with seven places, two of them empty."""

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: object) -> int:
        return 4

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: object, place: int) -> int:
        if place > 1:
            raise RuntimeError("not found")
        return place

    def nvmlDeviceGetUUID(self, part: int) -> Any:
        return b"MIG-0" if part == 0 else "MIG-1"

    def nvmlDeviceGetAttributes(self, part: int) -> Any:
        return SimpleNamespace(gpuInstanceSliceCount=1 + part)

    def nvmlDeviceGetMemoryInfo(self, part: int) -> Any:
        return SimpleNamespace(total=(1 + part) * 10 * GIB)


def lease(fence: int, share: float, memory: int = 0) -> m.Lease:
    spec = m.Task(key="k", name="n", command=["x"], variants=[m.Variant(gpu=share, gpu_memory_bytes=memory)])
    return m.Lease(fence=fence, task=1, number=1, node="n", workflow="w", spec=spec, device=0)


def test_slices_are_found_with_what_they_are() -> None:
    assert slices_of(Nvml(), None) == [Slice("MIG-0", 1 / 7, 10 * GIB), Slice("MIG-1", 2 / 7, 20 * GIB)]
    assert slices_of(SimpleNamespace(), None) == []


def test_the_smallest_slice_that_is_large_enough_is_taken_once() -> None:
    slices = Slices([THREE, SEVENTH, TWO])
    assert slices.take(1, 0.1, 0) is SEVENTH
    assert slices.take(2, 0.1, 0) is TWO
    assert slices.take(3, 0.1, 80 * GIB) is None
    slices.give_back(1)
    assert slices.take(4, 1 / 7, 0) is SEVENTH and slices.take(5, 0.4, 0) is THREE and slices.take(6, 0.01, 0) is None


def test_a_process_sees_its_slice_alone_and_joules_go_by_their_size() -> None:
    counter = SimpleNamespace(joules=100.0, domains=(Domain("gpu-0", "gpu"),))
    counter.read = lambda: Reading(0.0, {"gpu-0": counter.joules})
    seen: dict[int, AttemptWork] = {}
    ends = {1: asyncio.Event(), 2: asyncio.Event()}

    async def run(work: AttemptWork) -> Finish:
        seen[work.fence] = work
        await ends[work.fence].wait()
        return Finish("done", 0.0, 1.0)

    async def body() -> None:
        processes: Any = SimpleNamespace(run=run)
        meter: Any = counter
        executor = GpuExecutor(meter, "mig", ["H"], [141 * GIB], [[SEVENTH, THREE]])
        first = asyncio.create_task(executor.run(lease(1, 0.1), 0, AttemptWork(fence=1), processes))
        second = asyncio.create_task(executor.run(lease(2, 0.4), 0, AttemptWork(fence=2), processes))
        await asyncio.sleep(0)
        assert (await executor.run(lease(3, 0.1), 0, AttemptWork(fence=3), processes)).outcome == "refused"
        assert seen[1].environment["CUDA_VISIBLE_DEVICES"] == "MIG-a"
        assert seen[2].environment["CUDA_VISIBLE_DEVICES"] == "MIG-c"
        counter.joules += 40
        for fence in (1, 2):
            ends[fence].set()
        await asyncio.gather(first, second)
        assert executor.joules(1) == (pytest.approx(10.0), "attributed")
        assert executor.joules(2) == (pytest.approx(30.0), "attributed")

    asyncio.run(body())


def test_masks_lie_apart_until_there_are_no_units_left() -> None:
    gpu = AmdGpu(units=8, memory_bytes=0)
    assert gpu.mask(1, 0.5) == (0, 1, 2, 3)
    assert gpu.mask(2, 0.25) == (4, 5)
    assert gpu.mask(3, 0.5) == (0, 1, 6, 7)
    assert environment(1, gpu.masks[3]) == {"ROCR_VISIBLE_DEVICES": "1", "HSA_CU_MASK": "0:0-1,6-7"}


def test_amds_gpus_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    for node, text in (("0", "cpu_cores_count 16\nsimd_count 0\n"), ("1", "simd_count 440\nsimd_per_cu 4\n")):
        (tmp_path / node / "mem_banks" / "0").mkdir(parents=True)
        (tmp_path / node / "properties").write_text(text)
        (tmp_path / node / "mem_banks" / "0" / "properties").write_text(f"heap_type 1\nsize_in_bytes {64 * GIB}\n")
    found = AmdExecutor.find(tmp_path)
    assert found is not None and [device.memory_bytes for device in found.devices()] == [64 * GIB]
    assert found._gpus[0].units == 110
    assert AmdExecutor.find(tmp_path / "absent") is None


def test_without_xrt_a_card_is_refused_with_what_is_missing() -> None:
    with pytest.raises(MissingExtra, match="pyxrt"):
        call_kernel.run_words(kernel("dot"), np.zeros(1, np.uint64))
