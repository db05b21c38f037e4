"""Workloads for frames: traces like those of ExDe's study, its headline trace, and real serverless invocations.

IBM's 54 traces are not public. What is published of them is kept here: 3 M tasks each, a cluster of its own with 15 to
31 hosts of 4 CPUs, log-normal durations, Zipf popularity of objects, diurnal and bursty arrivals, a mix of six kinds of
work. The numbers of each kind are our own choice.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster, Network, Node
from wattflow.model.errors import InvalidInput, MissingData
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

TRACES = 54
TASKS = 3_000_000
DAY_S = 86_400.0
_CELLS_PER_DAY = 1440
OBJECTS = 5000


@dataclass(frozen=True, slots=True)
class WorkKind:
    """A kind of work: mean seconds, spread (σ of log), and how many objects its tasks read."""

    name: str
    mean_s: float
    sigma: float
    objects: int


KINDS = (
    WorkKind("text search", 0.3, 1.0, 4000),
    WorkKind("business analytics", 2.0, 1.2, 2000),
    WorkKind("scientific computing", 8.0, 1.0, 1000),
    WorkKind("multimedia", 1.5, 0.8, 6000),
    WorkKind("video analytics", 4.0, 0.9, 3000),
    WorkKind("inference", 0.15, 0.6, 500),
)
"""The six kinds of work that the authors name; the numbers are assumed."""


def frame_cluster(hosts: int, cores: int = 4, name: str = "") -> Cluster:
    """Equal hosts with a mildly concave, assumed curve of watts and 0.1 µJ for each byte moved."""
    load = ((0.0, 60.0), (0.25, 100.0), (0.5, 130.0), (0.75, 156.0), (1.0, 180.0))
    power = PowerProfile.from_load(cores, load, provenance="guessed", source="assumed curve of a small server")
    network = Network(energy_j_per_byte=1e-7)
    nodes = tuple(Node(f"host-{h}", cores, 64 << 30, power=power, network=network) for h in range(hosts))
    return Cluster(name or f"{hosts}x{cores}", nodes)


def zipf(rng: np.random.Generator, count: int, objects: int, skew: float) -> NDArray[np.int32]:
    """Objects drawn with probability proportional to 1 / rank^skew; ranks are shuffled over the numbers."""
    weight = np.cumsum(np.arange(1, objects + 1, dtype=np.float64) ** -skew)
    rank = np.searchsorted(weight, rng.random(count) * weight[-1], side="right")
    shuffled = rng.permutation(objects).astype(np.int32)
    # Rounding may put the largest draw beyond the last weight.
    return shuffled[np.minimum(rank, objects - 1)]


def lognormal(rng: np.random.Generator, count: int, mean: float, sigma: float) -> NDArray[np.float64]:
    """Log-normal numbers with this mean."""
    # The mean of a log-normal is exp(μ + σ²/2).
    return rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma, count)


def arrivals(rng: np.random.Generator, count: int, span_s: float, swing: float, burst: float) -> NDArray[np.float64]:
    """Arrival times over a span: a daily swing (0 … 1) and bursts that multiply the rate, as a Poisson process.

    The rate of each minute is 1 + swing · sin(2πt/day), times ``burst`` in a twentieth of the minutes (runs of ten).
    """
    cells = max(10, int(span_s / DAY_S * _CELLS_PER_DAY))
    middle = (np.arange(cells) + 0.5) * span_s / cells
    rate = 1.0 + swing * np.sin(2 * np.pi * (middle / DAY_S + rng.random()))
    bursts = np.repeat(rng.random(cells // 10 + 1) < 0.05, 10)[:cells]
    rate[bursts] *= burst
    total = np.concatenate([[0.0], np.cumsum(rate)])
    at = np.cumsum(rng.exponential(1.0, count + 1))
    # Scaled to the whole span: given their number, arrivals of a Poisson process are spread like this.
    at = at[:-1] * (total[-1] / at[-1])
    return np.interp(at, total, np.arange(cells + 1) * span_s / cells)


def ibm_like(trace: int, tasks: int = TASKS) -> tuple[Workload, Cluster]:
    """Return one of the 54 traces with its cluster. The number alone decides: the same each time, in any order.

    Hosts 15 … 31, load 0.45 … 0.7, mix, skew 0.6 … 1.1, daily swing and bursts are drawn from the number. With fewer
    tasks the trace is shorter at the same rates.
    """
    if not 0 <= trace < TRACES:
        raise InvalidInput("ibm-like trace", f"traces are numbered 0 to {TRACES - 1}, not {trace}")
    # 54 and 500 keep the two families of traces apart.
    rng = np.random.default_rng([54, trace])
    cluster = frame_cluster(int(rng.integers(15, 32)), name=f"ibm-like-{trace}")
    load, skew = rng.uniform(0.45, 0.7), rng.uniform(0.6, 1.1)
    swing, burst = rng.uniform(0.1, 0.3), rng.uniform(1.2, 1.6)
    mix = rng.dirichlet(np.full(len(KINDS), 0.7))
    kind = rng.choice(len(KINDS), tasks, p=mix).astype(np.int32)
    runtime, thing = np.empty(tasks), np.empty(tasks, np.int32)
    base = 0
    for k, row in enumerate(KINDS):
        mine = kind == k
        count = int(mine.sum())
        runtime[mine] = lognormal(rng, count, row.mean_s, row.sigma)
        thing[mine] = base + zipf(rng, count, row.objects, skew)
        base += row.objects
    # At this load, by the work that was drawn, not by its expectation: heavy tails differ from trace to trace.
    span = float(runtime.sum()) / (load * cluster.total_cores)
    release = arrivals(rng, tasks, span, swing, burst)
    functions = tuple(Function(row.name) for row in KINDS)
    shapes = tuple(Shape(k, (Variant(),)) for k in range(len(KINDS)))
    workload = Workload.of_columns(
        f"ibm-like-{trace}",
        release_s=release,
        runtime_s=runtime,
        shapes=shapes,
        functions=functions,
        shape=kind,
        columns={"object": thing},
    )
    return workload, cluster


def skewed(tasks: int = 500_000, seed: int = 0, hosts: int = 20, skew: float = 0.9) -> tuple[Workload, Cluster]:
    """Return the headline trace: 70 % load, log-normal durations (mean 1 s, σ 1), 5,000 objects with Zipf ``skew``."""
    rng = np.random.default_rng([500, seed])
    cluster = frame_cluster(hosts)
    runtime = lognormal(rng, tasks, 1.0, 1.0)
    release = np.cumsum(rng.exponential(1.0 / (0.7 * cluster.total_cores), tasks))
    thing = zipf(rng, tasks, OBJECTS, skew)
    return Workload.of_columns("skewed", release_s=release, runtime_s=runtime, columns={"object": thing}), cluster


def azure_2021(data: Path) -> Workload:
    """Real invocations of Azure functions (a sample of the 2021 trace, CC-BY 4.0); a task's object is its function."""
    path = data / "serverless" / "azure2021_invocation_sample.csv"
    if not path.exists():
        raise MissingData(f"{path.name} is not in the folder of real data (WATTFLOW_DATA)")
    with path.open(newline="") as file:
        rows = [
            (row["app"] + row["func"], float(row["end_timestamp"]), float(row["duration"]))
            for row in csv.DictReader(file)
        ]
    names = {name: k for k, name in enumerate(dict.fromkeys(name for name, _, _ in rows))}
    # A runtime of 0 would have no slowdown; the note says so.
    runtime = np.array([max(duration, 1e-3) for _, _, duration in rows])
    release = np.array([end - duration for _, end, duration in rows])
    release -= release.min()
    thing = np.array([names[name] for name, _, _ in rows], np.int32)
    order = np.argsort(release, kind="stable")
    return Workload.of_columns(
        "azure-2021",
        release_s=release[order],
        runtime_s=runtime[order],
        columns={"object": thing[order]},
        notes=("durations of 0 are read as 1 ms",),
    )


def jobs(load: Workload) -> int:
    """Rows for jobs, with one for none."""
    return int(load.workflow.max()) + 2 if len(load) else 2


def record_rows(load: Workload) -> int:
    """Rows for attempts: each part of each task, and room for retries before the table grows."""
    parts = np.array([shape.parts for shape in load.shapes] or [1], np.int64)
    rows = len(load) if parts.max() == 1 else int(parts[load.shape].sum())
    # A table that is full grows; a few spare rows save that where a few tasks are tried again.
    return rows + rows // 64 + 512


def levels(load: Workload) -> NDArray[np.int64]:
    """Give each task's longest path from a root, in edges."""
    level = np.zeros(len(load), np.int64)
    for t in load.topological_order().tolist():
        parents = load.parents_of(t)
        if len(parents):
            level[t] = level[parents].max() + 1
    return level
