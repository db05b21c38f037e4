"""Figures of the tables' fence and of looking ahead: fork, wanted, threads, start from a warm cache.

Called by `make bench-live` beside `benchmarks/live.py`. Times are of the thread's own processor, wall time beside.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from live_figures import at_least, at_most

from wattflow.clusters import load_cluster
from wattflow.live import FINISHED, LOAD, STARTED, TASK, Engine
from wattflow.live.fork import fork
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant

CURVE = PowerProfile((0.0, 64.0), (60.0, 240.0))


def timed(function: Callable[[], object], turns: int) -> tuple[float, float]:
    """Medians over the turns: (processor seconds of this thread, wall seconds)."""
    cpu, wall = [], []
    for _ in range(turns):
        began, at = time.thread_time(), time.perf_counter()
        function()
        cpu.append(time.thread_time() - began)
        wall.append(time.perf_counter() - at)
    return float(np.median(cpu)), float(np.median(wall))


def loaded(running: int = 33_000) -> Engine:
    """5,000 nodes on which so many tasks run."""
    engine = Engine("least-energy", load_cluster("bench-5000"))
    shapes = [engine.shape((Variant(cores=0.5, memory_bytes=(1 + k) << 27),)) for k in range(12)]
    for tag in range(running):
        engine.put(TASK, shapes[tag % 12], estimate_s=100.0, tag=tag)
    for placement in engine.step(0.0).placements:
        engine.put(STARTED, placement.attempt)
    engine.step(0.0)
    assert engine.counts["running"] == running, engine.counts
    return engine


def forks(engine: Engine) -> None:
    """A whole copy, ready to go on."""
    kept, running = [], engine.counts["running"]
    cpu, wall = timed(lambda: kept.append(fork(engine)) or kept.pop(), 15)
    size = sum(getattr(engine.state, name).nbytes for name in engine.state.NAMES)
    print(f"fork: {size / 1e6:.0f} MB of tables")
    at_most(f"fork_{running}_running", cpu * 1e3, "ms", 5, f" (wall {wall * 1e3:.3g})")
    spare = engine.state.copy()
    cpu, wall = timed(lambda: spare.copy_from(engine.state), 15)
    print(f"the State copied into memory that is there: {cpu * 1e3:.3g} ms (wall {wall * 1e3:.3g})")


def small(seed: int, tasks: int) -> Engine:
    """20 nodes that differ and take everything: each decision shows at most 20 rows."""
    nodes = tuple(Node(f"n{i}", 64 + i, 2**50, power=CURVE, allocatable_cores=1e9) for i in range(20))
    engine = Engine("least-energy", Cluster("small", nodes), seed=seed)
    shapes = [engine.shape((Variant(cores=0.001 * (1 + k)),)) for k in range(4)]
    for tag in range(tasks):
        engine.put(TASK, shapes[(seed + tag) % 4], estimate_s=1.0, tag=tag)
    return engine


def wanted_one(tasks: int = 20_000) -> None:
    """One environment, asked from Python."""
    hand = small(0, tasks).by_hand(rows=32)
    hand.open(0.0)
    task, rows = hand.wanted()
    most = len(rows)
    decisions = 0
    began, at = time.thread_time(), time.perf_counter()
    while task >= 0:
        task, rows = hand.wanted(0)
        decisions += 1
    cpu, wall = time.thread_time() - began, time.perf_counter() - at
    assert decisions == tasks
    assert most <= 20
    rate = decisions / cpu / 1e3
    at_least("wanted_one", rate, "k/s", 150, f" (wall {decisions / wall / 1e3:.4g}, {most} rows)")


def queued_s(*threads: int) -> float:
    """Seconds that threads were ready to run but had no processor, as far as the system tells."""
    try:
        return sum(int(Path(f"/proc/self/task/{one}/schedstat").read_text().split()[1]) for one in threads) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def held_up(engine: Engine, turns: int = 5) -> None:
    """How long another thread waits at most while the engine is busy in compiled code; for a processor does not count.

    The other thread looks at the clock all the time. Of a gap in what it sees, its own processor time and the time that
    other programs had the processors of both threads are taken off: what is left it waited for the engine.
    """
    shape = engine.shape((Variant(cores=1.0, memory_bytes=1 << 30),))
    for k, node in enumerate(engine.nodes.values()):  # nodes that all differ: each decision looks at thousands
        engine.put(LOAD, node, cores=(1 + k % 997) / 1000, memory_bytes=(1 + k) << 10)
    gaps: list[float] = []
    stop, stepping = threading.Event(), threading.get_native_id()

    def watch() -> None:
        both = stepping, threading.get_native_id()
        last, used, queued = time.perf_counter(), time.thread_time(), queued_s(*both)
        while not stop.is_set():
            now = time.perf_counter()
            if now - last > 1e-3:
                waited = (time.thread_time() - used) + (queued_s(*both) - queued)
                gaps.append(now - last - waited)
            last, used, queued = time.perf_counter(), time.thread_time(), queued_s(*both)

    spent = 0.0
    for turn in range(turns):
        placed = engine.step(1.0 + turn).placements
        for placement in placed:
            engine.put(FINISHED, placement.attempt)
        for tag in range(1_000):
            engine.put(TASK, shape, estimate_s=1.0, tag=tag)
        stop.clear()
        watcher = threading.Thread(target=watch)
        watcher.start()
        gc.disable()  # a collection of the whole process holds all threads up, whoever works
        began = time.perf_counter()
        last = engine.step(1.5 + turn)
        spent = max(spent, time.perf_counter() - began)
        gc.enable()
        stop.set()
        watcher.join()
        for placement in last.placements:
            engine.put(FINISHED, placement.attempt)
    worst = max(gaps, default=0.0) * 1e3
    print(f"the longest step of 1,000 placements took {spent * 1e3:.0f} ms; the other thread noticed {len(gaps)} gaps")
    at_most("other_thread_held_up", worst, "ms", 5)


def warm_start() -> None:
    """From nothing to the first placement, with code that `wattflow warm` compiled."""
    code = (
        "from wattflow.live import Engine, TASK\n"
        "from wattflow.clusters import load_cluster\n"
        "from wattflow.model.workflow import Variant\n"
        "e = Engine('least-energy', load_cluster('mixed'))\n"
        "e.put(TASK, e.shape((Variant(cores=1),)), estimate_s=1.0)\n"
        "assert e.step(0.0).placements\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "wattflow.cli", "warm", folder, "-p", "least-energy"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        env = os.environ | {"WATTFLOW_CACHE": folder}
        env.pop("NUMBA_CPU_NAME", None)
        best_cpu, best = np.inf, np.inf
        for _ in range(3):
            before, at = os.times(), time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=env)
            after = os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            best_cpu, best = min(best_cpu, used), min(best, time.perf_counter() - at)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    print(f"the warm cache has {size / 1e6:.0f} MB")
    at_most("start_from_warm_cache", best_cpu, "s", 2, f" (wall {best:.3g})")


def figures(running: int, wanted: set[str] | None = None) -> None:
    """All figures, or some by name."""
    parts: dict[str, Callable[[], None]] = {"one": wanted_one, "warm": warm_start}
    for name, part in parts.items():
        if not wanted or name in wanted:
            part()
    needs_load: dict[str, Callable[[Engine], None]] = {"fork": forks, "held": held_up}
    if not wanted or wanted & set(needs_load):
        engine = loaded(running)
        for name, one in needs_load.items():
            if not wanted or name in wanted:
                one(engine)


if __name__ == "__main__":
    figures(33_000, set(sys.argv[1:]))
