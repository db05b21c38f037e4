"""The HPE paper's CPU experiment as a model: its jobs, nodes and three schedulers, and the fit to its first row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.clusters import load_cluster
from wattflow.clusters.profiles import find_profile
from wattflow.lab.figures.power_series import power_curve
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile, Provenance, ends_profile
from wattflow.model.run import Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

J_PER_WH = 3600.0
NO_REQUEST = 0.0
"""The guarantee of a pod without requests."""
ENERGY_AWARE = 0.8
"""The share of the request that Algorithm 1 guarantees."""
ROWS = ("default", "no_request", "energy_aware")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Jobs:
    """210 jobs: the first ``starting`` of them long, the rest short."""

    count: int
    starting: int
    cores: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Facts that the calibration may know: the first row of the table and what the paper says of it."""

    makespan_s: float
    energy_wh: float
    mark_s: float
    window_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Numbers that the paper leaves open. See experiments/hpe_table1.toml for the meaning of each."""

    long_s: float
    short_s: float
    spread: float
    watts_scale: float
    siblings: tuple[str, ...]
    smt_slowdown: float | None = None
    sharing: str = "fair"
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything a repetition needs; ``repetitions`` are seeds 0, 1, …"""

    preset: str
    jobs: Jobs
    calibration: Calibration
    repetitions: int


def schedulers() -> dict[str, Policy]:
    """The three rows. Without requests every pod fits everywhere, and scoring counts 100 m and 200 MiB for each."""
    default = registry.load("kubernetes")
    return {
        "default": default,
        "no_request": default.with_settings(guarantees=(NO_REQUEST,)),
        "energy_aware": registry.load("hpe").with_settings(guarantees=(ENERGY_AWARE,)),
    }


def noise(jobs: Jobs, repetition: int) -> Floats:
    """Standard normal, one number per job."""
    # By job and repetition: other spreads use the same draws, scaled.
    return np.random.default_rng([repetition, 210]).normal(0.0, 1.0, jobs.count)


def durations_s(jobs: Jobs, calibration: Calibration, repetition: int) -> Floats:
    """Seconds of each job alone on a core, in order of submission."""
    # In order of submission: the last ones are those that had to wait.
    waiting = np.arange(jobs.count) >= jobs.starting
    length = np.where(waiting, calibration.short_s, calibration.long_s)
    drawn: Floats = length * np.exp(calibration.spread * noise(jobs, repetition))
    return drawn


def workload(jobs: Jobs, calibration: Calibration, repetition: int) -> Workload:
    """All jobs, submitted at once."""
    variant = Variant(cores=jobs.cores, memory_bytes=jobs.memory_bytes)
    return Workload.of_columns(
        "parsec",
        release_s=np.zeros(jobs.count),
        runtime_s=durations_s(jobs, calibration, repetition),
        shapes=(Shape(0, (variant,)),),
        functions=(Function("parsec"),),
    )


POWER = "power:"
"""Before an exponent: a curve whose watts above idle rise with that power of the busy threads."""


def testbed(setting: Setting) -> Cluster:
    """The preset with calibrated curves: a sibling's idle watts, and its watts above idle, scaled, cores first."""
    preset, calibration = load_cluster(setting.preset), setting.calibration
    nodes = []
    for node, name in zip(preset.nodes, calibration.siblings, strict=True):
        ends = find_profile(name)
        full_w = ends.idle_w + calibration.watts_scale * (ends.full_w - ends.idle_w)
        about = f"idle of {name}; watts above idle calibrated on the paper's first row"
        curve = _curve(node, (ends.idle_w, full_w), calibration.shape, about)
        slowdown = node.smt_slowdown if calibration.smt_slowdown is None else calibration.smt_slowdown
        nodes.append(replace(node, power=curve, smt_slowdown=slowdown, sharing=calibration.sharing))
    return replace(preset, nodes=tuple(nodes))


def _curve(node: Node, ends_w: tuple[float, float], shape: str, about: str) -> PowerProfile:
    """Between idle and full watts: cores first, by a power of the busy threads' share, or as a named profile."""
    idle_w, full_w = ends_w
    if not shape:
        return ends_profile(idle_w, full_w, node.cores, node.threads_per_core, provenance="guessed", source=about)
    if shape.startswith(POWER):
        threads, power = node.cores * node.threads_per_core, float(shape.removeprefix(POWER))
        # 0 apart: 0 to any power below 1 is 0, but the curve begins at idle.
        rise = (0.0, *((k / threads) ** power for k in range(1, threads + 1)))
        watts = tuple(idle_w + (full_w - idle_w) * part for part in rise)
        busy = tuple(float(k) for k in range(threads + 1))
        return PowerProfile(busy, watts, provenance=Provenance.GUESSED, source=f"{about}; {shape}")
    other = find_profile(shape).for_node(node.cores, node.threads_per_core)
    # Its shape between our own ends.
    scale = (full_w - idle_w) / (other.full_w - other.idle_w)
    watts = tuple(idle_w + scale * (w - other.idle_w) for w in other.watts)
    return PowerProfile(other.busy, watts, provenance=Provenance.GUESSED, source=f"{about}; shape of {shape}")


def with_mean_curve(cluster: Cluster) -> Cluster:
    """The same nodes as someone sees them who has no profile of each: all with the mean curve."""
    curves = [node.power for node in cluster.nodes if node.power is not None]
    busy = curves[0].busy
    watts = tuple(sum(curve.at(k) for curve in curves) / len(curves) for k in busy)
    mean_curve = PowerProfile(busy, watts, source="mean of all nodes")
    return replace(cluster, nodes=tuple(replace(node, power=mean_curve) for node in cluster.nodes))


def repeat(setting: Setting, cluster: Cluster, policy: Policy) -> list[Run]:
    """One run per repetition."""
    options = SimOptions(record_power=True)
    return [
        simulate(workload(setting.jobs, setting.calibration, seed), cluster, policy, seed=seed, options=options)
        for seed in range(setting.repetitions)
    ]


def on_true_curves(run: Run, cluster: Cluster) -> float:
    """Joules of a run whose policy believed other curves. Watts do not change times here, so they can be put right."""
    # Without the log, so that watts are worked out again from attempts and curves.
    curve = power_curve(replace(run, cluster=cluster, power_log=None))
    return sum(curve.energy_j(node) for node in range(len(cluster.nodes)))


def mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    """Mean over repetitions."""
    return float(np.mean([value(run) for run in runs]))


def waiting_starts_s(jobs: Jobs, calibration: Calibration, repetition: int) -> Floats:
    """When the waiting jobs start under the default scheduler: at the first ends of those that run."""
    long = durations_s(jobs, calibration, repetition)[: jobs.starting]
    starts: Floats = np.sort(long)[: jobs.count - jobs.starting]
    return starts


def fit(setting: Setting, row: FirstRow, spread: float | None = None) -> Calibration:
    """The calibration again, from the first row alone.

    In closed form for times, since no node runs more jobs than cores there: the mean start of the waiting jobs is the
    mark, and the mean makespan that of the row. The spread, where none is given, is the largest for which all starts
    of all repetitions fit a window round the mark. One scale on the watts above idle makes up the energy.
    """
    if spread is None:
        low, high = 0.0, 0.1
        # Forty halvings of 0.1 reach the last digit that is printed.
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if _width_s(setting, row, middle) <= row.window_s else (low, middle)
        spread = low
    fitted = _fit_times(setting, row, spread)
    default = schedulers()["default"]
    energy: list[float] = []
    for scale in (0.0, 1.0):
        tried = replace(setting, calibration=replace(fitted, watts_scale=scale))
        energy.append(mean(repeat(tried, testbed(tried), default), lambda run: run.total_j) / J_PER_WH)
    # Energy is linear in the scale: two runs give the line.
    return replace(fitted, watts_scale=(row.energy_wh - energy[0]) / (energy[1] - energy[0]))


def _width_s(setting: Setting, row: FirstRow, spread: float) -> float:
    """Twice the largest distance of a start from the mark."""
    fitted = _fit_times(setting, row, spread)
    starts = [waiting_starts_s(setting.jobs, fitted, seed) for seed in range(setting.repetitions)]
    return 2.0 * float(np.abs(np.array(starts) - row.mark_s).max())


def _fit_times(setting: Setting, row: FirstRow, spread: float) -> Calibration:
    jobs, seeds = setting.jobs, range(setting.repetitions)
    fitted = replace(setting.calibration, spread=spread, long_s=row.mark_s)
    starts = [waiting_starts_s(jobs, fitted, seed) for seed in seeds]
    # Starts scale with the length, so one step puts their mean on the mark.
    fitted = replace(fitted, long_s=row.mark_s * row.mark_s / float(np.mean(starts)))
    low, high = 0.0, row.makespan_s
    # The mean makespan rises with the length of short jobs, so bisection finds it.
    while high - low > 1e-9:
        middle = (low + high) / 2
        tried = replace(fitted, short_s=middle)
        late = float(np.mean([_first_row_makespan_s(jobs, tried, seed) for seed in seeds])) > row.makespan_s
        low, high = (low, middle) if late else (middle, high)
    return replace(fitted, short_s=low)


def _first_row_makespan_s(jobs: Jobs, calibration: Calibration, repetition: int) -> float:
    times = durations_s(jobs, calibration, repetition)
    ends = waiting_starts_s(jobs, calibration, repetition) + times[jobs.starting :]
    return float(max(ends.max(), times[: jobs.starting].max()))
