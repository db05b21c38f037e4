"""MIG: slices that an administrator made of a GPU, each with multiprocessors and memory of its own.

Slices are found, not made: making them needs rights over the whole GPU and ends what runs there. The engine packs by
sevenths; here each task gets the smallest free slice that is large enough. Tried with a played NVML only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
