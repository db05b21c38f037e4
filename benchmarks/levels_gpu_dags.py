"""DAGs of nine kinds of kernels on a real GPU, through a real server and a real agent (part ``dags`` of `levels_gpu`).

A DAG is three chains, one for each class of `levels_kernels` (arithmetic, memory, launching), each kernel called so
often that all nine take the same time at default clocks, so that each class has a third. Modes, by turns, the order
rotated from repeat to repeat:

- ``default``   levels off, default clocks: what all others are compared with
- ``levels``    `wattflow` as a server runs it; responses from profiles of the part ``sweep`` (``--level-profile``)
- ``deadline``  a deadline of 1.3 × the makespan at default clocks, and nobody waits for less (``wait=inf``)
- ``clock:MHZ``, ``cap:W``  one clock, or one limit, for all: the best of each is known in hindsight only

Joules are NVML's counter from the submission on, idle included, to one common end: the later of the two ends, or the
deadline. Raw rows have the counter twenty times a second, so another end can be taken later.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import levels_kernels
import numpy as np
from levels_kernels import KERNELS, default_rounds

from wattflow import task
from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.function_profile import FunctionProfile, choose_runs
from wattflow.levels.holder import Holder
from wattflow.levels.response import LevelRun
from wattflow.runtime.client import Client
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

EACH_S, PLAYED_S, SLACK, LOOK_S = 4.0, 0.2, 1.3, 0.05
POLICIES = {
    "default": "wattflow:levels=off:shield=kubernetes",
    "levels": "wattflow",
    "deadline": "wattflow:wait=inf:shield=none",
}
CLOCKS, CAPS = (1485, 1290), (600, 500, 400)
RIVALS = tuple(f"clock:{mhz}" for mhz in CLOCKS) + tuple(f"cap:{watts}" for watts in CAPS)
MODES = (*POLICIES, *RIVALS)
CLASSES = ("compute", "memory", "launch")
Row = dict[str, Any]


def work_of(name: str, played: bool) -> Any:
    """A task that calls a kernel so often; it returns when it began and ended. Played, it only waits."""

    def work(calls: int, each_s: float, before: object) -> tuple[float, float]:
        import time as clock

        began_s = clock.time()
        if played:
            clock.sleep(calls * each_s)
            return began_s, clock.time()
        import torch

        call = KERNELS[name][1](torch)
        for number in range(calls):
            call()
            if number % 8 == 7:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return began_s, clock.time()

    work.__qualname__ = work.__name__ = name
    return task(cpus=1, gpu=1)(work)


class Sampler:
    """Reads counter and clock of the GPU all the time."""

    def __init__(self) -> None:
        self.meter, self.rows, self._end = NvmlMeter((0,)), [], threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        while not self._end.is_set():
            at_s, counted = time.time(), float(self.meter.read().joules["gpu-0"] or 0.0)
            if self.rows and counted < self.rows[-1][1]:
                raise SystemExit("the GPU's energy counter fell; nothing can be said of this run")
            self.rows.append((at_s, counted, float(self.meter.about("gpu-0")["sm_mhz"] or 0.0)))
            time.sleep(LOOK_S)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.meter.close()


def cli(*words: str) -> str:
    """Type a command."""
    command = [sys.executable, "-m", "wattflow.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def profiles(kept: Row, folder: Path) -> list[Path]:
    """Write a profile of each kernel from the rows of the sweep: the runs that the profiler would have chosen."""
    found, about = [], kept["look"]["device"]
    for name in KERNELS:
        rows = {
            float(key.split("/")[1]): row for key, row in kept.get("sweep", {}).items() if key.split("/")[0] == name
        }
        if not rows:
            continue
        levels = {mhz: LevelRun(mhz, row["seconds"], row["joules"], row["clock_mhz"]) for mhz, row in rows.items()}
        idle_w = kept["look"]["idle_with_context_w"]
        runs = choose_runs(levels.__getitem__, list(levels), idle_w).runs
        found.append(folder / f"{name}.json")
        FunctionProfile(name, about["model"], "clock_mhz", idle_w, runs, "nvml", "", about["driver"]).write(found[-1])
    return found


@contextmanager
def rig(kept: Row, played: bool) -> Iterator[Home]:
    """Start a server and an agent that may set the GPU's clock, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="wattflow-levels-") as name:
        folder = Path(name)
        os.environ["WATTFLOW_HOME"] = str(folder / "home")
        cli("up", "--no-agent", "--policy", POLICIES["default"], "--port", "0")
        home, token = Home.of(folder / "home"), folder / "token"
        token.write_text(cli("token", "create", "n", "--role", "agent"))
        token.chmod(0o600)
        words = ["server", "agent", "--server", str(home.url()), "--token-file", str(token), "--name", "n", "--levels",
                 "--preload", "cloudpickle" if played else "cloudpickle,torch",
                 "--folder", str(folder / "agent")]  # fmt: skip
        words += [word for path in profiles(kept, folder) for word in ("--level-profile", str(path))]
        with (folder / "agent.log").open("ab") as log:
            agent = subprocess.Popen([sys.executable, "-m", "wattflow.cli", *words], stderr=log)
        try:
            connection = Connection(home.url(), home.token("user"))
            until(lambda: any(one["state"] == "on" for one in connection.call("GET", "/v1/nodes")), 120.0)
            yield home
        finally:
            agent.terminate()
            agent.wait()
            cli("down")


def until(true: Callable[[], bool], limit_s: float) -> None:
    """Wait until something is so."""
    end_s = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end_s:
            raise SystemExit(f"not so within {limit_s:g} s; the agent's log is in the folder of the rig")
        time.sleep(0.05)


def run_dag(home: Home, mode: str, seconds: dict[str, float], deadline_s: float | None, each_s: float) -> Row:
    """Run the DAG once; what each task took, and the counter until after the common end."""
    calls, played = default_rounds(seconds, each_s), each_s == PLAYED_S
    name = f"{mode.replace(':', '-')}-{time.time_ns()}"
    with Sampler() as sampler, Client(home.url(), home.token("user"), name=name, deadline=deadline_s) as client:
        began_s, futures = time.time(), {}
        for kind in CLASSES:
            before: object = None
            for kernel in (one for one in KERNELS if KERNELS[one][0] == kind):
                before = client.submit(work_of(kernel, played), calls[kernel], seconds[kernel], before)
                futures[kernel] = before
        spans = {kernel: future.result(600) for kernel, future in futures.items()}
        ended_s = max(end for _, end in spans.values())
        until(lambda: sampler.rows[-1][0] > began_s + SLACK * 1.05 * (ended_s - began_s), 600.0)
    samples = [(round(at - began_s, 3), round(counted, 3), mhz) for at, counted, mhz in sampler.rows]
    return {"makespan_s": ended_s - began_s, "samples": samples, "deadline_s": deadline_s, "played": played,
            "tasks": {kernel: (a - began_s, b - began_s) for kernel, (a, b) in spans.items()}}  # fmt: skip


def dags(kept: Row, keep: Callable[[str, str, object], None], end_s: float, repeats: int, played: bool) -> None:
    """Run what is missing until a monotonic time, a repeat's modes behind each other."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cloudpickle.register_pickle_by_value(levels_kernels)
    seconds = ({name: 0.01 for name in KERNELS} if played else
               {name: statistics.median(kept["kernels"][f"{name}/{repeat}"]["seconds"] for repeat in range(3))
                for name in KERNELS})  # fmt: skip
    done = kept.get("dags", {})
    with rig(kept, played) as home:
        operator = Connection(home.url(), home.token("operator"))
        # Once for nothing: the first tasks load what all later ones find loaded.
        run_dag(home, "first", seconds, None, PLAYED_S if played else 0.0)
        for repeat in range(repeats):
            # Rotated, so that no mode is always behind the same one; at first the default: its makespan is needed.
            for mode in (*MODES[repeat % len(MODES) :], *MODES[: repeat % len(MODES)]):
                if f"{mode}/{repeat}" in done or time.monotonic() > end_s:
                    continue
                known = [row["makespan_s"] for key, row in done.items() if key.startswith("default/")]
                deadline_s = SLACK * statistics.median(known) if mode == "deadline" and known else None
                operator.call("POST", "/v1/policy", {"policy": POLICIES.get(mode, POLICIES["default"])})
                with held(mode):
                    row = run_dag(home, mode, seconds, deadline_s, PLAYED_S if played else EACH_S)
                keep("dags", f"{mode}/{repeat}", row)
                done = {**done, f"{mode}/{repeat}": row}


@contextmanager
def held(mode: str) -> Iterator[None]:
    """Hold one clock, or one limit, for a rival's run."""
    knob = {"clock": "gpu-0.clock_mhz", "cap": "gpu-0.cap_w"}.get(mode.partition(":")[0])
    holder = Holder(find_actuators(), notes_folder()) if knob is not None else None
    try:
        if holder is not None and knob is not None:
            holder.set(knob, float(mode.partition(":")[2]))
        yield
    finally:
        if holder is not None:
            holder.close()


def joules(row: Row, first_s: float, last_s: float) -> float:
    """Joules of the counter between two times of a run."""
    at, counted, _ = (np.array(column) for column in zip(*row["samples"], strict=True))
    return float(np.interp(last_s, at, counted) - np.interp(first_s, at, counted))


def compared(rows: Row, mode: str) -> list[tuple[float, float, dict[str, float]]]:
    """Of each repeat of a mode beside the default's: joules and makespan over it, and joules by class over it."""
    found = []
    for repeat in sorted(key.rpartition("/")[2] for key in rows if key.startswith(f"{mode}/")):
        ours, base = rows[f"{mode}/{repeat}"], rows.get(f"default/{repeat}")
        if base is None:
            continue
        end_s = max(ours["makespan_s"], base["makespan_s"], ours["deadline_s"] or 0.0)
        share = joules(ours, 0.0, end_s) / joules(base, 0.0, end_s)
        by_class = {kind: by_kind(ours, kind) / by_kind(base, kind) for kind in CLASSES}
        found.append((share, ours["makespan_s"] / base["makespan_s"], by_class))
    return found


def by_kind(row: Row, kind: str) -> float:
    """Joules while tasks of a class ran: one at a time has the GPU."""
    return sum(joules(row, *row["tasks"][name]) for name in KERNELS if KERNELS[name][0] == kind)


def tell_dags(rows: Row, figure: Callable[[str, float, str, str, bool], None], ground: str) -> None:
    """Print the figures of the rows that are there."""
    for mode, goal, title in (("levels", 10.0, "saved"), ("deadline", 18.0, "saved_with_deadlines")):
        if found := compared(rows, mode):
            saved, longer = (
                100 * (1 - statistics.mean(one[0] for one in found)),
                statistics.mean(one[1] for one in found),
            )
            figure(f"levels.{ground}.{title}", saved, f"% ({len(found)} repeats)", f"≥ {goal:g}", saved >= goal)
            for kind in CLASSES:
                part = 100 * (1 - statistics.mean(one[2][kind] for one in found))
                figure(f"levels.{ground}.{title}.{kind}", part, "%", "none", True)
            if mode == "levels":
                figure(f"levels.{ground}.makespan", longer, "times", "≤ 1.02", longer <= 1.02)
    late = [row["makespan_s"] > row["deadline_s"] for row in rows.values() if row["deadline_s"] is not None]
    if late:
        figure(f"levels.{ground}.deadlines_missed", sum(late), f"of {len(late)}", "0", not any(late))
    tell_rivals(rows, figure, ground)


def tell_rivals(rows: Row, figure: Callable[[str, float, str, str, bool], None], ground: str) -> None:
    """Print the best single clock and the best single limit of all repeats, at any makespan and within 1.02."""
    for kind in ("clock", "cap"):
        known = {mode: compared(rows, mode) for mode in RIVALS if mode.startswith(kind)}
        means = {
            mode: [statistics.mean(one[i] for one in found) for i in (0, 1)] for mode, found in known.items() if found
        }
        for title, most in (("any_makespan", float("inf")), ("within_1.02", 1.02)):
            able = {mode: share for mode, (share, longer) in means.items() if longer <= most}
            if means:
                best = min(able, key=able.__getitem__, default="default")
                saved = 100 * (1 - able.get(best, 1.0))
                figure(f"levels.{ground}.one_{kind}_in_hindsight.{title}", saved, f"% ({best})", "none", True)
