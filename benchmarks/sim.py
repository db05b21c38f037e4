"""The figures of the simulator, each beside its peer in the same run (`make bench-sim`).

Three peers: SimPy as most people write it, SimPy with bit masks (`simpy_peer`), and a compiled loop without policies,
records or energy (`bare_peers`). The loop alone is timed with the tables (ours) and lists (SimPy) already made;
`_with_setup` counts making them too, and `setup_over_loop` is our own share, for a first and for a repeated run.
Ratios use processor time on both sides: other work on the machine then weighs on neither. `--quick` leaves out the
runs of ten million tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from bare_peers import bare_ends, prepared
from numpy.typing import NDArray
from simpy_peer import MaskPeer, PlainPeer

from research.papers import fgd_paper
from research.papers.alibaba_cluster import load_alibaba
from wattflow.clusters import load_cluster
from wattflow.generate import benchmark_workload
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.sim.simulate import SimOptions, Simulation

STRICT = SimOptions(queue="strict")
WATTS = [50 + 80 * (k / 4) ** 0.7 for k in range(5)]
MIXED = [Variant(cores=float(c), memory_bytes=m << 30) for c in (1, 2, 3, 4) for m in (1, 2, 4)]
FIGURES: list[str] = []
Floats = NDArray[np.float64]


def figure(name: str, value: float, unit: str, goal: str, ok: bool) -> None:
    """Keep a figure for the end, and show it now."""
    FIGURES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
    print(FIGURES[-1], flush=True)


def cluster_64x4() -> Cluster:
    """The benchmark's cluster with the peer's watts."""
    profile = PowerProfile(tuple(range(5)), tuple(WATTS))
    return Cluster("64x4", tuple(Node(f"n{i}", 4, 1 << 36, power=profile) for i in range(64)))


def ours_s(workload: Workload, cluster: Cluster, policy: str = "fifo", options: SimOptions = STRICT) -> Simulation:
    """A finished simulation; ``.seconds`` is replaced by the processor seconds of its loop."""
    simulation = Simulation(workload, cluster, policy, options=options)
    began = time.process_time()
    simulation.run()
    simulation.seconds = time.process_time() - began
    return simulation


def against_simpy(kind: str, count: int, goal: float) -> None:
    """Median of five of ours against the median of three of the peer, and the same answer from both."""
    ours_s(benchmark_workload(1000, kind, seed=1), cluster_64x4())
    workload, cluster = benchmark_workload(count, kind, seed=1), cluster_64x4()
    ours, peers, ours_whole, peers_whole = [], [], [], []
    for turn in range(5):
        whole = time.process_time()
        simulation = ours_s(workload, cluster)
        ours.append(simulation.seconds)
        ours_whole.append(time.process_time() - whole)
        if turn < 3:
            whole = time.process_time()
            peer = MaskPeer(workload, 64, WATTS)
            began = time.process_time()
            peer.run()
            peers.append(time.process_time() - began)
            peers_whole.append(time.process_time() - whole)
    run = simulation.result()
    joules = sum(peer.joules) + sum(WATTS[0] * (max(peer.end) - since) for since in peer.since)
    difference = abs(joules - run.total_j) / run.total_j
    np.testing.assert_allclose(run.end_s_by_task(), peer.end, rtol=1e-9)
    mine, theirs = statistics.median(ours), statistics.median(peers)
    print(f"{kind}: ours {count / mine / 1e6:.2f} M tasks/s, SimPy {count / theirs / 1e6:.3f} M tasks/s; ", end="")
    print(f"ends equal, joules differ by {difference:.1e} (the peer counts from time 0)")
    figure(f"simpy_ratio_{kind}", theirs / mine, "x", f">={goal:g}", theirs / mine >= goal)
    whole_ratio = statistics.median(peers_whole) / statistics.median(ours_whole)
    figure(f"simpy_ratio_{kind}_with_setup", whole_ratio, "x", f">={goal:g}", whole_ratio >= goal)
    first = ours_whole[0] - ours[0]
    again = statistics.median(whole - loop for whole, loop in zip(ours_whole[1:], ours[1:], strict=True))
    figure(f"setup_over_loop_{kind}_first", first / mine, "of the loop", "<=0.4", first <= 0.4 * mine)
    figure(f"setup_over_loop_{kind}", again / mine, "of the loop", "<=0.4", again <= 0.4 * mine)
    against_plain_and_bare(workload, kind, mine, goal, run.end_s_by_task())


def against_plain_and_bare(workload: Workload, kind: str, mine: float, goal: float, ends: Floats) -> None:
    """The other two peers, once more with the same answer."""
    plain = []
    for _ in range(3):
        peer = PlainPeer(workload, 64, WATTS)
        began = time.process_time()
        peer.run()
        plain.append(time.process_time() - began)
    np.testing.assert_allclose(ends, peer.end, rtol=1e-9)
    release, runtime, start, child, pending = prepared(workload)
    bare_ends(release[:2], runtime[:2], np.zeros(3, np.int64), child[:0], pending[:2].copy(), 64, 4)
    bare = []
    for _ in range(5):
        left = pending.copy()
        began = time.process_time()
        bare_end = bare_ends(release, runtime, start, child, left, 64, 4)
        bare.append(time.process_time() - began)
    np.testing.assert_allclose(ends, bare_end, rtol=1e-9)
    count, slow, fast = len(workload), statistics.median(plain), statistics.median(bare)
    print(f"{kind}: plain SimPy {count / slow / 1e6:.3f} M tasks/s, bare loop {count / fast / 1e6:.2f} M tasks/s")
    figure(f"plain_simpy_ratio_{kind}", slow / mine, "x", f">={goal:g}", slow / mine >= goal)
    figure(f"bare_loop_share_{kind}", fast / mine, "of the bare loop", ">=0.7", fast >= 0.7 * mine)


def one_size(count: int) -> dict[str, float]:
    """Run in a process of its own: memory and time of one size."""
    workload = benchmark_workload(count, "independent", seed=1)
    ours_s(benchmark_workload(1000, "independent"), cluster_64x4())
    before = resident_bytes()
    simulation = ours_s(workload, cluster_64x4())
    after = resident_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": simulation.seconds, "bytes": after - before, "peak": peak}


def _output(command: list[str], env: dict[str, str] | None = None) -> bytes:
    return subprocess.run(command, env=env, check=True, capture_output=True).stdout


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sizes(quick: bool) -> None:
    """Bytes per task, and cost per task from 1e5 to 1e7."""
    results = {}
    for count in (10**5, 10**6) if quick else (10**5, 10**6, 10**7):
        done = [
            json.loads(
                subprocess.run([sys.executable, __file__, "--size", str(count)], check=True, capture_output=True).stdout
            )
            for _ in range(3 if count < 10**7 else 1)
        ]
        results[count] = min(done, key=lambda d: d["seconds"])
        print(f"{count} tasks: {results[count]['seconds'] / count * 1e9:.0f} ns a task", flush=True)
    largest = max(results)
    per_task = results[largest]["bytes"] / largest
    figure("bytes_per_task", per_task, "bytes", "<=200", per_task <= 200)
    growth = (results[largest]["seconds"] / largest) / (results[10**5]["seconds"] / 10**5)
    if quick:
        print(f"growth of cost per task to {largest}: {growth:.2f} (the figure needs 1e7)")
        return
    figure("peak_memory_1e7", results[largest]["peak"] / 1e9, "GB", "<=3", results[largest]["peak"] <= 3e9)
    figure("cost_growth_1e5_to_1e7", growth, "x", "<1.5", growth < 1.5)


def recorded_run(count: int) -> dict[str, float]:
    """Run in a process of its own: memory of a run that records every change of watts, and what its log keeps."""
    workload, cluster = benchmark_workload(count, "independent", seed=1), cluster_64x4()
    options = replace(STRICT, record_power=True)
    Simulation(benchmark_workload(1000, "independent"), cluster, "fifo", options=options).run()  # compiled before
    before = resident_bytes()
    run = Simulation(workload, cluster, "fifo", options=options).run()
    assert run.power_log is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return {"rows": len(run.power_log), "kept": run.power_log.nbytes, "peak": peak}


def recorded() -> None:
    """Memory of a recorded run, and what is reserved before the first event on a cluster of 5,000 nodes."""
    count = 10**6
    command = [sys.executable, __file__, "--recorded", str(count)]
    made = json.loads(_output(command))
    print(f"{count} tasks recorded: {made['rows']:.0f} rows of the log kept in {made['kept'] / 1e6:.0f} MB")
    figure("recorded_run_bytes_per_task", made["peak"] / count, "bytes", "<=400", made["peak"] <= 400 * count)
    small = benchmark_workload(100, "independent", seed=1)
    options = replace(STRICT, record_power=True)
    reserved = Simulation(small, load_cluster("bench-5000"), "fifo", options=options).world.power_log.nbytes
    figure("recorded_run_reserved_5000_nodes", reserved / 2**20, "MiB", "<=64", reserved <= 64 * 2**20)


def many_nodes() -> None:
    """5,000 nodes in 20 classes under the energy policy."""
    cluster = load_cluster("bench-5000")
    slots = sum(node.request_cores for node in cluster.nodes)
    rng = np.random.default_rng(3)
    count = 200_000
    runtime = rng.lognormal(np.log(10) - 0.5, 1, count)
    for name, shapes, mean_cores, goal in (
        ("one_core", [Variant(cores=1.0)], 1.0, 500_000),
        (
            "mixed",
            [Variant(cores=float(c), memory_bytes=m << 30) for c in (1, 2, 3, 4) for m in (1, 2, 4)],
            2.5,
            100_000,
        ),
    ):
        release = np.cumsum(rng.exponential(10 * mean_cores / (0.8 * slots), count))
        workload = Workload.of_columns(
            name, release_s=release, runtime_s=runtime, shapes=[Shape(0, (v,)) for v in shapes],
            shape=rng.integers(0, len(shapes), count).astype(np.int32),
        )  # fmt: skip
        ours_s(workload, cluster, "least-energy", SimOptions())
        done = [ours_s(workload, cluster, "least-energy", SimOptions()) for _ in range(3)]
        rate = statistics.median(float(s.state.counts.decisions[0]) / s.seconds for s in done)
        scored = float(done[0].state.counts.scored[0]) / float(done[0].state.counts.decisions[0])
        print(f"5,000 nodes, {name}: {scored:.0f} candidates a decision")
        figure(f"decisions_5000_nodes_{name}", rate, "1/s", f">={goal}", rate >= goal)


def alibaba() -> None:
    """8,152 pods on 1,523 nodes under FGD, events and accounts included."""
    pods = fgd_paper.load_pods("default")
    cluster = load_alibaba()
    ours_s(pods, cluster, "fgd", SimOptions())
    began = time.perf_counter()
    ours_s(pods, cluster, "fgd", SimOptions())
    seconds = time.perf_counter() - began
    figure("alibaba_fgd", seconds, "s", "<=5", seconds <= 5)


def compilation() -> None:
    """First compilation in an empty cache, a user's new policy (marginal and idle joules), and all from the cache.

    A plain workload is simulated first, which compiles the kernel without the parts that it lacks; in the end one with
    messages that take time, for which the whole kernel is compiled.
    """
    code = (
        "import time, resource, sys; b = time.process_time(); "
        "from wattflow.generate import benchmark_workload; from wattflow.clusters import load_cluster; "
        "from wattflow.sim import SimOptions, simulate; from frugal import frugal; "
        "w = benchmark_workload(100); c = load_cluster('bench-64x4'); simulate(w, c, 'fifo'); a = time.process_time(); "
        "simulate(w, c, frugal); f = time.process_time(); simulate(w, c, 'least-energy'); e = time.process_time(); "
        "simulate(w, c, 'fifo', options=SimOptions(message_s=0.1)); print(a - b, f - a, e - f, time.process_time() - e)"
    )
    with tempfile.TemporaryDirectory() as folder:
        here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        env = os.environ | {"WATTFLOW_CACHE": folder, "PYTHONPATH": here}
        first, again = (
            [
                float(x)
                for x in subprocess.run(
                    [sys.executable, "-c", code], env=env, check=True, capture_output=True
                ).stdout.split()
            ]
            for _ in range(2)
        )
    print("compilation in processor seconds, import and the first run included")
    figure("first_compilation", first[0], "s", "<=12", first[0] <= 12)
    figure("first_compilation_whole", first[3], "s", "<=12", first[3] <= 12)
    figure("new_policy", first[1], "s", "<=0.5", first[1] <= 0.5)
    figure("new_policy_least_energy", first[2], "s", "<=0.5", first[2] <= 0.5)
    print(f"cached: {again[0]:.2f} s, {again[1]:.3f} s, {again[2]:.3f} s and {again[3]:.3f} s")


def demo() -> None:
    """The demo with its report, as `make demo` runs it; what it compiles is compiled by a first, small call."""
    with tempfile.TemporaryDirectory() as folder:
        wattflow = [sys.executable, "-m", "wattflow", "demo", "--quiet", "--force", "--report", f"{folder}/report.html"]
        _output([*wattflow, "--seeds", "1"])
        began = time.perf_counter()
        _output(wattflow)
        seconds = time.perf_counter() - began
    figure("demo", seconds, "s", "<=90", seconds <= 90)


def main() -> None:
    """All figures, then all of them once more as the last lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the run of ten million tasks")
    parser.add_argument("--tasks", type=int, default=10**6, help="of the runs beside the peers (default 1,000,000)")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--recorded", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", help="one part: simpy, sizes, recorded, nodes, alibaba, compile, demo")
    arguments = parser.parse_args()
    if arguments.size:
        print(json.dumps(one_size(arguments.size)))
        return
    if arguments.recorded:
        print(json.dumps(recorded_run(arguments.recorded)))
        return
    parts = {
        "simpy": lambda: (against_simpy("independent", arguments.tasks, 15), against_simpy("dag", arguments.tasks, 12)),
        "sizes": lambda: sizes(arguments.quick),
        "recorded": recorded,
        "nodes": many_nodes,
        "alibaba": alibaba,
        "compile": compilation,
        "demo": demo,
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()
    print("\n" + "\n".join(FIGURES))


if __name__ == "__main__":
    main()
