"""The compiled kernels against those of another checkout: nanoseconds per task, bytes of machine code, compile seconds.

    python benchmarks/kernel_fence.py CHECKOUT [--rounds 3] [--compile 0]

Both run in processes of their own, in turns, and of each figure the median over the rounds counts; a round's time is
the best of five after one that does not count. ``--compile 5`` compiles everything anew so often (a minute and a half
each) and prints the medians of the seconds; without it they are left out, since one run says nothing (an unchanged
kernel was seen to take 10.4 and 12.2 s).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
NS_GOAL, BYTES_GOAL, HAND_GOAL = 1.03, 1.05, 1.15
BY_HAND = ("want", "open_instant", "close_instant", "step", "step_many")
"""Kernels in which somebody else may decide in the policy's place."""
KERNELS = ("advance", "advance_plain", "fold_events", "decide_all", "run_step", *BY_HAND)
"""Those that are compared; the small ones beside them (a row that is entered, a queue ordered anew) hold little."""
_EXECUTABLE = 4
Figures = dict[str, dict[str, float]]


def code_bytes(image: bytes) -> int:
    """Sum the executable sections of an ELF object (64 bits, this machine's byte order)."""
    (table,) = struct.unpack_from("=Q", image, 0x28)
    size, count = struct.unpack_from("=HH", image, 0x3A)
    sections = (struct.unpack_from("=IIQQQQ", image, table + i * size) for i in range(count))
    return sum(section[5] for section in sections if section[2] & _EXECUTABLE)


def watch(found: Figures) -> None:
    """Note seconds and bytes of every kernel that is made from here on."""
    from numba.core import codegen

    from wattflow.kernel import jit

    library_class: Any = codegen.CodeLibrary
    keep, compiled = library_class._set_compiled_object, jit.compiled

    def kept(library: Any, image: bytes) -> None:
        keep(library, image)
        library.image = image  # of code from the cache, numba drops it once it is loaded

    library_class._set_compiled_object = kept

    def noted(signature: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        made = compiled(signature, function, *args, **kwargs)
        lacks = any(getattr(kind, "lacks", None) for kind in signature.args)
        name = function.__name__ + ("_plain" if lacks else "")
        if name in KERNELS:
            found["compile_s"][name] = time.process_time() - began
            library = next(iter(made.overloads.values())).library
            found["bytes"][name] = code_bytes(getattr(library, "image", None) or library._compiled_object)
        return made

    jit.compiled = noted


def cases() -> Iterator[tuple[str, Any, Any, str]]:
    """Name, workload, cluster, policy."""
    from dataclasses import replace

    from wattflow.clusters import load_cluster
    from wattflow.generate import benchmark_workload
    from wattflow.model.cluster import Cluster, Sleep

    plain = load_cluster("bench-64x4")
    nap = Sleep(watts=3.0, wake_s=5.0, enter_s=1.0, after_s=2.0)
    sleepy = Cluster(plain.name, tuple(replace(node, sleep=nap) for node in plain.nodes), plain.zones)
    for kind in ("independent", "dag"):
        yield f"plain_{kind}", benchmark_workload(200_000, kind, seed=1), plain, "fifo"
    load = benchmark_workload(200_000, "independent", seed=1)
    for policy in ("fifo", "most-allocated"):
        yield f"sleep_{policy.replace('-', '_')}", load, sleepy, policy


def worker(times: int) -> None:
    """Print the figures of the sources on the path: every kernel's bytes, and (``times`` > 0) ns of every case."""
    found: Figures = {"ns": {}, "joules": {}, "bytes": {}, "compile_s": {}}
    watch(found)
    from wattflow.sim.simulate import SimOptions, Simulation

    for name, workload, cluster, policy in cases():
        taken = []
        for _ in range(times + 1):
            simulation = Simulation(workload, cluster, policy, options=SimOptions(queue="strict"))
            began = time.process_time()
            run = simulation.run()
            taken.append(time.process_time() - began)
        found["ns"][name] = 1e9 * min(taken[1:], default=0.0) / len(workload)
        found["joules"][name] = float(run.energy_j.sum()) if hasattr(run.energy_j, "sum") else float(run.energy_j)
    touch_others()
    print(json.dumps(found))


def touch_others() -> None:
    """Have the kernels of the live engine, of decisions by hand and of the environment made."""
    from wattflow.clusters import load_cluster
    from wattflow.live import Engine

    Engine("least-energy", load_cluster("bench-64x4")).by_hand()
    try:
        environment_kernels()
    except ImportError as problem:  # the extra is not installed
        print(f"the environment is left out: {problem}", file=sys.stderr)


def environment_kernels() -> None:
    """Make the environment's two kernels, of a small stream."""
    import numpy as np

    from wattflow import traces
    from wattflow.generate import Recipe
    from wattflow.learn import scenarios
    from wattflow.learn.environment import Episode

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "montage.json"
        traces.save(Recipe("montage", 20).draw(0), file, "wfformat")
        cluster = scenarios.random_cluster(np.random.default_rng(5), "small")
        stream = scenarios.Stream("app", (str(file),), 0.6, 8)
        Episode(scenarios.Scenario("small", cluster, stream), 1, joint=False)


def measure(place: Path, times: int, cache: str | None = None) -> Figures:
    """The figures of a checkout's sources, from a process of their own."""
    env = os.environ | {"PYTHONPATH": str(place / "src")} | ({"WATTFLOW_CACHE": cache} if cache else {})
    command = [sys.executable, __file__, "--worker", str(times)]
    done = subprocess.run(command, env=env, cwd=place, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{place}: {done.stderr.strip()[-2000:]}")
    answer: Figures = json.loads(done.stdout.splitlines()[-1])
    return answer


def rounds(places: list[Path], count: int, times: int, fresh: bool) -> list[dict[str, dict[str, float]]]:
    """Medians of every figure for each checkout, measured in turns."""
    seen: list[list[Figures]] = [[] for _ in places]
    for _ in range(count):
        for place, answers in zip(places, seen, strict=True):
            with tempfile.TemporaryDirectory() as folder:
                answers.append(measure(place, times, folder if fresh else None))
    return [
        {kind: {name: statistics.median(a[kind][name] for a in answers) for name in answers[0][kind]}
         for kind in answers[0]} for answers in seen
    ]  # fmt: skip


def show(kind: str, before: dict[str, float], after: dict[str, float], goals: dict[str, float]) -> None:
    """One line per figure: the ratio to before."""
    for name in after:
        if not before.get(name):
            print(f"  {kind} {name}: {after[name]:,.0f}, not there before")
            continue
        ratio, goal = after[name] / before[name], goals.get(name, goals[""])
        print(f"  {kind} {name}: {before[name]:,.1f} before, {after[name]:,.1f} now")
        print(f"figure kernel_{kind}_{name} {ratio:.3f} ratio goal <={goal} {'ok' if ratio <= goal else 'short'}")


def main() -> None:
    """Compare this checkout with the one given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder of the other checkout (it holds src/wattflow)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", type=int, default=0, help="times to compile everything anew")
    given = parser.parse_args()
    if not (given.checkout / "src" / "wattflow").is_dir():
        parser.error(f"{given.checkout} holds no src/wattflow: name the folder of a checkout")
    places = [given.checkout.resolve(), HERE]
    before, after = rounds(places, given.rounds, 5, fresh=False)
    show("ns", before["ns"], after["ns"], {"": NS_GOAL})
    show("bytes", before["bytes"], after["bytes"], {"": BYTES_GOAL} | dict.fromkeys(BY_HAND, HAND_GOAL))
    equal = all(after["joules"][name] == joules for name, joules in before["joules"].items())
    print(f"figure kernel_same_joules {int(equal)} bool goal 1 {'ok' if equal else 'short'}")
    if given.compile:
        was, now = rounds(places, given.compile, 0, fresh=True)
        show("compile_s", was["compile_s"], now["compile_s"], {"": BYTES_GOAL} | dict.fromkeys(BY_HAND, HAND_GOAL))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
    else:
        main()
