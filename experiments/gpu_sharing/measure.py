"""Forty GPU jobs under exclusive use, ten time slices and MPS shares, measured on a real device by NVML's counter.

    python experiments/gpu_sharing/measure.py OUT.json --repetitions 1 --parts modes,beside,shares,pairs

Every mode has its workers warm before the clock starts. Joules are those of the whole device from the first job's
start to the last one's end (NVML's energy counter where it has one); watts are sampled ten times a second beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
from wattflow.energy.gpu_load import Mps

JOBS = Path(__file__).with_name("jobs.py")
NAMES = ("mandelbrot", "matmul", "resnet18", "resnet50")
DUTY = 0.4
Found = dict[str, Any]


class Worker:
    """A warm process that runs one job at a time."""

    def __init__(self, env: dict[str, str] | None = None, jobs: str = ",".join(NAMES)) -> None:
        surroundings = dict(os.environ if env is None else env) | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [sys.executable, str(JOBS), jobs],
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.about: Found = {}

    def wait_ready(self) -> Worker:
        self.about = self._read()
        return self

    def run(self, job: str, **ask: float) -> Found:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"job": job, **ask}) + "\n")
        return self._read()

    def _read(self) -> Found:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker {self.process.pid} ended with {self.process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def workers(envs: list[dict[str, str] | None], jobs: str = ",".join(NAMES)) -> list[Worker]:
    """Started side by side, all ready."""
    made = [Worker(env, jobs) for env in envs]
    return [worker.wait_ready() for worker in made]


class Power:
    """Joules and watts of the device while a block runs."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.watts: list[tuple[float, float]] = []

    def joules(self) -> float:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(self.device) / 1000.0

    def now_w(self) -> float:
        return pynvml.nvmlDeviceGetPowerUsage(self.device) / 1000.0

    def __enter__(self) -> Power:
        self.watts, self._stop = [], threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.start_s, self.start_j = time.perf_counter(), self.joules()
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            self.watts.append((round(time.perf_counter() - self.start_s, 3), round(self.now_w(), 1)))

    def __exit__(self, *_: object) -> None:
        self.energy_j, self.seconds = self.joules() - self.start_j, time.perf_counter() - self.start_s
        self._stop.set()
        self._thread.join()


def calibrate(worker: Worker, length_s: float) -> dict[str, dict[str, float]]:
    """Iterations and host rounds per job: alone it lasts ``length_s``, with the device at work for DUTY of it."""
    sizes = {}
    for name in NAMES:
        bare = worker.run(name, iterations=20, rounds=0)
        device_s = bare["device_s"] / bare["iterations"]
        with_host = worker.run(name, iterations=10, rounds=50)
        round_s = (with_host["seconds"] - with_host["device_s"]) / 500
        rounds = max(1, round(device_s * (1 / DUTY - 1) / round_s))
        trial = worker.run(name, iterations=20, rounds=rounds)
        sizes[name] = {"iterations": max(1, round(length_s * 20 / trial["seconds"])), "rounds": rounds}
    return sizes


def batch(order: list[str], pool: list[Worker], sizes: dict[str, dict[str, float]], power: Power) -> Found:
    """Run the jobs in order, each on the next worker that is free."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in order:
        waiting.put(name)
    ends: list[Found] = []

    def serve(worker: Worker) -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            ends.append(worker.run(name, **sizes[name]))

    threads = [threading.Thread(target=serve, args=(worker,)) for worker in pool]
    with power:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ends) == len(order), "a job was lost"
    seconds = {name: [round(e["seconds"], 4) for e in ends if e["job"] == name] for name in NAMES}
    return {
        "makespan_s": power.seconds,
        "energy_j": power.energy_j,
        "mean_w": power.energy_j / power.seconds,
        "job_s": seconds,
        "duty": {n: statistics.fmean(e["device_s"] / e["seconds"] for e in ends if e["job"] == n) for n in NAMES},
        "watts": power.watts,
    }


def explore(out: Found, packings: list[tuple[int, float]], shorter: float) -> tuple[int, float]:
    """Jobs a few times shorter under several MPS packings (workers, share of each): the one with the fewest joules."""
    power, rows = Power(), out.setdefault("explored", [])
    if "sizes" not in out:
        pool = workers([None])
        out["sizes"] = calibrate(pool[0], out["length_s"])
        stop(pool)
    small = {n: size | {"iterations": round(size["iterations"] / shorter)} for n, size in out["sizes"].items()}
    for count, share in packings:
        mps = Mps().start()
        pool = workers([dict(mps.client_env(share))] * count)
        found = batch([name for _ in range(10) for name in NAMES], pool, small, power)
        del found["watts"]
        rows.append({"workers": count, "share": share, **found})
        say(f"{count} x {share:g}: {found['makespan_s']:.1f} s {found['energy_j'] / 3600:.2f} Wh")
        stop(pool)
        mps.stop()
    best = min(rows, key=lambda row: row["energy_j"])
    return best["workers"], best["share"]


def modes(
    out: Found,
    repetitions: int,
    length_s: float,
    packings: list[tuple[int, float]],
    wanted: str,
    keep: Callable[[Found], None],
) -> None:
    """The three ways to hand out the device; MPS as several packings (workers, share of each)."""
    power = Power()
    order = [name for _ in range(10) for name in NAMES]
    if "sizes" not in out:
        pool = workers([None])
        out["sizes"] = calibrate(pool[0], length_s)
        stop(pool)
    runs = out.setdefault("modes", [])
    ways: list[tuple[str, int, float]] = [("exclusive", 1, 1.0), ("time-sliced", 10, 1.0)]
    ways = [way for way in ways if way[0] in wanted] + [("mps", count, share) for count, share in packings]
    for repetition in range(repetitions):
        for mode, count, share in ways:
            say(f"{mode} {count} x {share:g} #{repetition}")
            mps = Mps().start() if mode == "mps" else Mps()
            pool = workers([dict(mps.client_env(share))] * count)
            seen = pool[0].about["multiprocessors"]
            runs.append({"mode": mode, "workers": count, "share": share, "multiprocessors": seen})
            runs[-1] |= batch(order, pool, out["sizes"], power)
            stop(pool)
            mps.stop()
            keep(out)
            say(f"  {runs[-1]['makespan_s']:.1f} s {runs[-1]['energy_j'] / 3600:.2f} Wh")


def beside(out: Found) -> None:
    """A thousand ResNet-50 inferences while matrix products run on 0–100 % of the device."""
    mps, power = Mps().start(), Power()
    percents = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    main = workers([dict(mps.client_env(1.0))], "resnet50")[0]
    others = workers([dict(mps.client_env(p / 100)) for p in percents[1:]], "matmul")
    rows = out.setdefault("beside", [])
    for percent, other in zip(percents, [None, *others], strict=True):
        found: Found = {}
        thread = None
        if other is not None:
            thread = threading.Thread(target=lambda o=other, f=found: f.update(o.run("matmul", for_s=3.5)))
            thread.start()
            time.sleep(0.3)
        with power:
            done = main.run("resnet50", iterations=250, rounds=0)  # four batches of eight images an iteration
        if thread is not None:
            thread.join()
        row = {"percent": percent, "seconds": done["seconds"], "batches": 1000, "energy_j": power.energy_j}
        rows.append(row | {"matmul_per_s": 24 * found["iterations"] / found["seconds"] if found else 0.0})
    stop([main, *others])
    mps.stop()


def shares(out: Found) -> None:
    """Watts and speed by share of the multiprocessors, in steps of 5 %, for one large and one small kernel."""
    mps, power = Mps().start(), Power()
    rows = out.setdefault("shares", [])
    steps = [s / 100 for s in range(5, 101, 5)]
    pool = workers([dict(mps.client_env(share)) for share in steps], "matmul,resnet50")
    for share, worker in zip(steps, pool, strict=True):
        for name in ("matmul", "resnet50"):
            worker.run(name, for_s=0.4)
            with power:
                done = worker.run(name, for_s=1.0)
            row = {"job": name, "share": share, "multiprocessors": worker.about["multiprocessors"]}
            row |= {"watts": power.energy_j / power.seconds, "per_s": done["iterations"] / done["seconds"]}
            rows.append(row)
    stop(pool)
    mps.stop()


def pairs(out: Found) -> None:
    """What each program loses beside each other one, both on half of the device, without host work."""
    mps = Mps().start()
    a, b = workers([dict(mps.client_env(0.5))] * 2)
    alone = {name: a.run(name, for_s=1.0) for name in NAMES}
    rows = out.setdefault("pairs", [])
    for first in NAMES:
        for second in NAMES:
            other = threading.Thread(target=b.run, args=(second,), kwargs={"for_s": 1.6})
            other.start()
            time.sleep(0.3)
            done = a.run(first, for_s=1.0)
            other.join()
            rate = (done["iterations"] / done["seconds"]) / (alone[first]["iterations"] / alone[first]["seconds"])
            rows.append({"job": first, "beside": second, "rate": rate})
    stop([a, b])
    mps.stop()


def stop(pool: list[Worker]) -> None:
    for worker in pool:
        worker.stop()


def say(text: str) -> None:
    sys.stderr.write(f"[{time.perf_counter():.0f}] {text}\n")
    sys.stderr.flush()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("out", type=Path)
    words.add_argument("--repetitions", type=int, default=1)
    words.add_argument("--length-s", type=float, default=4.5)
    words.add_argument("--parts", default="modes")
    words.add_argument("--packings", default="10x0.25", help="MPS pools, such as 10x0.25,20x0.25")
    words.add_argument("--modes", default="exclusive,time-sliced", help="beside the MPS packings")
    words.add_argument("--like", type=Path, help="sizes of an earlier measurement")
    given = words.parse_args()
    out: Found = {"length_s": given.length_s, "duty_wanted": DUTY}
    if given.like:
        earlier = json.loads(given.like.read_text())
        out["sizes"] = earlier["sizes"]
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    out["device"] = {"model": pynvml.nvmlDeviceGetName(device), "driver": pynvml.nvmlSystemGetDriverVersion()}
    out["idle_w"] = Power().now_w()
    packings = [(int(n), float(s)) for n, s in (part.split("x") for part in given.packings.split(","))]

    def keep(found: Found) -> None:
        given.out.write_text(json.dumps(found) + "\n")

    for part in given.parts.split(","):
        say(part)
        try:
            if part == "explore":
                packings = [explore(out, packings, given.length_s / 1.5)]
            elif part == "modes":
                modes(out, given.repetitions, given.length_s, packings, given.modes, keep)
            else:
                {"beside": beside, "shares": shares, "pairs": pairs}[part](out)
        finally:
            keep(out)
    for run in out.get("modes", []):
        stretch = {n: statistics.fmean(run["job_s"][n]) for n in NAMES}
        say(f"{run['mode']} {run['workers']} {run.get('share', '')}: {run['makespan_s']:.1f} s")
        say(f"  {run['energy_j'] / 3600:.2f} Wh {run['mean_w']:.0f} W {stretch} duty {run['duty']}")


if __name__ == "__main__":
    main()
