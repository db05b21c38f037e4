"""A kernel called like a function. It runs in the task's own process and leaves its cycle count for the executor.

Xilinx cards are reached through XRT's Python binding (``pyxrt``): a thin adapter, untested on hardware.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.model.errors import MissingExtra, WattflowError
from wattflow.runtime.executors.fpga.registry import KernelEntry, Words

FOLDER = "WATTFLOW_XCLBIN"
MOST_OUT = 1 << 20
"""Words that a kernel may give back."""


def run_words(entry: KernelEntry, words: Words, device: int = 0) -> tuple[Words, float]:
    """Words out, and the seconds that the card took."""
    try:
        xrt: Any = importlib.import_module("pyxrt")
    except ImportError:
        raise MissingExtra("Xilinx cards need XRT's Python binding pyxrt, which comes with XRT itself") from None
    image = Path(os.environ.get(FOLDER, ".")) / f"{entry.name}.xclbin"
    if not image.exists():
        raise WattflowError(f"no {image}: build kernel {entry.name!r} for the card and set {FOLDER} to its folder")
    card = xrt.device(device)
    kernel = xrt.kernel(card, card.load_xclbin(str(image)), entry.name)
    sent = xrt.bo(card, words.nbytes, xrt.bo.normal, kernel.group_id(0))
    got = xrt.bo(card, 8 * MOST_OUT, xrt.bo.normal, kernel.group_id(1))
    sent.write(words.tobytes(), 0)
    sent.sync(xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, words.nbytes, 0)
    began_s = time.perf_counter()
    kernel(sent, got, len(words)).wait()
    took_s = time.perf_counter() - began_s
    got.sync(xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, 8 * MOST_OUT, 0)
    answer = np.frombuffer(bytes(got.read(8 * MOST_OUT, 0)), np.uint64)
    return answer[1 : 1 + int(answer[0])], took_s  # the wrapper puts the count first


REPORT = "WATTFLOW_FPGA_REPORT"
BACKEND = "WATTFLOW_FPGA_BACKEND"
"""``verilator`` plays a device, which is the default; ``xilinx`` uses a card."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call it with the kernel's arguments: exact results, as the circuit makes them."""

    kernel: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from wattflow.runtime.executors.fpga import verilator
        from wattflow.runtime.executors.fpga.registry import kernel

        entry = kernel(self.kernel)
        sent = entry.pack(*args, **kwargs)
        if os.environ.get(BACKEND) == "xilinx":
            words, device_s = run_words(entry, sent)
            cycles = round(device_s * entry.f_max_hz)
        else:
            words, cycles = verilator.run_words(verilator.program_of(entry), sent)
        report = os.environ.get(REPORT)
        if report:
            Path(report).write_text(json.dumps({"kernel": self.kernel, "cycles": cycles}))
        return entry.unpack(words)
