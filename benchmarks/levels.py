"""Levels without a GPU (`make bench-levels`): the profiler against a recorded sweep, and owners of levels killed.

The sweep is of three kernels on one H200 (`research/data/h200_clocks.csv`), eight clocks each. Kills are real:
processes that hold levels on a played tree of the kernel's files get SIGKILL or SIGTERM, every fourth after its
watchdog; then the next start has to give back. Ends with one line per figure.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from levels_gpu import KILLS, against_sweep, figure, tell_missing

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.levels import sysfs
from wattflow.levels.clock_grid import LOWEST
from wattflow.levels.holder import Holder
from wattflow.levels.response import LevelRun, Response
from wattflow.levels.unseen import FullClock, clock_share, predict

RECORDED = Path(__file__).parents[1] / "research" / "data" / "h200_clocks.csv"
COUNTED = RECORDED.with_name("h200_kernels.json")
IDLE_W = 124.0
"""Of an H200 with a context at full clock (`research/data/h200_kernels.json`)."""
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


def counters() -> dict[str, dict[str, tuple[float, float]]]:
    """Read busy shares of GPU and memory at full clock, medians of three windows, of nine kernels by class."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for key, row in json.loads(COUNTED.read_text())["kernels"].items():
        rows = found.setdefault(row["class"], {}).setdefault(key.split("/")[0], [])
        rows.append((row["gpu_busy"], row["memory_busy"]))
    return {
        kind: {name: (float(np.median([a for a, _ in rows])), float(np.median([b for _, b in rows])))
               for name, rows in kernels.items()}
        for kind, kernels in found.items()
    }  # fmt: skip


def unseen_errors(levels: dict[float, LevelRun], busy: float, memory: float, lowest: float) -> list[float]:
    """Return errors of seconds and joules at each level below full clock, from the run at full clock and counters."""
    full, errors = levels[max(levels)], []
    run = FullClock(full.seconds, full.joules, full.clock_seen or full.level, busy, memory)
    for level in sorted(one for one in levels if lowest <= one < full.level):
        if (found := predict(run, full.level, IDLE_W, level)) is not None:
            measured = (levels[level].seconds, levels[level].joules)
            errors += [abs(one.value / value - 1) for one, value in zip(found, measured, strict=True)]
    return errors


def from_counters(kernels: dict[str, dict[float, LevelRun]]) -> None:
    """Print how a kernel that never ran below full clock is predicted from its counters, or that it is unknown.

    Nothing is fitted, so each kernel is left out. Levels are those that agents offer, down to half of full clock.
    """
    known = counters()
    by_name = {name: pair for some in known.values() for name, pair in some.items()}
    for name in sorted(kernels.keys() & by_name.keys()):
        half = LOWEST * max(kernels[name])
        for what, lowest in (("", half), ("_all_levels", 0.0)):
            errors = [100 * one for one in unseen_errors(kernels[name], *by_name[name], lowest)]
            if errors:
                middle, about = float(np.median(errors)), f"% of {len(errors)} ({name})"
                figure(f"levels.counters.unseen{what}_median", middle, about, "≤ 5", middle <= 5)
                figure(f"levels.counters.unseen{what}_worst", max(errors), about, "none", True)
            elif not what:
                print(f"figure levels.counters.unseen_median nan ({name}) goal ≤ 5 short (unknown, so full clock)")
    # No one has read its memory's counter, so it is unknown; were it bound by arithmetic, as its curve says it is:
    errors = [100 * one for one in unseen_errors(kernels["fft"], 1.0, 0.0, LOWEST * max(kernels["fft"]))]
    about = f"% of {len(errors)} (fft, its counters not recorded: taken as 1 and 0)"
    figure("levels.counters.supposed_median", float(np.median(errors)), about, "none", True)
    figure("levels.counters.supposed_worst", max(errors), about, "none", True)
    unknown = {kind: sum(clock_share(*pair) is None for pair in some.values()) for kind, some in known.items()}
    told = ", ".join(f"{count} of {len(known[kind])} {kind}" for kind, count in sorted(unknown.items()))
    right = unknown == {kind: len(some) if kind == "memory" else 0 for kind, some in known.items()}
    figure("levels.counters.unknown", sum(unknown.values()), f"kernels ({told})", "those bound by memory", right)


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
    from_counters(recorded())
    with tempfile.TemporaryDirectory() as folder:
        tree = play_sysfs(Path(folder) / "sys")
        took_s = [kill(number, tree, Path(folder) / "notes") for number in range(KILLS)]
    good = sum(one <= 5.0 for one in took_s)
    figure("levels.played.as_before_after_kills", good, f"of {KILLS}", f"{KILLS} of {KILLS} in 5 s", good == KILLS)
    figure("levels.played.slowest_return", max(took_s), "s", "≤ 5", max(took_s) <= 5)
    tell_missing()


if __name__ == "__main__":
    main()
