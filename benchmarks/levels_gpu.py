"""Levels on a real NVIDIA GPU, in parts that can be resumed (`make bench-levels-gpu`).

    python benchmarks/levels_gpu.py PART… --out FILE [--set-clocks]

- ``look``     only reads: which knobs there are, whether a process of somebody else is seen, and seconds, joules and
               load of the nine kernels at default clocks, which fixes how often each is called
- ``sweep``    every kernel at every level of a grid (exhaustive)
- ``profile``  the profiler against that sweep: joules lost, predictions of levels that were never run
- ``kills``    an owner of levels killed again and again: clocks and limits as before, and how soon
- ``dags``     DAGs of the nine kernels through a real server and agent, beside opponents (`levels_gpu_dags`)

``look``, ``sweep`` and ``dags`` build on each other, in this order; ``dags`` is called again until all is there.
All but ``look`` change clocks. They need root, a GPU that nobody else uses, and ``--set-clocks``, which says that
whoever runs the machine allows it: a shared machine's operator may forbid it. FILE holds raw rows; what it has is not
measured again. Needs torch and NVML. Ends with one line per figure; what was not run is said to be short. ``--played``
tries ``dags`` without a card, on a played driver library: such rows have figures of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import levels_gpu_dags
from levels_kernels import KERNELS, default_rounds

from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.function_profile import choose_runs
from wattflow.levels.gpu_clocks import NvmlActuator, load_calls
from wattflow.levels.holder import Holder
from wattflow.levels.response import LevelRun, Response

CLOCK, LIMIT = "gpu-0.clock_mhz", "gpu-0.cap_w"
WINDOW_S, WARM_S = 2.5, 0.8
LEVELS = (1980, 1860, 1740, 1620, 1500, 1380, 1260, 1140, 1020, 900)
SLACKS = (1.02, 1.1, 1.3, 9.0)
KILLS = 50
DEADLINE_S = 500.0
"""A part stops in time for the nine minutes that a call may have; the next call goes on."""
BEGAN_S = time.monotonic()
LAST_DAG_S = 420.0
"""No DAG begins later in a part: one takes about a minute."""
GOALS = {
    "saved": "≥ 10", "makespan": "≤ 1.02", "saved_with_deadlines": "≥ 18", "deadlines_missed": "0",
    "predicted_median": "≤ 5", "joules_lost": "≤ 2", "as_before_after_kills": f"{KILLS} of {KILLS}",
    "one_clock_in_hindsight.any_makespan": "none", "one_cap_in_hindsight.any_makespan": "none", "zeus_by_sweep": "none",
}  # fmt: skip
"""Figures of a card whose clocks may be set."""
TOLD: set[str] = set()


def figure(name: str, value: float, unit: str, goal: str, ok: bool) -> None:
    """Print one figure."""
    TOLD.add(name)
    print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}", flush=True)


def tell_missing() -> None:
    """Print the figures that nobody has measured here."""
    for name, goal in GOALS.items():
        if f"levels.gpu.{name}" not in TOLD:
            why = "not measured: `make bench-levels-gpu` on a card whose clocks may be set"
            print(f"figure levels.gpu.{name} nan goal {goal} short ({why})")


class Rows:
    """Raw rows in a JSON file, saved after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, part: str, key: str, value: object) -> None:
        """Keep a row."""
        self.all.setdefault(part, {})[key] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.all, indent=1) + "\n")

    def has(self, part: str, key: str) -> bool:
        """Return whether a row is there."""
        return key in self.all.get(part, {})


def window(call: Callable[[], object], torch: Any, meter: NvmlMeter, seconds: float = WINDOW_S) -> dict[str, float]:
    """Call for some seconds; seconds and joules of one call by the energy counter, and the GPU's load meanwhile."""
    nvml: Any = load_calls()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    clocks, busy, memory, calls = [], [], [], 0
    torch.cuda.synchronize()
    first = meter.read()
    while time.monotonic() - first.time_s < seconds:
        for _ in range(8):
            call()
        calls += 8
        torch.cuda.synchronize()
        clocks.append(nvml.nvmlDeviceGetClockInfo(handle, 1))
        load = nvml.nvmlDeviceGetUtilizationRates(handle)
        busy.append(load.gpu)
        memory.append(load.memory)
    last = meter.read()
    spent_s, joules = last.time_s - first.time_s, float(last.joules["gpu-0"] or 0) - float(first.joules["gpu-0"] or 0)
    return {"seconds": spent_s / calls, "joules": joules / calls, "watts": joules / spent_s, "calls": calls,
            "clock_mhz": statistics.median(clocks[len(clocks) // 2 :]), "gpu_busy": statistics.mean(busy) / 100,
            "memory_busy": statistics.mean(memory) / 100}  # fmt: skip


def warmed(name: str, torch: Any) -> Callable[[], object]:
    """Make a kernel's call and have it run for a while."""
    call: Callable[[], object] = KERNELS[name][1](torch)
    end_s = time.monotonic() + WARM_S
    while time.monotonic() < end_s:
        call()
        torch.cuda.synchronize()
    return call


def look(rows: Rows) -> None:
    """Read only: knobs, processes, and the nine kernels at default clocks."""
    import torch

    actuator, meter = NvmlActuator(), NvmlMeter((0,))
    knobs = {knob.id: {"low": knob.low, "high": knob.high, "who": knob.who, "now": actuator.read(knob)}
             for knob in actuator.knobs()}  # fmt: skip
    rows.keep("look", "knobs", knobs)
    rows.keep("look", "device", dict(meter.about("gpu-0")))
    rows.keep("look", "foreign", foreign_seen(actuator))
    time.sleep(1.0)
    torch.zeros(1, device="cuda")
    before = meter.read()
    time.sleep(2.0)
    after = meter.read()
    idle_w = (float(after.joules["gpu-0"] or 0) - float(before.joules["gpu-0"] or 0)) / (after.time_s - before.time_s)
    rows.keep("look", "idle_with_context_w", idle_w)
    rows.all["kernels"] = {key: row for key, row in rows.all.get("kernels", {}).items() if key.split("/")[0] in KERNELS}
    for repeat in range(3):
        for name, (kind, _) in KERNELS.items():
            key = f"{name}/{repeat}"
            if not rows.has("kernels", key) and time.monotonic() - BEGAN_S < DEADLINE_S:
                rows.keep("kernels", key, {"class": kind, **window(warmed(name, torch), torch, meter)})
                torch.cuda.empty_cache()
    meter.close()


def foreign_seen(actuator: NvmlActuator) -> dict[str, object]:
    """Start a process with work on the GPU and look whether NVML shows it, under the number that we know it by."""
    code = "import torch; a = torch.ones(1 << 20, device='cuda'); print(1, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    seen = sorted(actuator.users(actuator.knobs()[0]))
    process.communicate(b"\n")
    return {"pid": process.pid, "seen": seen, "after": sorted(actuator.users(actuator.knobs()[0]))}


def sweep(rows: Rows) -> None:
    """Measure every kernel at every level."""
    import torch

    holder, meter = Holder(find_actuators(), notes_folder()), NvmlMeter((0,))
    try:
        for name in KERNELS:
            call = None
            for level in LEVELS:
                key = f"{name}/{level}"
                if rows.has("sweep", key) or time.monotonic() - BEGAN_S > DEADLINE_S:
                    continue
                call = call or warmed(name, torch)
                if level < LEVELS[0]:
                    holder.set(CLOCK, level)
                window(call, torch, meter, 0.3)
                rows.keep("sweep", key, window(call, torch, meter))
                holder.give_back(CLOCK)
            torch.cuda.empty_cache()
    finally:
        holder.close()
        meter.close()


def swept(rows: Rows) -> dict[str, dict[float, LevelRun]]:
    """Return the sweep by kernel and level."""
    found: dict[str, dict[float, LevelRun]] = {}
    for key, row in rows.all.get("sweep", {}).items():
        name, level = key.split("/")
        run = LevelRun(float(level), row["seconds"], row["joules"], row["clock_mhz"])
        found.setdefault(name, {})[float(level)] = run
    return {name: runs for name, runs in found.items() if len(runs) == len(LEVELS)}


def against_sweep(sweeps: dict[str, dict[float, LevelRun]], idle_w: float, ground: str) -> None:
    """Print how the profiler's few runs compare with all of them."""
    lost, errors, runs = [], [], []
    for levels in sweeps.values():
        response = choose_runs(levels.__getitem__, list(levels), idle_w)
        runs.append(len(response.runs))
        full = levels[max(levels)]
        for slack in SLACKS:
            allowed = [run.joules for run in levels.values() if run.seconds <= slack * full.seconds]
            lost.append(levels[response.best(list(levels), slack)].joules / min(allowed) - 1)
        errors += left_out(levels, idle_w)
    figure(f"levels.{ground}.joules_lost", 100 * statistics.mean(lost), "%", "≤ 2", statistics.mean(lost) <= 0.02)
    figure(f"levels.{ground}.predicted_median", 100 * statistics.median(errors), "%", "≤ 5",
           statistics.median(errors) <= 0.05)  # fmt: skip
    figure(f"levels.{ground}.runs", statistics.mean(runs), "runs", "≤ 6", max(runs) <= 6)


def left_out(levels: dict[float, LevelRun], idle_w: float) -> list[float]:
    """Errors of seconds and joules at each level below full clock, predicted from the others."""
    errors = []
    for left in sorted(levels)[:-1]:
        response = Response([run for level, run in levels.items() if level != left], idle_w)
        errors.append(abs(response.seconds(left).value / levels[left].seconds - 1))
        errors.append(abs(response.joules(left).value / levels[left].joules - 1))
    return errors


def zeus_by_sweep(kernels: dict[str, dict[float, LevelRun]]) -> None:
    """Print what Zeus' optimum of each kernel by itself saves of the kernels' own joules, each a ninth of the time."""
    spent = {"base": [0.0, 0.0], "zeus": [0.0, 0.0]}
    for levels in kernels.values():
        full = levels[max(levels)]
        most_w = max(run.joules / run.seconds for run in levels.values())
        best = min(levels.values(), key=lambda run: 0.5 * run.joules + 0.5 * most_w * run.seconds)
        for name, run in (("base", full), ("zeus", best)):
            spent[name][0] += run.joules / full.seconds
            spent[name][1] += run.seconds / full.seconds
    longer = spent["zeus"][1] / spent["base"][1]
    saved = 100 * (1 - spent["zeus"][0] / spent["base"][0])
    figure("levels.gpu.zeus_by_sweep", saved, f"% at {longer:.3f} × the time", "none", True)


OWNER = """
import time
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.holder import Holder
holder = Holder(find_actuators(), notes_folder())
holder.set("gpu-0.clock_mhz", 1200.0)
holder.set("gpu-0.cap_w", 400.0)
print(1, flush=True)
time.sleep(600)
"""


def kills(rows: Rows) -> None:
    """Kill an owner of a clock and a limit; see that both are as before."""
    actuator = NvmlActuator()
    limit = next(knob for knob in actuator.knobs() if knob.id == LIMIT)
    before_w = actuator.read(limit)
    for number in range(KILLS):
        if rows.has("kills", str(number)) or time.monotonic() - BEGAN_S > DEADLINE_S:
            continue
        process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL if number % 2 == 0 else signal.SIGTERM)
        began_s = time.monotonic()
        process.wait()
        while list(notes_folder().glob("*.json")) and time.monotonic() - began_s < 20:
            time.sleep(0.005)
        took_s = time.monotonic() - began_s
        rows.keep("kills", str(number), {"seconds": took_s, "limit_as_before": actuator.read(limit) == before_w})


def tell(rows: Rows) -> None:
    """Print the figures that the file holds."""
    kernels: dict[str, list[float]] = {}
    for key, row in rows.all.get("kernels", {}).items():
        kernels.setdefault(key.split("/")[0], []).append(row["seconds"])
    if len(kernels) == len(KERNELS):
        seconds = {name: statistics.median(values) for name, values in kernels.items()}
        counts = default_rounds(seconds)
        time_s = {kind: sum(counts[name] * seconds[name] for name in KERNELS if KERNELS[name][0] == kind)
                  for kind in ("compute", "memory", "launch")}  # fmt: skip
        for kind, spent_s in time_s.items():
            share = spent_s / sum(time_s.values())
            figure(f"levels.gpu.share_{kind}", 100 * share, "%", "33 ± 1", abs(share - 1 / 3) < 0.01)
    if "foreign" in rows.all.get("look", {}):
        told = rows.all["look"]["foreign"]
        figure("levels.gpu.foreign_seen", len(told["seen"]), "processes", "≥ 1", len(told["seen"]) >= 1)
    if swept(rows):
        against_sweep(swept(rows), rows.all["look"]["idle_with_context_w"], "gpu")
        zeus_by_sweep(swept(rows))
    for ground, played in (("gpu", False), ("played_gpu", True)):
        ran = {key: row for key, row in rows.all.get("dags", {}).items() if row["played"] == played}
        levels_gpu_dags.tell_dags(ran, figure, ground)
    done = rows.all.get("kills", {})
    if done:
        good = sum(row["limit_as_before"] and row["seconds"] <= 5 for row in done.values())
        figure("levels.gpu.as_before_after_kills", good, f"of {len(done)}", f"{KILLS} of {KILLS}", good == KILLS)


PARTS: dict[str, Callable[[Rows], None]] = {"look": look, "sweep": sweep, "kills": kills}


def main() -> None:
    """Run parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "profile", "dags"])
    parser.add_argument("--out", type=Path, default=Path("out/levels_gpu.json"))
    parser.add_argument("--set-clocks", action="store_true", help="whoever runs this machine allows it")
    parser.add_argument("--repeats", type=int, default=5, help="of dags")
    parser.add_argument("--played", action="store_true", help="dags on a played driver library: tries the benchmark")
    chosen = parser.parse_args()
    changing = [part for part in chosen.parts if part in ("sweep", "kills", "dags")]
    if changing and not chosen.played and not (chosen.set_clocks and os.geteuid() == 0):
        raise SystemExit(f"{', '.join(changing)}: changes clocks; needs root and --set-clocks (see the file's head)")
    rows = Rows(chosen.out)
    for part in chosen.parts:
        if part in PARTS:
            PARTS[part](rows)
    if "dags" in chosen.parts:
        levels_gpu_dags.dags(rows.all, rows.keep, BEGAN_S + LAST_DAG_S, chosen.repeats, chosen.played)
    tell(rows)
    tell_missing()


if __name__ == "__main__":
    main()
