"""Levels chosen with the place, simulated (a part of `make bench-levels`): joules at clocks of one's choice.

    python benchmarks/levels_simulated.py [--minutes 40] [--draws 4] [--workflows 60] [--out FOLDER]

Streams of the promise's ground, its reference and its horizon (`research.judge`), on nodes that may not sleep: `mixed`
with the levels of its file; `equal` and `gpus` with `mixed`'s levels of processors; GPUs with what three kernels lose
and save on an H200 (`research/data/h200_clocks.csv`, measured), each function one of them by its name. `gpu-thirds` are
the same streams on GPUs, with a third of each workflow's time bound by arithmetic, memory and launching each, by task.
The part of a function's time on processors that follows the clock is assumed, 0.4 to 1 by its name. What a call finds
is kept in OUT/levels.jsonl by the sources that made it, and a later call goes on. Ends with one line per figure.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ground
import levels_rivals
import numpy as np
from levels import recorded
from levels_gpu import figure
from policy_runs import sources

from research.judge import Judge, Stream, Verdict
from wattflow.model.cluster import Cluster, Device, DeviceLevels, Frequency, FunctionLevels, Node
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.base import Policy

ON, OFF, REFERENCE = "wattflow", "wattflow:levels=off", "kubernetes"
FREQUENCIES = (Frequency(), Frequency(0.8, 0.61), Frequency(0.6, 0.33))
"""Of `mixed`'s file: dynamic watts fall with about the power 2.2 of the frequency."""
CLOCKS = (1980.0, 1500.0, 1300.0)
IDLE_W, FULL_W = 122.0, 700.0
"""Of the H200 that the kernels were recorded on."""
APPLICATIONS = ("map-reduce", "pycbc", "eht-imaging", "nanoseq")
LOADS = (0.5, 0.2, 0.9)
GOALS = {"mixed": 8.0, "equal": 3.0, "gpus": 8.0}
THIRDS = "gpu-thirds"
KINDS = {"bf16_matmul": 1 / 6, "fft": 1 / 6, "memory_copy": 1 / 3, "launch": 1 / 3}
"""Parts of each workflow's time. How those bound by launching respond was never measured: they are unknown."""
LAUNCH_W = 134.0
"""Of kernels bound by launching, as seen on an H200 (`research/data/h200_kernels.json`)."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """One stream, by name."""

    cluster: str
    application: str
    load: float
    seed: int
    sleeps: bool


def places() -> list[Place]:
    """Every stream; those of the first application and the middle load first, so that a first part has all clusters."""
    return [
        Place(cluster, app, load, 0, sleeps)
        for app in APPLICATIONS for load in LOADS for sleeps in (False, True) for cluster in (*GOALS, THIRDS)
        if not (sleeps and cluster == THIRDS)
    ]  # fmt: skip


def chance(name: str) -> float:
    """Between 0 and 1, by a name."""
    return zlib.crc32(name.encode()) / 2**32


def responses(functions: Iterable[str]) -> tuple[FunctionLevels, ...]:
    """Seconds and joules of functions, each as one of the recorded kernels."""
    kernels = sorted(recorded())
    return tuple(of_kernel(name, kernels[int(chance(name) * len(kernels))]) for name in sorted(set(functions)))


def of_kernel(function: str, kernel: str) -> FunctionLevels:
    """Seconds and joules of a function at `CLOCKS`, as one of the recorded kernels."""
    runs = recorded()[kernel]
    full = runs[CLOCKS[0]]
    seconds, joules = ([getattr(runs[mhz], key) / getattr(full, key) for mhz in CLOCKS[1:]]
                       for key in ("seconds", "joules"))  # fmt: skip
    return FunctionLevels(function, (1.0, *seconds), (1.0, *joules))


def with_levels(cluster: Cluster, known: tuple[FunctionLevels, ...]) -> Cluster:
    """The cluster with levels where its file has none."""
    levels = DeviceLevels("clock_mhz", CLOCKS, known)

    def clocked(device: Device) -> Device:
        return replace(device, levels=levels) if device.kind == "gpu" else device

    def levelled(node: Node) -> Node:
        given = node.frequencies if len(node.frequencies) > 1 or node.serverless else FREQUENCIES
        return replace(node, frequencies=given, devices=tuple(map(clocked, node.devices)))

    return replace(cluster, nodes=tuple(map(levelled, cluster.nodes)))


def bound_by_name(part: Workload) -> Workload:
    """The workflow with the part of each function's time that follows the clock."""
    functions = tuple(replace(one, compute_bound=0.4 + 0.6 * chance(one.name)) for one in part.functions)
    return replace(part, functions=functions)


def on_gpus(part: Workload) -> Workload:
    """The workflow with every task on half a GPU and one core."""
    return replace(part, shapes=tuple(replace(shape, variants=(half_gpu(),)) for shape in part.shapes))


def in_thirds(part: Workload) -> Workload:
    """The workflow with every task as one of `KINDS`, the longest first to where most of its part is missing."""
    missing = {kind: share * float(part.runtime_s.sum()) for kind, share in KINDS.items()}
    kinds, of_task = list(KINDS), np.zeros(len(part), np.int64)
    for task in np.argsort(-part.runtime_s, kind="stable").tolist():
        kind = max(kinds, key=missing.__getitem__)
        missing[kind] -= float(part.runtime_s[task])
        of_task[task] = kinds.index(kind)
    count, names = len(part.functions), len(part.shapes)
    shapes = tuple(
        replace(shape, function=n * count + shape.function, variants=(half_gpu(duty_of(kind)),))
        for n, kind in enumerate(kinds) for shape in part.shapes
    )  # fmt: skip
    functions = tuple(replace(one, name=f"{one.name}/{kind}") for kind in kinds for one in part.functions)
    shape = (of_task * names + part.shape).astype(part.shape.dtype)
    return replace(part, shapes=shapes, functions=functions, shape=shape)


def duty_of(kind: str) -> float:
    """The part of a run for which a kernel keeps its GPU busy, by its watts at full clock."""
    run = recorded()[kind][CLOCKS[0]] if kind != "launch" else None
    watts = LAUNCH_W if run is None else min(FULL_W, run.joules / run.seconds)
    return (watts - IDLE_W) / (FULL_W - IDLE_W)


def half_gpu(duty: float = 1.0) -> Variant:
    """Half a GPU and one core."""
    return Variant("gpu", cores=1.0, device="gpu", devices=1, device_share=0.5, device_duty=duty)


def gpu_cluster(cluster: Cluster) -> Cluster:
    """The nodes with GPUs alone, with the watts of the card that the recorded kernels ran on."""
    card = DeviceProfile((0.0, 1.0), (IDLE_W, FULL_W))
    nodes = (replace(node, devices=tuple(replace(one, model="H200", power=card) for one in node.devices))
             for node in cluster.nodes if node.devices)  # fmt: skip
    return replace(cluster, nodes=tuple(nodes))


def stream_of(place: Place, workflows: int) -> Stream:
    """The stream, not yet drawn."""
    parts = tuple(map(bound_by_name, ground.parts_of(place.application)))
    thirds, load = place.cluster == THIRDS, place.load
    cluster = ground.cluster_of("gpus" if thirds else place.cluster)
    if thirds or place.cluster == "gpus":
        cluster, parts = gpu_cluster(cluster), tuple(map(in_thirds if thirds else on_gpus, parts))
        # A stream's load is of cores: two tasks for each GPU are a whole one.
        load *= 2 * sum(len(node.devices) for node in cluster.nodes) / joining.capacity(cluster)
    cluster = cluster if place.sleeps else cluster.without_sleep()
    names = sorted({one.name for part in parts for one in part.functions})
    known = responses(names)
    if thirds:
        kinds = {name: name.rpartition("/")[2] for name in names}
        known = tuple(of_kernel(name, kind) for name, kind in kinds.items() if kind != "launch")
    return Stream(parts, with_levels(cluster, known), load, place.seed, workflows=workflows, levels=True)


def rivals() -> dict[str, Policy]:
    """Opponents by the row that they stand in; of several in one row the best is known in hindsight only."""
    found = {f"one clock {level}": levels_rivals.one_clock(level) for level in (1, 2)}
    found |= {f"one cap {share:g}": levels_rivals.one_cap(share) for share in (0.9, 0.8, 0.65)}
    return found | {
        "zeus": levels_rivals.ZEUS,
        "dewts": registry.load("dewts"),
        "joulie-caps": registry.load("joulie-caps"),
    }


def measure(place: Place, draws: int, workflows: int) -> Row:
    """One stream: ours with levels and without; opponents at the middle load where no node sleeps."""
    judge = Judge(stream_of(place, workflows), draws)
    found = {name: asdict(judge.verdict(name)) for name in (ON, OFF)}
    if not place.sleeps and place.load == LOADS[0]:
        found |= {name: asdict(judge.verdict(policy)) for name, policy in rivals().items()}
    return {"place": asdict(place), "policies": found}


def verdict(row: Row, policy: str) -> Verdict:
    return Verdict(**row["policies"][policy])


def geometric(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.exp(np.mean(np.log(known)))) if known else math.nan


def best_of(row: Row, names: Sequence[str]) -> Verdict:
    """Of several the one with the fewest joules that keeps the bound; the reference where none does."""
    able = [one for one in (verdict(row, name) for name in names) if one.kept]
    return min(able, key=lambda one: one.energy, default=Verdict(REFERENCE, 1.0, 1.0, 1.0, 0.0, 0.0, 0))


def tell_cluster(name: str, rows: Sequence[Row]) -> None:
    """Figures of one cluster whose nodes never sleep."""
    saved = 100 * (1 - geometric(verdict(row, ON).energy for row in rows))
    plain = 100 * (1 - geometric(verdict(row, OFF).energy for row in rows))
    kept, kept_off = (sum(verdict(row, one).kept for row in rows) for one in (ON, OFF))
    goal = GOALS.get(name, GOALS["gpus"])
    figure(f"levels.simulated.{name}.saved", saved, "%", f"≥ {goal:g}", saved >= goal)
    figure(f"levels.simulated.{name}.saved_levels_off", plain, "%", "none", True)
    figure(f"levels.simulated.{name}.streams_kept", kept, f"of {len(rows)}", "all", bool(rows) and kept == len(rows))
    figure(f"levels.simulated.{name}.streams_kept_levels_off", kept_off, f"of {len(rows)}", "none", True)
    tell_rivals(name, [row for row in rows if "zeus" in row["policies"]])


def tell_rivals(name: str, rows: Sequence[Row]) -> None:
    """Figures of the opponents, on the streams that they ran on; the first is ours there."""
    for title, names in (("ours_beside_rivals", (ON,)), ("one_clock_in_hindsight", ("one clock 1", "one clock 2")),
                         ("one_cap_in_hindsight", ("one cap 0.9", "one cap 0.8", "one cap 0.65"))):  # fmt: skip
        saved = 100 * (1 - geometric(best_of(row, names).energy for row in rows))
        figure(f"levels.simulated.{name}.{title}", saved, f"% ({len(rows)} streams)", "none", True)
    for rival in ("zeus", "dewts", "joulie-caps"):
        saved = 100 * (1 - geometric(verdict(row, rival).energy for row in rows))
        keeps = sum(verdict(row, rival).kept for row in rows)
        figure(f"levels.simulated.{name}.{rival}", saved, f"% ({keeps} of {len(rows)} kept)", "none", True)


def tell_sleeping(rows: Sequence[Row]) -> None:
    """Levels on against off where nodes sleep."""
    less = 100 * (1 - geometric(verdict(row, ON).energy / verdict(row, OFF).energy for row in rows))
    longer = geometric(verdict(row, ON).mean / verdict(row, OFF).mean for row in rows)
    figure("levels.simulated.with_sleep.mean_response_over_off", longer, "times", "none", True)
    shares = [sum(verdict(row, name).kept for row in rows) for name in (ON, OFF)]
    figure("levels.simulated.with_sleep.less_than_off", less, "%", "≥ 3", less >= 3)
    figure(
        "levels.simulated.with_sleep.streams_kept", shares[0], f"of {len(rows)}", f"{shares[1]}", shares[0] >= shares[1]
    )


def main() -> None:
    """Measure what is missing until the time is over; print all that is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--workflows", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out/levels"))
    chosen = parser.parse_args()
    end_s = time.monotonic() + 60 * chosen.minutes
    path, stamp = chosen.out / "levels.jsonl", f"{sources()} {chosen.draws} {chosen.workflows}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {Place(**row["place"]): row for row in map(json.loads, lines) if row["stamp"] == stamp}
    with path.open("a", encoding="utf-8") as file:
        for place in places():
            if place not in rows and time.monotonic() < end_s:
                rows[place] = measure(place, chosen.draws, chosen.workflows)
                print(
                    place, {name: round(one["energy"], 3) for name, one in rows[place]["policies"].items()}, flush=True
                )
                file.write(json.dumps(rows[place] | {"stamp": stamp}) + "\n")
                file.flush()
    for name in (*GOALS, THIRDS):
        tell_cluster(name, [row for place, row in rows.items() if place.cluster == name and not place.sleeps])
    tell_sleeping([row for place, row in rows.items() if place.sleeps])
    figure("levels.simulated.streams", len(rows), "streams", f"{len(places())}", len(rows) == len(places()))


if __name__ == "__main__":
    main()
