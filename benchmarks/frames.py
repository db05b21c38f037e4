"""Scheduler frames: speed and memory, the grid of 54 traces, stealing against the tail, delays, energy at a bound.

Every figure stands where it is found and once more at the end. `--part NAME` runs one part; `--quick` shortens the
traces and says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import frames_grid
import numpy as np
import stable_trace
from frames_designs import HOST_STEALING, bases, twelve, with_caches

from research.papers import experiment
from wattflow.frames import frame as frames
from wattflow.frames import frame_run, library, workloads
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.cluster import Cluster
from wattflow.model.run import Run
from wattflow.model.workload import Workload

SWEEP_S = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2, 1e-1)

FIGURES: list[str] = []


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    FIGURES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
    print(FIGURES[-1], flush=True)


def speed_designs() -> dict[str, Frame]:
    return {
        "centralised": library.load_frame("centralised"),
        "hash": library.load_frame("hash"),
        "hash_stealing": library.load_frame("hash-stealing"),
    }


def memory_kib(what: str) -> int:
    """``VmRSS`` (now) or ``VmHWM`` (the most since the last reset) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def one(design: str, tasks: int) -> None:
    """One design in a process of its own: CPU seconds of the whole call and bytes at the peak, workload included."""
    frame = speed_designs()[design]
    workload, cluster = workloads.skewed(2000)
    run_frame(frame, workload, cluster)
    Path("/proc/self/clear_refs").write_text("5")  # the compiler's peak is not the run's
    before = memory_kib("VmRSS")
    workload, cluster = workloads.skewed(tasks)
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        run = run_frame(frame, workload, cluster)
        best = min(best, time.process_time() - started)
        assert len(run.attempts) == tasks
        del run
    print(json.dumps({"cpu_s": best, "bytes": (memory_kib("VmHWM") - before) * 1024}))


def speed(tasks: int) -> None:
    print(f"\nSpeed: {tasks:,} tasks, 20 hosts × 4, energy and records on; best of 5, whole call")
    for design in speed_designs():
        command = [sys.executable, __file__, "--one", design, "--tasks", str(tasks)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        got = json.loads(out.splitlines()[-1])
        rate, size = tasks / got["cpu_s"], got["bytes"] / tasks
        figure(f"frames_{design}_tasks_per_cpu_s", rate, "tasks/s", ">=1.5e6", rate >= 1.5e6)
        figure(f"frames_{design}_bytes_per_task", size, "bytes", "<=200", size <= 200)


def grid(tasks: int, traces: int, kept: Path) -> None:
    print(f"\nGrid: {traces} traces × {tasks:,} tasks × 12 designs; rows are kept in {kept}")
    rows = frames_grid.run_grid(kept, tasks, range(traces))
    print(frames_grid.tables(rows))
    FIGURES.extend(frames_grid.figures(rows, tasks))


def row(name: str, run: Run) -> dict[str, float]:
    shown = frame_run.tail(run)
    got = run.scalars
    looked = got["cache_hits"] + got["cache_misses"]
    missed = got["cache_misses"] / looked if looked else 0.0
    print(
        f"  {name:32s} p50 {shown['p50']:8.3g} p99 {shown['p99']:9.4g} p99.9 {shown['p99.9']:9.4g} "
        f"util {got['utilisation']:.3f} {run.total_j / 1e6:7.3f} MJ (run {run.account_j('run') / 1e6:.3f}, idle "
        f"{run.account_j('idle') / 1e6:.3f}, moved {run.account_j('transfer') / 1e6:.4f}) misses {missed:.3f} "
        f"stolen {got['stolen']:.0f} messages {got['messages']:.3g}"
    )
    waited = {f"{p} without fetches": value for p, value in without_fetches(run).items()}
    return shown | waited | {"total_j": run.total_j, "utilisation": got["utilisation"]}


def without_fetches(run: Run) -> dict[str, float]:
    """Slowdown with the seconds of fetching taken off: what is left of it is waiting."""
    rows = run.attempts
    seconds = run.workload.runtime_s[rows["task"]]
    values = (rows["end_s"] - rows["ready_s"] - rows["data_s"]) / seconds
    return {p: float(np.percentile(values, share)) for p, share in (("p99", 99.0), ("p99.9", 99.9))}


def stealing_rows(workload: Workload, cluster: Cluster) -> dict[str, dict[str, float]]:
    """Every architecture without and with stealing by hosts, caches and remote storage included."""
    rows = {"centralised, held back": row("centralised, held back", run_frame(
        with_caches(library.load_frame("centralised")), workload, cluster))}  # fmt: skip
    for name, base in bases().items():
        for label, frame in ((name, base), (f"{name} + stealing", replace(base, stealing=HOST_STEALING))):
            rows[label] = row(label, run_frame(with_caches(frame), workload, cluster))
    return rows


def tamed(rows: dict[str, dict[str, float]], p: str) -> float:
    return rows["hash"][p] / rows["hash + stealing"][p]


def headline(tasks: int) -> None:
    workload, cluster, skew = stable_trace.stable(tasks)
    print(f"\nHeadline: {tasks:,} tasks, 70 % load, Zipf exponent {skew:.3f}, caches of 1,000, remote storage")
    rows = stealing_rows(workload, cluster)
    for p in ("p99", "p99.9"):
        figure(f"frames_stealing_tames_hash_{p}", tamed(rows, p), "times", ">=10", tamed(rows, p) >= 10)
        figure(f"frames_stealing_tames_hash_{p}_without_fetches", tamed(rows, f"{p} without fetches"), "times")
    for name in bases():
        changed = rows[f"{name} + stealing"]["total_j"] / rows[name]["total_j"] - 1
        figure(f"frames_stealing_energy_{name}", 100 * changed, "%")
    overload(tasks)


def overload(tasks: int) -> None:
    print(f"\nOverload: the same with Zipf 0.9: the hottest host is offered more than it can run; {tasks:,} tasks")
    rows = stealing_rows(*workloads.skewed(tasks))
    for p in ("p99", "p99.9"):
        figure(f"frames_overload_stealing_tames_hash_{p}", tamed(rows, p), "times")
    print(f"  … and a quarter of it: {tasks // 4:,} tasks")
    fewer = stealing_rows(*workloads.skewed(tasks // 4))
    grown = tamed(rows, "p99") / tamed(fewer, "p99")
    figure("frames_overload_p99_ratio_grows_with_4_times_the_trace", grown, "times")
    changed = rows["hash + stealing"]["total_j"] / rows["hash"]["total_j"] - 1
    figure("frames_overload_stealing_energy_hash", 100 * changed, "%")


def delayed(frame: Frame, decision_s: float, latency_s: float) -> Frame:
    placers = replace(frame.placers, service=Delay(decision_s))
    return replace(frame, placers=placers, messages=frames.Messages(Delay(latency_s)))


def sweeps(tasks: int) -> None:
    print(f"\nDelays: p99 slowdown of {tasks:,} tasks against decision time and message delay")
    workload, cluster = workloads.skewed(tasks)
    designs = {
        "centralised": library.load_frame("centralised"),
        "delegated": library.load_frame("delegated"),
        "hash + stealing": library.load_frame("hash-stealing"),
        "two samples": replace(
            library.load_frame("sparrow"), placers=replace(library.load_frame("sparrow").placers, rule="samples")
        ),
        "probes": library.load_frame("sparrow"),
    }
    for kind in ("decision", "message"):
        table: dict[str, list[float]] = {}
        for name, frame in designs.items():
            points = [delayed(frame, s, 1e-6) if kind == "decision" else delayed(frame, 1e-6, s) for s in SWEEP_S]
            table[name] = [frame_run.tail(run_frame(point, workload, cluster))["p99"] for point in points]
            print(f"  {kind:8s} {name:16s} " + " ".join(f"{s:g}s:{v:.4g}" for s, v in zip(SWEEP_S, table[name])))
        best = [min(table[name][k] for name in designs if name != "centralised") for k in range(len(SWEEP_S))]
        over = [s for s, mine, other in zip(SWEEP_S, table["centralised"], best) if other < mine]
        crossing = over[0] if over else float("inf")
        figure(f"frames_decentralised_overtakes_at_{kind}_s", crossing, "s")


def savers(tasks: int) -> None:
    print(f"\nEnergy at a bound: {tasks:,} tasks, p99 slowdown at most 5, caches as in the headline")
    workload, cluster = workloads.skewed(tasks)
    elastic = frames.Elasticity(high=0.92, low=0.8, period_s=30.0, boot_s=30.0, least_hosts=10, off_w=5.0)
    found: dict[str, tuple[float, float]] = {}
    for name, frame in twelve().items():
        for label, other in (
            (name, frame),
            (f"{name}, elastic", replace(frame, elasticity=elastic, broker=frame.broker or frames.Broker())),
        ):
            run = run_frame(with_caches(other), workload, cluster)
            found[label] = (frame_run.tail(run)["p99"], run.total_j)
    held = library.load_frame("centralised")
    calm = replace(held, broker=frames.Broker(), elasticity=replace(elastic, high=0.88, low=0.72))
    near = replace(held, hints=frames.Hints(0.5))
    for policy in ("fifo+pack", "sjf+least-loaded", "fifo+least-energy"):
        for label, frame in (("held back", held), ("held back, calm elastic", calm), ("held back, hints", near)):
            run = run_frame(with_caches(frame), workload, cluster, policy)
            found[f"centralised, {label}, {policy}"] = (frame_run.tail(run)["p99"], run.total_j)
    for label, (p99, joules) in sorted(found.items(), key=lambda item: item[1][1]):
        print(f"  {label:48s} p99 {p99:9.4g} {joules / 1e6:8.3f} MJ")
    allowed = {label: joules for label, (p99, joules) in found.items() if p99 <= 5}
    base = found["centralised"][1]
    if allowed:
        best = min(allowed, key=lambda label: allowed[label])
        print(f"  least energy at p99 <= 5: {best}")
        figure("frames_best_saving_at_p99_5", 100 * (1 - allowed[best] / base), "%")
    else:
        figure("frames_best_saving_at_p99_5", float("nan"), "%", "some frame", False)


def exde() -> None:
    chosen = experiment.load("exde")
    print(f"\n{chosen.name}: {chosen.about}")
    found = experiment.run(chosen)
    for sheet in found.sheets:
        print(f"  {sheet.title}")
        for line in (sheet.columns, *sheet.rows):
            print(f"  {line[0]:56s}" + "".join(f"{cell:>10s}" for cell in line[1:]))
    for one in found.figures:
        figure(one.name, one.value, one.unit, one.goal, one.ok)


def policies(tasks: int) -> None:
    print(f"\nFrame × policy: {tasks:,} tasks; the engine's policies through the placers' views")
    workload, cluster = workloads.skewed(tasks)
    held = library.load_frame("centralised")
    stale = replace(
        held,
        architecture="decentralised",
        placers=frames.Placers(count=5, binding="early", refresh_s=1.0, route="round-robin"),
        hosts=frames.Hosts(queue=True),
    )
    for name, frame in (
        ("centralised", held),
        ("delegated", library.load_frame("delegated")),
        ("5 stale views", stale),
    ):
        for policy in ("fifo+least-loaded", "engine:least-energy", "engine:eft", "engine:kubernetes"):
            started = time.process_time()
            run = run_frame(frame, workload, cluster, policy)
            spent = time.process_time() - started
            shown = frame_run.tail(run)
            print(
                f"  {name:14s} {policy:22s} p50 {shown['p50']:7.3g} p99 {shown['p99']:9.4g} "
                f"{run.total_j / 1e6:7.3f} MJ  {1e6 * spent / tasks:6.1f} µs/task"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("speed", "grid", "headline", "exde", "policies", "sweeps", "savers"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--rows", type=Path, default=Path("docs/frames_grid.csv"), help="where the grid is kept")
    parser.add_argument("--tasks", type=int, default=3_000_000)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.tasks)
        return
    short = 10 if given.quick else 1
    rows = Path("out/frames_grid_quick.csv") if given.quick else given.rows
    if given.quick:
        print("quick: traces of a tenth of the length")
    run_frame(library.load_frame("centralised"), *workloads.skewed(1000))
    np.seterr(all="ignore")
    parts = {
        "speed": lambda: speed(3_000_000 // short),
        "grid": lambda: grid(workloads.TASKS // short, 4 if given.quick else workloads.TRACES, rows),
        "headline": lambda: headline(500_000 // short),
        "exde": exde,
        "policies": lambda: policies(20_000 // short),
        "sweeps": lambda: sweeps(500_000 // short),
        "savers": lambda: savers(500_000 // short),
    }
    for name, part in parts.items():
        if given.part in (None, name):
            part()
    print("\n" + "\n".join(FIGURES))


if __name__ == "__main__":
    main()
