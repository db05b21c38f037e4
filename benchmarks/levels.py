"""Levels without a GPU (`make bench-levels`): the profiler against a recorded sweep, and owners of levels killed.

The sweep is of three kernels on one H200 (`data/gpu/h200_clocks.csv`), eight clocks each. Kills are real: processes
that hold levels on a played tree of the kernel's files get SIGKILL or SIGTERM, every fourth after its watchdog; then
the next start has to give back. Ends with one line per figure.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from levels_gpu import KILLS, against_sweep, figure

import wattflow
from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.levels import sysfs
from wattflow.levels.holder import Holder
from wattflow.levels.response import LevelRun, Response

RECORDED = Path(wattflow.__file__).parent / "data" / "gpu" / "h200_clocks.csv"
IDLE_W = 124.0
"""Of an H200 with a context at full clock (`data/gpu/h200_kernels.json`)."""
NOT_MEASURED = {
    "levels.gpu.saved": "≥ 10", "levels.gpu.saved_with_deadlines": "≥ 18", "levels.gpu.predicted_median": "≤ 5",
    "levels.gpu.joules_lost": "≤ 2",
}  # fmt: skip
"""Figures that need a card whose clocks may be set (`make bench-levels-gpu`)."""
OWNER = """
import time
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.holder import Holder
holder = Holder(find_actuators(), notes_folder())
holder.set("cpu-policy0.clock_mhz", 1200.0)
holder.set("package-0.cap_w", 90.0)
print(holder._watchdog.pid, flush=True)
time.sleep(600)
"""


def recorded() -> dict[str, dict[float, LevelRun]]:
    """Read the sweep by kernel and clock."""
    kernels: dict[str, dict[float, LevelRun]] = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "clock_mhz":
                run = LevelRun(*(float(row[name]) for name in ("value", "seconds", "joules", "clock_mhz_seen")))
                kernels.setdefault(row["kernel"], {})[run.level] = run
    return kernels


def against_caps(kernels: dict[str, dict[float, LevelRun]]) -> None:
    """Print how far seconds and joules under recorded power limits are from those that clocks alone predict."""
    errors = []
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "limit_w":
                found = Response(list(kernels[row["kernel"]].values()), IDLE_W).under_cap(float(row["value"]))
                if found is not None:
                    measured = (float(row["seconds"]), float(row["joules"]))
                    errors += [abs(one.value / value - 1) for one, value in zip(found, measured, strict=True)]
    middle, most = 100 * float(np.median(errors)), 100 * max(errors)
    figure("levels.recorded.caps_predicted_median", middle, f"% of {len(errors)}", "≤ 5", middle <= 5)
    figure("levels.recorded.caps_predicted_worst", most, "%", "none", True)


def kill(number: int, tree: Path, notes: Path) -> float:
    """Kill one owner; seconds until clocks and limits are as before."""
    environment = {**os.environ, "WATTFLOW_SYSFS": str(tree), "WATTFLOW_LEVELS": str(notes)}
    process = subprocess.Popen([sys.executable, "-c", OWNER], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        watchdog = int(process.stdout.readline())
    assert ceiling_khz(tree) == 1_200_000
    if number % 4 == 3:
        os.kill(watchdog, signal.SIGKILL)
    process.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
    began_s = time.monotonic()
    process.wait()
    if number % 4 == 3:
        Holder([sysfs.cpufreq(tree), sysfs.powercap(tree)], notes, watched=False)
    while (list(notes.glob("*.json")) or ceiling_khz(tree) != FULL_KHZ) and time.monotonic() - began_s < 20:
        time.sleep(0.002)
    return time.monotonic() - began_s


def main() -> None:
    """Print the figures."""
    against_sweep(recorded(), IDLE_W, "recorded")
    against_caps(recorded())
    with tempfile.TemporaryDirectory() as folder:
        tree = play_sysfs(Path(folder) / "sys")
        took_s = [kill(number, tree, Path(folder) / "notes") for number in range(KILLS)]
    good = sum(one <= 5.0 for one in took_s)
    figure("levels.played.as_before_after_kills", good, f"of {KILLS}", f"{KILLS} of {KILLS} in 5 s", good == KILLS)
    figure("levels.played.slowest_return", max(took_s), "s", "≤ 5", max(took_s) <= 5)
    for name, goal in NOT_MEASURED.items():
        print(f"figure {name} nan % goal {goal} short (not measured: the operator forbids to set the card's clocks)")


if __name__ == "__main__":
    main()
