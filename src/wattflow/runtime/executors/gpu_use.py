"""How busy attempts keep their GPU: read a few times a second, split over what runs there.

Where the driver tells the busy time of each process, that is it. Elsewhere (under MPS, whose clients NVML charges to
the server process, and in containers that see other process ids) the device's own busy time is split: tasks that take
turns share it by their shares, since only one of them runs at a time; tasks side by side are taken to be busy equally
often and independently of each other, so that all k of them are idle in (1 − duty)^k of the time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from wattflow.runtime.messages import GpuUse


class BusyReader(Protocol):
    """Tells how busy GPUs were since they were asked last."""

    def device(self, index: int) -> float | None:
        """Part of the time in which a GPU ran a kernel, 0 to 1; None where nobody tells."""

    def processes(self, index: int) -> Mapping[int, float]:
        """The same for each process, by its id; empty where nobody tells."""


class NvmlBusy:
    """The calls of NVML that are made."""

    def __init__(self, nvml: Any) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        self._seen_us: dict[int, int] = {}

    def device(self, index: int) -> float | None:
        """NVML's utilisation of the last sampling period (a sixth of a second to one second)."""
        with contextlib.suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle(index)).gpu) / 100
        return None

    def processes(self, index: int) -> Mapping[int, float]:
        """Means of the samples that are new since the last call."""
        try:
            found = self._nvml.nvmlDeviceGetProcessUtilization(self._handle(index), self._seen_us.get(index, 0))
        except self._nvml.NVMLError:  # no new samples, or not told on this GPU
            return {}
        values: dict[int, list[float]] = {}
        for sample in found:
            values.setdefault(int(sample.pid), []).append(float(sample.smUtil) / 100)
            self._seen_us[index] = max(self._seen_us.get(index, 0), int(sample.timeStamp))
        return {pid: sum(told) / len(told) for pid, told in values.items()}

    def _handle(self, index: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(index)


def nvml_busy() -> NvmlBusy | None:
    """NVML's reader; None without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return None
    return NvmlBusy(pynvml)


@dataclass(slots=True)
class _Sums:
    busy: float = 0.0
    beside: float = 0.0
    samples: int = 0


class GpuUses:
    """Sums of readings for everything that runs on a node's GPUs, and that has just ended."""

    def __init__(self, reader: BusyReader | None) -> None:
        self._reader = reader
        self._sums: dict[int, _Sums] = {}

    def sample(self, index: int, shares: Mapping[int, float], pids: Mapping[int, int], turns: bool) -> None:
        """Read one GPU. ``shares`` and ``pids`` are by fence; with ``turns`` only one of them runs at a time."""
        if self._reader is None or not shares:
            return
        busy = _of_processes(self._reader.processes(index), shares, pids)
        if busy is None:
            together = self._reader.device(index)
            if together is None:
                return
            busy = split(together, shares, turns)
        in_all = sum(shares[fence] * value for fence, value in busy.items())
        for fence, value in busy.items():
            sums = self._sums.setdefault(fence, _Sums())
            sums.busy += value
            sums.beside += in_all - shares[fence] * value
            sums.samples += 1

    def take(self, fence: int) -> GpuUse | None:
        """Tell what an attempt that is over made of its GPU; None where it was never read."""
        sums = self._sums.pop(fence, None)
        if sums is None:
            return None
        return GpuUse(min(1.0, sums.busy / sums.samples), max(0.0, sums.beside / sums.samples), sums.samples)


def split(together: float, shares: Mapping[int, float], turns: bool) -> dict[int, float]:
    """Busy time of each task of a device that was busy for this part of the time."""
    if turns or len(shares) == 1:
        in_all = sum(shares.values())
        return {fence: together * share / in_all for fence, share in shares.items()}
    each = 1.0 - (1.0 - min(1.0, together)) ** (1.0 / len(shares))
    return dict.fromkeys(shares, each)


def _of_processes(
    told: Mapping[int, float], shares: Mapping[int, float], pids: Mapping[int, int]
) -> dict[int, float] | None:
    """Busy time by fence, of each attempt's process and what that started; None where no process is one of ours."""
    fence_of = {pid: fence for fence, pid in pids.items() if fence in shares}
    busy: dict[int, float] = {}
    for pid, value in told.items():
        fence = fence_of.get(pid, fence_of.get(_session(pid), -1))
        if fence >= 0:
            busy[fence] = min(1.0, busy.get(fence, 0.0) + value)
    return {fence: busy.get(fence, 0.0) for fence in shares} if busy else None


def _session(pid: int) -> int:
    """An attempt's process leads a session of its own, in which all its children are."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1
