"""FPGAs of a node. The backend `verilator` plays a device: exact results and cycles, device time = cycles / f_max,
joules modelled.

A device holds one kernel at a time; another one means reconfiguration, which is its cold start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wattflow.runtime.executors.fpga.call_kernel import REPORT
from wattflow.runtime.executors.fpga.registry import kernel
from wattflow.runtime.executors.node_devices import DeviceExecutor
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.messages import Device, Lease


class FpgaExecutor(DeviceExecutor):
    """Virtual devices on Verilator.

    Args:
        folder: For reports of cycle counts.
        count: How many devices to play.
    """

    kind = "fpga"

    def __init__(self, folder: Path, count: int = 1) -> None:
        self._folder, self._count = folder, count
        self._loaded: dict[int, str] = {}
        self._joules: dict[int, float] = {}
        self.device_s: dict[int, float] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def devices(self) -> Sequence[Device]:
        """The devices played."""
        return [Device(kind="fpga", model="verilator") for _ in range(self._count)]

    async def run(self, lease: Lease, device: int, work: AttemptWork, processes: ProcessExecutor) -> Finish:
        """Run the kernel's call in a process; account for the time that a device would have taken.

        A command brings its own kernel: it holds the device, and nothing is known of its cycles.
        """
        name = lease.spec.variants[lease.variant].fpga
        if name is None:
            return await processes.run(replace(work, isolate=True))
        entry = kernel(name)
        report = self._folder / f"{lease.fence}.json"
        finish = await processes.run(replace(work, isolate=True, environment={**work.environment, REPORT: str(report)}))
        reconfigure_s = 0.0 if self._loaded.get(device) == name else entry.reconfigure_s
        self._loaded[device] = name
        if report.exists():
            device_s = json.loads(report.read_text())["cycles"] / entry.f_max_hz
            self.device_s[lease.fence] = device_s
            self._joules[lease.fence] = entry.watts * (device_s + reconfigure_s)
            report.unlink()
        return replace(finish, cold_s=finish.cold_s + reconfigure_s)

    def joules(self, fence: int) -> tuple[float, str] | None:
        """Modelled joules of the device."""
        device_j = self._joules.pop(fence, None)
        return None if device_j is None else (device_j, "modelled")
