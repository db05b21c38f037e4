"""A kernel called like a function. It runs in the task's own process and leaves its cycle count for the executor."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPORT = "WATTFLOW_FPGA_REPORT"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call it with the kernel's arguments: exact results, as the circuit makes them."""

    kernel: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from wattflow.runtime.executors.fpga.registry import kernel
        from wattflow.runtime.executors.fpga.verilator import program_of, run_words

        entry = kernel(self.kernel)
        words, cycles = run_words(program_of(entry), entry.pack(*args, **kwargs))
        report = os.environ.get(REPORT)
        if report:
            Path(report).write_text(json.dumps({"kernel": self.kernel, "cycles": cycles}))
        return entry.unpack(words)
