"""The runtime beside Dask distributed, Parsl's HTEX and a bare ProcessPoolExecutor, in one run (`make bench-runtime`).

All run a function that returns its argument, on two worker processes of this machine. Dask's tasks are pinned to
workers, as our driver
would pin them. Ours pass through the server: HTTP, the engine, a SQLite store that is synced before anything is told.
Tasks of
the sustained run ask for 0.02 CPUs (a node of two takes a hundred at once) and `isolate=False`, which is what Dask
and the pool do;
the rate of one process per task stands beside. Rounds are interleaved and the median of each side is compared,
because other work
on the machine comes and goes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIGURES: list[str] = []
ROUNDS_S = 150.0
"""No new round is begun after this long."""


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    """Keep a figure for the end, and show it now."""
    line = f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}"
    print(line, flush=True)
    FIGURES.append(line)


def same(x: int) -> int:
    return x


@contextmanager
def wattflow_server(folder: Path) -> Iterator[None]:
    """`up` to `down`, in a folder of its own."""
    os.environ["WATTFLOW_HOME"] = str(folder)
    run = [sys.executable, "-m", "wattflow.cli"]
    began = time.perf_counter()
    subprocess.run([*run, "up", "--port", "0", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    first_s = time.perf_counter() - began
    print(f"# the first start, which compiles where nothing is cached, took {first_s:.1f} s", flush=True)
    subprocess.run([*run, "down", "--quiet"], check=True)
    began = time.perf_counter()
    subprocess.run([*run, "up", "--port", "0", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    ready_s = time.perf_counter() - began
    figure("runtime_ready", ready_s, "s", "<=2", ready_s <= 2)
    try:
        yield
    finally:
        subprocess.run([*run, "down", "--quiet"], check=True)


@contextmanager
def dask_cluster() -> Iterator[Any]:
    """Two worker processes of one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def parsl_pool(folder: Path) -> Iterator[Any]:
    """HTEX with two workers."""
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Parsl starts its parts by name
    executor = HighThroughputExecutor(
        label="htex", address="127.0.0.1", max_workers_per_node=2, cores_per_worker=1, provider=LocalProvider(),
        encrypted=False,
    )  # fmt: skip
    parsl.load(Config(executors=[executor], run_dir=str(folder), strategy="none"))
    app = parsl.python_app(same)
    app(0).result()
    try:
        yield app
    finally:
        parsl.dfk().cleanup()
        parsl.clear()


def rate(count: int, start: Callable[[int], list[Any]], collect: Callable[[list[Any]], list[Any]]) -> float:
    """Tasks a second from the first submit to the last result, each side collecting in the way that is quick for it."""
    began = time.perf_counter()
    results = collect(start(count))
    took_s = time.perf_counter() - began
    if len(results) != count:
        raise RuntimeError(f"{len(results)} results of {count} tasks")
    return count / took_s


def one_by_one(futures: list[Any]) -> list[Any]:
    return [future.result() for future in futures]


def round_trips(count: int, one: Callable[[int], Any]) -> float:
    """Median milliseconds of one task after the other."""
    times = []
    for n in range(count):
        began = time.perf_counter()
        one(n).result()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("beside", "steps", "real"), help="one part instead of all")
    options = parser.parse_args()
    if options.only in (None, "beside"):
        beside_others(options)
    if options.only in (None, "steps"):
        step_times()
    if options.only in (None, "real"):
        real_and_simulated()
    print("\n".join(FIGURES))


def beside_others(options: argparse.Namespace) -> None:
    """Everything that goes through a server that is up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with wattflow_server(folder / "home"), dask_cluster() as dask, ProcessPoolExecutor(2) as pool, \
                parsl_pool(folder / "parsl") as htex:  # fmt: skip
            side_by_side(dask, pool, htex, options)
            large_dag()
            energy_closes(folder / "home")
            warm_starts(folder / "home")
            commit_times()


def real_and_simulated() -> None:
    """The same tasks through agents and through the simulator."""
    import runtime_real

    for name, value, unit in runtime_real.figures(runtime_real.compared()):
        figure(name, value, unit)


def side_by_side(dask: Any, pool: ProcessPoolExecutor, htex: Any, options: argparse.Namespace) -> None:
    import wattflow

    quick = wattflow.task(cpus=0.02, isolate=False)(same)
    alone = wattflow.task(cpus=0.02)(same)
    workers = sorted(dask.scheduler_info()["workers"])

    def pinned_submit(count: int) -> list[Any]:
        return [
            dask.submit(same, n, workers=[workers[n % 2]], allow_other_workers=False, pure=False) for n in range(count)
        ]

    def pinned_map(count: int) -> list[Any]:
        half = count // 2
        return [future for place, worker in enumerate(workers)
                for future in dask.map(same, range(place * half, (place + 1) * half), workers=[worker],
                                       allow_other_workers=False, pure=False)]  # fmt: skip

    with wattflow.Client(name="bench") as client:
        list(client.map(quick, range(50)))
        pool.submit(same, 1).result()
        client.submit(alone, 1).result()
        rates: dict[str, list[float]] = {}
        trips: dict[str, list[float]] = {}
        began = time.perf_counter()
        for number in range(options.rounds):
            if number and time.perf_counter() - began > ROUNDS_S:
                print(f"# {number} rounds instead of {options.rounds}: the machine is busy", flush=True)
                break
            sides: dict[str, tuple[int, Callable[[int], list[Any]]]] = {
                "wattflow": (options.tasks, lambda n: [client.submit(quick, i) for i in range(n)]),
                "dask_submit": (options.tasks // 2, pinned_submit),
                "dask_map": (options.tasks, pinned_map),
                "process_pool": (options.tasks, lambda n: [pool.submit(same, i) for i in range(n)]),
                "parsl_htex": (options.tasks // 4, lambda n: [htex(i) for i in range(n)]),
                "wattflow_process_per_task": (
                    options.tasks // 10,
                    lambda n: [client.submit(alone, i) for i in range(n)],
                ),
            }
            for side, (count, start) in sides.items():
                collect = dask.gather if side.startswith("dask") else one_by_one
                rates.setdefault(side, []).append(rate(count, start, collect))
            ones: dict[str, Callable[[int], Any]] = {
                "wattflow": lambda n: client.submit(quick, n),
                "dask": lambda n: dask.submit(same, n, workers=[workers[0]], allow_other_workers=False, pure=False),
                "process_pool": lambda n: pool.submit(same, n),
                "parsl_htex": lambda n: htex(n),
            }
            for side, one in ones.items():
                trips.setdefault(side, []).append(round_trips(100, one))
        for side, values in rates.items():
            print(f"# rate {side}: {', '.join(f'{value:.0f}' for value in values)} tasks/s")
            if side != "wattflow":
                figure(f"runtime_rate_{side}", statistics.median(values), "tasks/s")
        ours, theirs = (
            statistics.median(rates["wattflow"]),
            max(statistics.median(rates[s]) for s in ("dask_submit", "dask_map")),
        )
        figure("runtime_rate", ours, "tasks/s")
        figure("runtime_rate_over_dask", ours / theirs, "x", ">=1.5", ours >= 1.5 * theirs)
        for side, values in trips.items():
            figure(f"runtime_round_trip_{side}", statistics.median(values), "ms")
        ratio = statistics.median(trips["wattflow"]) / statistics.median(trips["dask"])
        figure("runtime_round_trip_over_dask", ratio, "x", "<=1.5", ratio <= 1.5)


def large_dag(count: int = 10_000) -> None:
    """Ten thousand tasks in layers of a hundred, each waiting for two of the layer before."""
    import wattflow

    step = wattflow.task(cpus=0.02, isolate=False)(lambda a=0, b=0: a + b + 1)
    began = time.perf_counter()
    with wattflow.Client(name="dag") as client:
        layer = [client.submit(step) for _ in range(100)]
        done = list(layer)
        while len(done) < count:
            layer = [client.submit(step, layer[i], layer[(i + 1) % 100]) for i in range(100)]
            done += layer
        finished = sum(future.result() > 0 for future in done)
    figure("runtime_dag_tasks", finished, "tasks", f"{count}", finished == count)
    figure("runtime_dag_s", time.perf_counter() - began, "s")


def energy_closes(home: Path) -> None:
    """Joules of all tasks and of the node's accounts against the meter."""
    import sqlite3

    import wattflow

    def burn(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    with wattflow.Client(name="energy") as client:
        futures = [client.submit(burn, 0.5) for _ in range(8)]
        told = sum(future.energy().joules for future in futures)
    with sqlite3.connect(home / "store.db") as store:
        mine = store.execute("select sum(energy_j) from attempts a join tasks t on t.id = a.task where t.workflow = ?",
                             (client.workflow,)).fetchone()[0]  # fmt: skip
        counted, accounts = store.execute(
            "select sum(counted_j), sum(idle_j + tasks_j + unattributed_j) from energy"
        ).fetchone()
        charged, windows = store.execute(
            "select (select sum(energy_j) from attempts), (select sum(tasks_j) from energy)"
        ).fetchone()
    error = 100 * max(abs(told - mine) / mine, abs(accounts - counted) / counted, abs(charged - windows) / windows)
    figure("runtime_energy_error", error, "%", "<=1", error <= 1)


def commit_times() -> None:
    """The server's own measure of its last group commits and turns."""
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.home import Home

    home = Home.of()
    status = Connection(home.url(), home.token("operator")).call("GET", "/v1/status")
    figure("runtime_group_commit_p50", 1e3 * status["commit_p50_s"], "ms")
    late = 1e3 * status["commit_p99_s"]
    figure("runtime_group_commit_p99", late, "ms", "<=5", late <= 5)
    for part in ("collecting", "statements", "disk"):
        for share in ("p50", "p99"):
            figure(f"runtime_group_{part}_{share}", 1e3 * status[f"commit_{part}_{share}_s"], "ms")
    syncs_s = sorted(disk_syncs(home.folder))
    figure("runtime_disk_sync_p50", 1e3 * statistics.median(syncs_s), "ms")
    figure("runtime_disk_sync_p99", 1e3 * syncs_s[int(0.99 * len(syncs_s))], "ms")
    figure("runtime_turn_p99", 1e3 * status["turn_p99_s"], "ms", "<=5", status["turn_p99_s"] <= 0.005)
    figure("runtime_turn_p99_cpu", 1e3 * status["turn_cpu_p99_s"], "ms")
    figure("runtime_loop_late_max", 1e3 * status["loop_late_max_s"], "ms")
    figure("runtime_loop_held_p999", 1e3 * status["loop_held_p999_s"], "ms")
    held = 1e3 * status["loop_held_max_s"]
    figure("runtime_loop_held_max", held, "ms", "<=5", held <= 5)


def disk_syncs(folder: Path, count: int = 300, size: int = 32 << 10) -> Iterator[float]:
    """Seconds that the disk itself takes to hold a group's bytes for good: no commit can be quicker."""
    file = os.open(folder / "syncs", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        for number in range(count):
            os.pwrite(file, bytes(size), number * size)
            began = time.perf_counter()
            os.fdatasync(file)
            yield time.perf_counter() - began
            time.sleep(0.002)
    finally:
        os.close(file)
        (folder / "syncs").unlink()


def warm_starts(home: Path, count: int = 60) -> None:
    """From the request of a process to the first line of its task, one task after the other."""
    import sqlite3

    import wattflow

    alone = wattflow.task(cpus=0.02)(same)
    with wattflow.Client(name="warm") as client:
        for n in range(count):
            client.submit(alone, n).result()
    with sqlite3.connect(home / "store.db") as store:
        rows = store.execute(
            "select cold_s from attempts a join tasks t on t.id = a.task where t.workflow = ?", (client.workflow,)
        ).fetchall()
    middle = statistics.median(1e3 * row[0] for row in rows)
    figure("runtime_warm_start_p50", middle, "ms", "<=10", middle <= 10)


def step_times(nodes: int = 1000, waiting: int = 10_000, shapes: int = 1000, steps: int = 2000) -> None:
    """A step that folds one end and places what fits, while ten thousand tasks of a thousand shapes wait."""
    import numpy as np

    from wattflow.live import FINISHED, TASK, Engine
    from wattflow.model.cluster import Node
    from wattflow.model.profile import PowerProfile
    from wattflow.model.workflow import Variant

    rng = np.random.default_rng(0)
    engine = Engine("least-energy", max_retries=1000)
    power = PowerProfile((0.0, 8.0, 16.0), (60.0, 150.0, 200.0))
    for n in range(nodes):
        engine.node(Node(f"n{n}", cores=16, memory_bytes=64 << 30, power=power))
    kinds = [engine.shape([Variant(cores=float(rng.integers(1, 16)) + s / (10 * shapes),
    memory_bytes=int(rng.integers(1, 32)) << 30)],
                          function=f"f{s}") for s in range(shapes)]  # fmt: skip
    for n in range(waiting + 4 * nodes):
        held = n % 10 == 0
        engine.put(TASK, kinds[n % shapes], estimate_s=100.0, tag=n + 1, release_s=1e9 if held else None)
    running = [placement.attempt for placement in engine.step(0.0).placements]
    wall, cpu = [], []
    for n in range(steps):
        engine.put(FINISHED, running[n % len(running)])
        began, began_cpu = time.perf_counter(), time.thread_time()
        step = engine.step(1.0 + n)
        wall.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - began_cpu)
        running[n % len(running)] = step.placements[0].attempt if step.placements else running[(n + 1) % len(running)]
        for placement in step.placements:
            engine.put(TASK, kinds[int(rng.integers(shapes))], estimate_s=100.0, tag=placement.tag)
    late, late_wall = (1e3 * sorted(times)[int(0.99 * steps)] for times in (cpu, wall))
    print(f"# {engine.counts['waiting']} waiting, {engine.counts['running']} running")
    figure("runtime_step_p99_wall", late_wall, "ms")
    figure("runtime_step_p99", late, "ms", "<=1", late <= 1)


if __name__ == "__main__":
    main()
