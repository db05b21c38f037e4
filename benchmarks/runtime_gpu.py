"""The GPU executor on a real GPU: what tasks see, what they may take, and joules, under each way of sharing.

Needs an NVIDIA GPU, torch and nvidia-ml-py (`make bench-runtime-gpu`). Four tasks of a quarter each multiply matrices
side by side; one asks for more memory than it said; the MPS daemon is killed and must be there again for the next one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.runtime import messages as m
from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.gpu import GpuExecutor, Sharing, slices_of
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
GIB = 1 << 30
SECONDS = 4.0


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}", flush=True)


def multiply(seconds: float) -> tuple[int, int]:
    """Multiply for some seconds; returns the multiprocessors seen and how many products were made."""
    import time as clock

    import torch

    units = torch.cuda.get_device_properties(0).multi_processor_count
    a = torch.randn(2048, 2048, device="cuda")
    end, count = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        a @ a
        torch.cuda.synchronize()
        count += 1
    return units, count


def take(size: int) -> str:
    """Take device memory."""
    import torch

    try:
        torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1)
        torch.cuda.synchronize()
        return "taken"
    except torch.OutOfMemoryError:
        return "refused"


def lease(fence: int, share: float, memory_bytes: int = 0) -> m.Lease:
    variant = m.Variant(gpu=share, gpu_memory_bytes=memory_bytes)
    spec = m.Task(key="k", name="n", command=["x"], variants=[variant])
    return m.Lease(fence=fence, task=1, number=1, node="n", workflow="w", spec=spec, device=0)


async def run(
    gpu: GpuExecutor, processes: ProcessExecutor, asked: m.Lease, function: Callable[..., Any], *args: object
) -> Finish:
    blobs = (cloudpickle.dumps(function), cloudpickle.dumps((args, {})))
    work = AttemptWork(fence=asked.fence, python=PYTHON, function=str(hash(blobs[0])), blobs=blobs)
    return await gpu.run(asked, 0, work, processes)


def value(finish: Finish) -> Any:
    if finish.outcome != "done" or finish.result is None:
        raise RuntimeError(f"a task ended as {finish.outcome}: {finish.reason}")
    return pickle.loads(finish.result)


async def side_by_side(sharing: Sharing, shares: Sequence[float]) -> None:
    """Tasks at once on one GPU: what each saw, and whether their joules are the counter's."""
    gpu, meter = GpuExecutor.find(sharing), NvmlMeter()
    if gpu is None:
        raise SystemExit("NVML shows no GPU here")
    processes = ProcessExecutor(Zygote(preload=("cloudpickle", "torch")), 2)
    await processes.start()
    try:
        before_j = meter.read().joules["gpu-0"]
        runs = [run(gpu, processes, lease(n + 1, share), multiply, SECONDS) for n, share in enumerate(shares)]
        waiting = asyncio.gather(*runs)
        await asyncio.sleep(SECONDS)
        busy = gpu.busy()
        found = [value(finish) for finish in await waiting]
        counted_j = (meter.read().joules["gpu-0"] or 0.0) - (before_j or 0.0)
        charged_j = sum((gpu.joules(n + 1) or (0.0, ""))[0] for n in range(len(shares)))
        name = f"gpu_{sharing.replace('-', '_')}"
        figure(f"{name}_tasks", len(found), "tasks")
        figure(f"{name}_multiprocessors_seen", found[0][0], "SMs")
        figure(f"{name}_products", sum(count for _, count in found) / SECONDS, "products/s")
        figure(f"{name}_busy", 100 * busy[0] if busy else -1.0, "%")
        error = 100 * abs(counted_j - charged_j) / counted_j
        figure(f"{name}_joules_error", error, "%", "<=5", error <= 5)
        if sharing == "mps":
            await limits(gpu, processes)
    finally:
        await processes.close()
        await gpu.close()
        meter.close()


async def limits(gpu: GpuExecutor, processes: ProcessExecutor) -> None:
    """Memory beyond what was asked for, and a daemon that dies."""
    small = value(await run(gpu, processes, lease(100, 0.25, 8 * GIB), take, 2 * GIB))
    large = value(await run(gpu, processes, lease(101, 0.25, 8 * GIB), take, 16 * GIB))
    figure("gpu_mps_memory_held_to_limit", float((small, large) == ("taken", "refused")), "yes", "1",
           (small, large) == ("taken", "refused"))  # fmt: skip
    mps = gpu._gpus[0].mps
    assert mps is not None
    os.kill(int((mps.folder / "nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)
    await asyncio.sleep(1.0)
    began = time.monotonic()
    again = await run(gpu, processes, lease(102, 0.25), multiply, 0.5)
    print(f"# after the daemon's death: {again.outcome} {again.reason or ''} in {time.monotonic() - began:.1f} s")
    figure("gpu_mps_daemon_started_again", float(again.outcome == "done"), "yes", "1", again.outcome == "done")


def main() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    import pynvml

    pynvml.nvmlInit()
    print(f"# MIG slices here: {slices_of(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))}")
    asyncio.run(side_by_side("exclusive", [1.0]))
    asyncio.run(side_by_side("time-slice", [1.0] * 4))
    asyncio.run(side_by_side("mps", [0.25] * 4))


if __name__ == "__main__":
    main()
