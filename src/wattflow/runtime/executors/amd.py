"""AMD's GPUs in shares: each process sees one GPU and, by a mask, some of its compute units. Untested on hardware.

``ROCR_VISIBLE_DEVICES`` and ``HSA_CU_MASK`` are read by ROCm's runtime when a process starts (documented under
"Setting the number of compute units"). Units are handed out apart from each other as long as there are enough, so a
share is more than a cap there; beyond that masks overlap on the least used ones. Joules come from the kernel's own
energy counter of the card where it has one (hwmon), split by share like NVIDIA's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wattflow.runtime.executors.node_devices import DeviceExecutor
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.messages import Device, Lease

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(slots=True)
class AmdGpu:
    """One GPU: its compute units, its memory, its energy counter in microjoules where the kernel shows one."""

    units: int
    memory_bytes: int
    counter: Path | None = None
    masks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    counted_j: float | None = None

    def mask(self, fence: int, share: float) -> tuple[int, ...]:
        """Units for a share of it: those that the fewest others use."""
        used = [0] * self.units
        for units in self.masks.values():
            for unit in units:
                used[unit] += 1
        wanted = max(1, math.ceil(share * self.units - 1e-9))
        chosen = sorted(sorted(range(self.units), key=lambda unit: (used[unit], unit))[:wanted])
        self.masks[fence] = tuple(chosen)
        return self.masks[fence]


class AmdExecutor(DeviceExecutor):
    """Runs work in processes that see a share of one AMD GPU."""

    kind = "gpu"

    def __init__(self, gpus: Sequence[AmdGpu]) -> None:
        self._gpus = list(gpus)
        self._joules: dict[int, float] = {}

    @classmethod
    def find(cls, topology: Path = TOPOLOGY, drm: Path = Path("/sys/class/drm")) -> AmdExecutor | None:
        """The GPUs that the kernel's compute driver shows; None where it shows none."""
        gpus = [gpu for node in sorted(topology.glob("*"), key=_number) if (gpu := _gpu(node, drm)) is not None]
        return cls(gpus) if gpus else None

    def devices(self) -> Sequence[Device]:
        """All GPUs. The engine packs by share and memory as with MPS."""
        return [Device(kind="gpu", model="amd", memory_bytes=gpu.memory_bytes, sharing="mps") for gpu in self._gpus]

    async def run(self, lease: Lease, device: int, work: AttemptWork, processes: ProcessExecutor) -> Finish:
        """Run in a process of its own under a mask."""
        gpu = self._gpus[device]
        share = min(1.0, lease.spec.variants[lease.variant].gpu) or 1.0
        self._count(gpu)
        given = environment(device, gpu.mask(lease.fence, share))
        try:
            return await processes.run(replace(work, isolate=True, environment={**work.environment, **given}))
        finally:
            self._count(gpu)
            del gpu.masks[lease.fence]

    def joules(self, fence: int) -> tuple[float, str] | None:
        """The GPU's joules of work that is over; None where the card counts none."""
        joules = self._joules.pop(fence, None)
        return None if joules is None else (joules, "attributed")

    def _count(self, gpu: AmdGpu) -> None:
        """Split what the counter rose by since the last change over what ran meanwhile, by units."""
        now_j = _microjoules(gpu.counter)
        before_j, gpu.counted_j = gpu.counted_j, now_j
        units = sum(map(len, gpu.masks.values()))
        if before_j is None or now_j is None or not units:
            return
        for fence, mask in gpu.masks.items():
            self._joules[fence] = self._joules.get(fence, 0.0) + (now_j - before_j) * len(mask) / units


def environment(index: int, units: Sequence[int]) -> Mapping[str, str]:
    """Make a process see one GPU, as its number 0, and these of its compute units."""
    return {"ROCR_VISIBLE_DEVICES": str(index), "HSA_CU_MASK": f"0:{_ranges(units)}"}


def _ranges(units: Sequence[int]) -> str:
    """``0-3,8`` for 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for unit in sorted(units):
        if runs and runs[-1][-1] == unit - 1:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _gpu(node: Path, drm: Path) -> AmdGpu | None:
    facts = _properties(node / "properties")
    if not facts.get("simd_count") or not facts.get("simd_per_cu"):
        return None  # a node of the topology without compute units is a CPU
    banks = (node / "mem_banks").glob("*/properties")
    memory_bytes = sum(_properties(bank).get("size_in_bytes", 0) for bank in banks)
    minor = facts.get("drm_render_minor", 0)
    counters = sorted((drm / f"renderD{minor}" / "device" / "hwmon").glob("hwmon*/energy1_input"))
    return AmdGpu(facts["simd_count"] // facts["simd_per_cu"], memory_bytes, counters[0] if counters else None)


def _properties(path: Path) -> dict[str, int]:
    try:
        lines = (line.split() for line in path.read_text().splitlines())
        return {fields[0]: int(fields[1]) for fields in lines if len(fields) == 2 and fields[1].isdigit()}
    except OSError:
        return {}


def _microjoules(path: Path | None) -> float | None:
    try:
        return int(path.read_text()) / 1e6 if path is not None else None
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int:
    return int(path.name) if path.name.isdigit() else -1
