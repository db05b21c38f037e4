"""Measures the GPU of this machine: idle, watts by share and by load, interference. Writes gpu_profile.json.

Needs only what a CUDA machine has: nvcc, the driver, Python 3.11 and numpy. Ends within nine minutes.

    python3 scripts/h200_profile.py [--out FOLDER] [--seconds 470]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from wattflow.energy import gpu_profile
from wattflow.energy.gpu_load import build, started_mps
from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.model.errors import WattflowError


def summary(document: Mapping[str, object]) -> str:
    """A few lines for whoever watches."""
    lines = [f"device {document['device']}", f"sharing {document['sharing']} ({document['mps_reason']})"]
    lines.append(f"idle {gpu_profile.idle_w(document)} W")
    for kernel in ("gemm", "fma", "mem"):
        shares, windows = gpu_profile.by_share(document, kernel)
        points = ", ".join(f"{s:.0%} {sum(w) / len(w):.1f} W" for s, w in zip(shares, windows, strict=True))
        lines.append(f"{kernel}: {points}")
        if len(shares) >= 4:
            lines.append(f"  knee {gpu_profile.knee(shares, windows)}")
    lines += [f"interference {row}" for row in document["interference"]]  # type: ignore[attr-defined]
    lines += [f"note {note}" for note in document["notes"]]  # type: ignore[attr-defined]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=470.0, help="no new point starts after this long")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / "gpu_profile.json"
    meter = NvmlMeter((0,))
    program = build(Path(tempfile.mkdtemp(prefix="wattflow-gpu-")))
    print(f"kernels {program.kernels}", flush=True)

    def save(document: Mapping[str, object]) -> None:
        target.write_text(json.dumps(dict(document) | {"python": platform.python_version()}, indent=1))

    settings = gpu_profile.GpuProfileSettings(deadline_s=arguments.seconds)
    document = gpu_profile.GpuProfiler(meter, program, started_mps, save, settings).measure()
    print(summary(document))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WattflowError as error:
        sys.exit(f"h200_profile: {error}")
