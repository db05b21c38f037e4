"""A kernel called like a function. It runs in the task's own process and leaves its cycle count for the executor."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPORT = "WATTFLOW_FPGA_REPORT"
BACKEND = "WATTFLOW_FPGA_BACKEND"
"""``verilator`` plays a device, which is the default; ``xilinx`` uses a card."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call it with the kernel's arguments: exact results, as the circuit makes them."""

    kernel: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from wattflow.runtime.executors.fpga import verilator, xilinx
        from wattflow.runtime.executors.fpga.registry import kernel

        entry = kernel(self.kernel)
        sent = entry.pack(*args, **kwargs)
        if os.environ.get(BACKEND) == "xilinx":
            words, device_s = xilinx.run_words(entry, sent)
            cycles = round(device_s * entry.f_max_hz)
        else:
            words, cycles = verilator.run_words(verilator.program_of(entry), sent)
        report = os.environ.get(REPORT)
        if report:
            Path(report).write_text(json.dumps({"kernel": self.kernel, "cycles": cycles}))
        return entry.unpack(words)
