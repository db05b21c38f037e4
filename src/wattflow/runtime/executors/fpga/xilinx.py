"""Xilinx cards through XRT's Python binding (``pyxrt``). A thin adapter, untested on hardware.

A kernel of the registry is expected as ``NAME.xclbin`` in the folder that ``WATTFLOW_XCLBIN`` names, built from the
Verilog that `verilator.verilog_of` gives, behind an AXI wrapper with three arguments: words in, words out, how many.
Time is the card's own; joules are watts of the registry by that time and say *modelled*.
"""

from __future__ import annotations

import importlib
import os
import time
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
