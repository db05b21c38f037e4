"""GPUs of a node: whole, in turns, in shares of their multiprocessors (MPS), or in slices (MIG).

The process of a task sees its GPU and nothing else. Under MPS a control daemon runs for each GPU, started here,
watched, and stopped with the agent; a share is a cap on multiprocessors, and the device memory asked for is a limit.
Joules are the NVML counter's, split at every change over what runs on the GPU, by share: NVML charges all MPS clients
to the server process, so no finer split can be had from it.

How busy attempts keep their GPU is read a few times a second. Where the driver tells the busy time of each process,
that is it. Elsewhere (under MPS, and in containers that see other process ids) the device's own busy time is split:
tasks that take turns share it by their shares, since only one of them runs at a time; tasks side by side are taken to
be busy equally often and independently of each other, so that all k of them are idle in (1 − duty)^k of the time.

MIG slices are found, not made: making them needs rights over the whole GPU and ends what runs there. The engine packs
by sevenths; each task gets the smallest free slice that is large enough. Tried with a played NVML only.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from wattflow.energy.gpu_load import Mps
from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.energy.meters.port import Meter, NoReading
from wattflow.model.errors import MissingExtra, WattflowError
from wattflow.runtime.executors.node_devices import DeviceExecutor
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.messages import Device, GpuUse, Lease

SEVENTHS = 7


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice: the name by which a process sees it, and how much of the GPU it is."""

    uuid: str
    share: float
    memory_bytes: int


@dataclass(slots=True)
class Slices:
    """The slices of one GPU and who holds them."""

    every: Sequence[Slice]
    taken: dict[int, Slice] = field(default_factory=dict)

    def take(self, fence: int, share: float, memory_bytes: int) -> Slice | None:
        """The smallest free slice that is large enough; None where there is none."""
        held = {one.uuid for one in self.taken.values()}
        fit = [
            one
            for one in self.every
            if one.uuid not in held and one.share >= share - 1e-6 and one.memory_bytes >= memory_bytes
        ]
        best = min(fit, key=lambda one: (one.share, one.memory_bytes, one.uuid), default=None)
        if best is not None:
            self.taken[fence] = best
        return best

    def give_back(self, fence: int) -> None:
        """The task on it is over."""
        self.taken.pop(fence, None)


def slices_of(nvml: Any, gpu: object) -> list[Slice]:
    """The slices of a GPU, as NVML shows them; none where MIG is off or not known."""
    try:
        places = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except Exception:  # NVML raises for cards that know no MIG
        return []
    found = []
    for place in range(places):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        except Exception:  # an empty place
            continue
        uuid = nvml.nvmlDeviceGetUUID(part)
        sevenths = nvml.nvmlDeviceGetAttributes(part).gpuInstanceSliceCount
        memory_bytes = nvml.nvmlDeviceGetMemoryInfo(part).total
        found.append(Slice(uuid if isinstance(uuid, str) else uuid.decode(), sevenths / SEVENTHS, int(memory_bytes)))
    return found


class BusyReader(Protocol):
    """Tells how busy GPUs were since they were asked last."""

    def device(self, index: int) -> float | None:
        """Part of the time in which a GPU ran a kernel, 0 to 1; None where nobody tells."""

    def memory(self, index: int) -> float | None:
        """Part of the time in which a GPU's memory was read or written, 0 to 1; None where nobody tells."""

    def processes(self, index: int) -> Mapping[int, float]:
        """The same as `device` for each process, by its id; empty where nobody tells."""


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

    def memory(self, index: int) -> float | None:
        """NVML's memory utilisation of the last sampling period."""
        with contextlib.suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle(index)).memory) / 100
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
    memory: float = 0.0
    memory_samples: int = 0


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
        # The device's own counter: with others on it, nobody tells whose reads they were.
        memory = self._reader.memory(index) if len(shares) == 1 else None
        in_all = sum(shares[fence] * value for fence, value in busy.items())
        for fence, value in busy.items():
            sums = self._sums.setdefault(fence, _Sums())
            sums.busy += value
            sums.beside += in_all - shares[fence] * value
            sums.samples += 1
            if memory is not None:
                sums.memory += memory
                sums.memory_samples += 1

    def take(self, fence: int) -> GpuUse | None:
        """Tell what an attempt that is over made of its GPU; None where it was never read."""
        sums = self._sums.pop(fence, None)
        if sums is None:
            return None
        # Only where it was read each time: a part of a run may be unlike the rest.
        whole = sums.memory_samples == sums.samples
        memory = min(1.0, sums.memory / sums.samples) if whole else None
        busy, beside = min(1.0, sums.busy / sums.samples), max(0.0, sums.beside / sums.samples)
        return GpuUse(busy, beside, sums.samples, memory)


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


log = logging.getLogger(__name__)
IDLE_SHARE = 0.12
"""Guess of what a GPU draws that does nothing, of its power limit; a measured H200: 80 of 700 W (`docs/energy.md`)."""
Sharing = Literal["exclusive", "time-slice", "mps", "mig"]
TURNS = 10
"""Tasks on one GPU at once under time-slicing, as in the HPE paper's experiment."""


@dataclass(slots=True)
class _Gpu:
    """One GPU: its daemon, what runs on it by share, and its counter at the last change."""

    index: int
    about: Device
    mps: Mps | None = None
    running: dict[int, float] = field(default_factory=dict)
    counted_j: float | None = None
    slices: Slices | None = None


class GpuExecutor(DeviceExecutor):
    """Runs work in processes that see one GPU.

    Args:
        meter: Of all GPUs; domains are ``gpu-0``, ``gpu-1``, …
        models, memory_bytes: By GPU, as announced.
        slices: Of each GPU, under MIG.
        busy: Tells how busy they are; nobody does where None.
        limits_w: Their power limits, where known: the engine counts with watts that rise evenly up to them.
    """

    kind = "gpu"

    def __init__(
        self,
        meter: Meter,
        sharing: Sharing,
        models: Sequence[str],
        memory_bytes: Sequence[int],
        slices: Sequence[Sequence[Slice]] = (),
        busy: BusyReader | None = None,
        limits_w: Sequence[float] = (),
    ) -> None:
        self._meter, self.sharing = meter, sharing
        slots = TURNS if sharing == "time-slice" else 1
        self._gpus = [
            _Gpu(n, Device(kind="gpu", model=model, memory_bytes=size, sharing=sharing, slots=slots))
            for n, (model, size) in enumerate(zip(models, memory_bytes, strict=True))
        ]
        for gpu, limit_w in zip(self._gpus, limits_w, strict=False):
            gpu.about = msgspec.structs.replace(gpu.about, idle_w=IDLE_SHARE * limit_w, full_w=limit_w)
        for gpu, parts in zip(self._gpus, slices, strict=False):
            gpu.slices = Slices(parts)
        self._joules: dict[int, float] = {}
        self._busy, self._uses = busy, GpuUses(busy)
        self._processes: ProcessExecutor | None = None

    @classmethod
    def find(cls, sharing: Sharing = "exclusive") -> GpuExecutor | None:
        """The GPUs that NVML shows; None where it shows none."""
        try:
            meter = NvmlMeter()
        except NoReading:
            return None
        names = [domain.name for domain in meter.domains]
        models = [str(meter.about(name).get("model") or "gpu") for name in names]
        limits = [meter.about(name).get("limit_w") for name in names]
        limits_w = [limit for limit in limits if isinstance(limit, float)] if all(limits) else []
        slices = [_slices(n) for n in range(len(names))] if sharing == "mig" else []
        if sharing == "mig" and not any(slices):
            raise WattflowError(
                "--gpu-sharing mig: no slices here; an administrator makes them (nvidia-smi mig -cgi …)"
            )
        return cls(meter, sharing, models, [_memory_bytes(n) for n in range(len(names))], slices, nvml_busy(), limits_w)

    def devices(self) -> Sequence[Device]:
        """All GPUs."""
        return [gpu.about for gpu in self._gpus]

    async def run(self, lease: Lease, device: int, work: AttemptWork, processes: ProcessExecutor) -> Finish:
        """Run in a process of its own that sees this GPU with this share."""
        gpu = self._gpus[device]
        variant = lease.spec.variants[lease.variant]
        share = min(1.0, variant.gpu) or 1.0
        problem = self._ready(gpu)
        # Taken before anything else may refuse: two leases of one moment must not be promised the same slice.
        part = gpu.slices.take(lease.fence, share, variant.gpu_memory_bytes) if gpu.slices is not None else None
        if gpu.slices is not None and part is None:
            problem = f"no slice of GPU {gpu.index} with {share:.2g} of it and its memory is free"
        if problem is not None:
            return Finish("refused", 0.0, 0.0, reason=problem)
        environment = {**work.environment, **self.environment(gpu.index, share, variant.gpu_memory_bytes)}
        if part is not None:
            share, environment["CUDA_VISIBLE_DEVICES"] = part.share, part.uuid
        self._count(gpu)
        self._processes = processes
        gpu.running[lease.fence] = share
        try:
            return await processes.run(replace(work, isolate=True, environment=environment))
        finally:
            self._count(gpu)
            del gpu.running[lease.fence]
            if gpu.slices is not None:
                gpu.slices.give_back(lease.fence)

    def environment(self, index: int, share: float, memory_bytes: int) -> Mapping[str, str]:
        """Make a process see one GPU, and under MPS its share of it."""
        mps = self._gpus[index].mps
        if self.sharing != "mps" or mps is None:
            return {"CUDA_VISIBLE_DEVICES": str(index)}
        # The daemon shows its one GPU as number 0.
        given = {
            "CUDA_VISIBLE_DEVICES": "0",
            "CUDA_MPS_PIPE_DIRECTORY": str(mps.folder),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{100 * share:g}",
        }
        if memory_bytes:
            given["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={max(1, memory_bytes >> 20)}M"
        return given

    def joules(self, fence: int) -> tuple[float, str] | None:
        """The GPU's joules of work that is over."""
        joules = self._joules.pop(fence, None)
        return None if joules is None else (joules, "attributed")

    def busy(self) -> Sequence[float]:
        """Share of the last moments in which each GPU ran a kernel, as NVML tells it."""
        return [] if self._busy is None else [self._busy.device(gpu.index) or 0.0 for gpu in self._gpus]

    def sample(self) -> None:
        """Read how busy each GPU is and whom that is to be put down to."""
        pids = self._processes.running() if self._processes is not None else {}
        for gpu in self._gpus:
            self._uses.sample(gpu.index, gpu.running, pids, turns=self.sharing == "time-slice")

    def use(self, fence: int) -> GpuUse | None:
        """Tell what work that is over made of its GPU."""
        return self._uses.take(fence)

    async def close(self) -> None:
        """Stop the daemons."""
        for gpu in self._gpus:
            if gpu.mps is not None:
                gpu.mps.stop()
        self._meter.close()

    def _ready(self, gpu: _Gpu) -> str | None:
        """Start the GPU's daemon where it is not running; what is wrong where it cannot."""
        if self.sharing != "mps" or (gpu.mps is not None and _alive(gpu.mps)):
            return None
        gpu.mps = Mps(environment={"CUDA_VISIBLE_DEVICES": str(gpu.index)}).start()
        if not gpu.mps.active:
            reason, gpu.mps = gpu.mps.reason, None
            return f"the MPS daemon of GPU {gpu.index} does not start: {reason}"
        log.info("MPS daemon of GPU %s in %s", gpu.index, gpu.mps.folder)
        return None

    def _count(self, gpu: _Gpu) -> None:
        """Split what the counter rose by since the last change over what ran meanwhile."""
        now_j = self._meter.read().joules.get(f"gpu-{gpu.index}")
        before_j, gpu.counted_j = gpu.counted_j, now_j
        # By share, not by number: under MPS a task of a tenth of the GPU cannot draw half of its watts.
        shares = sum(gpu.running.values())
        if before_j is None or now_j is None or shares <= 0:
            return
        for fence, share in gpu.running.items():
            self._joules[fence] = self._joules.get(fence, 0.0) + (now_j - before_j) * share / shares


def _alive(mps: Mps) -> bool:
    """Say whether the daemon's process is there."""
    try:
        pid = int((mps.folder / "nvidia-cuda-mps-control.pid").read_text())
        return Path(f"/proc/{pid}").exists()
    except (OSError, ValueError):
        return False


def _slices(index: int) -> list[Slice]:
    try:
        import pynvml

        pynvml.nvmlInit()
        return slices_of(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index))
    except ImportError:
        raise MissingExtra("MIG slices need nvidia-ml-py: pip install 'wattflow[meters]'") from None


def _memory_bytes(index: int) -> int:
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).total)
    except Exception:
        return 16 << 30
