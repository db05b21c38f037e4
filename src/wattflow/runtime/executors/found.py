"""Which devices are here."""

from __future__ import annotations

from pathlib import Path

from wattflow.runtime.executors.amd import AmdExecutor
from wattflow.runtime.executors.fpga.executor import FpgaExecutor
from wattflow.runtime.executors.gpu import GpuExecutor, Sharing
from wattflow.runtime.executors.node_devices import DeviceExecutor


def device_executors(folder: Path, sharing: Sharing = "exclusive", fpgas: int = 0) -> tuple[DeviceExecutor, ...]:
    """Executors for the GPUs that NVML or AMD's driver shows, and for as many played FPGAs as asked for."""
    found: list[DeviceExecutor] = []
    for gpus in (GpuExecutor.find(sharing), AmdExecutor.find()):
        if gpus is not None:
            found.append(gpus)
    if fpgas:
        found.append(FpgaExecutor(folder / "fpga", fpgas))
    return tuple(found)
