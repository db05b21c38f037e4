"""Joulie's two experiments replayed: scheduling alone on 2,500 nodes, and power caps on 41 nodes of eight kinds.

Machines, power laws and the mix of jobs are those of its reports; sizes and lengths of jobs are not given there and are
assumed (`JOBS`), as is how full the cluster is. A node of GPUs is modelled by its GPUs alone: they are its cores, and a
GPU job takes whole ones, so CPU jobs stay on CPU nodes under every policy. Caps are frequency levels with its own law
(watts above idle ~ speed ^ β). Jobs wait where its simulator drops them, so every policy does the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.papers.findings import Figure, Findings, Progress, Sheet
from wattflow.files.strict_table import StrictTable
from wattflow.model.cluster import Cluster, Frequency, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.units import kwh
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry
from wattflow.sim import simulate

Floats = NDArray[np.float64]
SPEEDS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of node: P = idle + (peak − idle) u^α f^β over its cores, or over its GPUs."""

    name: str
    count: int
    cores: int
    idle_w: float
    peak_w: float
    alpha: float
    beta: float
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Jobs:
    """A class of jobs: its part of all, the cores or GPUs of one, and its median length."""

    name: str
    part: float
    wants: int
    median_s: float
    gpu: bool = False


# 2 × EPYC 9654 at 700 W: idle and exponents are those that the reports give for the EPYC 9655.
LARGE = (
    Kind("epyc-9654", 2000, 96, 95.0, 700.0, 1.12, 1.28),
    Kind("h100-sxm", 500, 8, 8 * 120.0, 8 * 700.0, 1.0, 1.5, gpu=True),
)
MIXED = (
    Kind("h100-nvl", 12, 8, 8 * 80.0, 8 * 400.0, 1.0, 1.5, gpu=True),
    Kind("h100-sxm", 6, 4, 4 * 120.0, 4 * 700.0, 1.0, 1.5, gpu=True),
    Kind("l40s", 7, 4, 4 * 60.0, 4 * 350.0, 1.0, 1.4, gpu=True),
    Kind("mi300x", 2, 8, 8 * 100.0, 8 * 750.0, 1.0, 0.85, gpu=True),
    Kind("w7900", 6, 4, 4 * 40.0, 4 * 295.0, 1.0, 1.2, gpu=True),
    Kind("epyc-9965", 2, 384, 120.0, 960.0, 1.15, 1.30),
    Kind("epyc-9375f", 2, 64, 60.0, 480.0, 1.10, 1.25),
    Kind("epyc-9655", 4, 192, 95.0, 760.0, 1.12, 1.28),
)
JOBS = (
    Jobs("small", 0.35, 2, 300.0),
    Jobs("medium", 0.20, 8, 900.0),
    Jobs("large", 0.08, 32, 1800.0),
    Jobs("training", 0.25, 4, 1800.0, gpu=True),
    Jobs("inference", 0.12, 1, 300.0, gpu=True),
)


@dataclass(frozen=True, slots=True)
class JoulieSettings:
    """Settings of the file: how much of the published size is replayed, and what is assumed."""

    scale: float
    hours: float
    load: float
    jobs_per_s: float
    performance: float
    seed: int
    sleep_w: float
    wake_s: float
    policies: tuple[str, ...]


def read(table: StrictTable) -> JoulieSettings:
    """The keys of this kind."""
    found = JoulieSettings(
        scale=table.number("scale", 1.0),
        hours=table.number("hours", 48.0),
        load=table.number("load", 0.5),
        jobs_per_s=table.number("jobs_per_s", 10.4),
        performance=table.number("performance", 0.25),
        seed=table.whole("seed", 0),
        sleep_w=table.number("sleep_w", 0.05),
        wake_s=table.number("wake_s", 60.0),
        policies=table.texts("policies"),
    )
    for key in ("scale", "load"):
        if not 0 < getattr(found, key) <= 1:
            table.problem(key, f"must be above 0 and at most 1, not {getattr(found, key):g}")
    if found.hours <= 0 or found.jobs_per_s <= 0:
        table.problem("hours", "hours and jobs_per_s must be above 0")
    for name in found.policies:
        if not registry.is_known(name):
            table.problem("policies", f"no policy is named {name!r}; `wattflow policies` lists them")
    if found.policies[:1] != ("most-allocated",):
        table.problem("policies", "must begin with most-allocated, which savings are reckoned against")
    return found


def node(kind: Kind, i: int, settings: JoulieSettings) -> Node:
    """One machine, with its caps as frequency levels and a sleep state that only policies that know of it use."""
    busy = np.linspace(0.0, 1.0, 17)
    watts = kind.idle_w + (kind.peak_w - kind.idle_w) * busy**kind.alpha
    curve = PowerProfile(tuple(busy * kind.cores), tuple(watts.tolist()), source="Joulie's reports")
    return Node(
        f"{kind.name}-{i}",
        cores=kind.cores,
        memory_bytes=1 << 40,
        power=curve,
        tdp_w=kind.peak_w,
        features=("gpu",) if kind.gpu else ("cpu",),
        frequencies=tuple(Frequency(speed, speed**kind.beta) for speed in SPEEDS),
        sleep=Sleep(settings.sleep_w * kind.peak_w, settings.wake_s, wake_w=kind.idle_w),
    )


def cluster(kinds: tuple[Kind, ...], settings: JoulieSettings, scale: float = 1.0) -> Cluster:
    """All nodes of a setting; at least one of each kind."""
    # At least one: a kind that is scaled away would leave its jobs without a place.
    counts = {kind.name: max(1, round(kind.count * scale)) for kind in kinds}
    nodes = tuple(node(kind, i, settings) for kind in kinds for i in range(counts[kind.name]))
    return Cluster("joulie", nodes, about="Joulie's benchmark; sleep states are assumed")


def workload(machines: Cluster, settings: JoulieSettings, per_s: float, urgent: float) -> Workload:
    """Poisson arrivals by day and night with bursts of 50 to 200; jobs are as long as makes the load right."""
    rng = np.random.default_rng([settings.seed, 41])
    span_s = settings.hours * 3600.0
    # Few hours at a small scale still need enough jobs for a percentile.
    count = max(50, int(per_s * span_s))
    release = _arrivals(rng, count, span_s, per_s)
    which = rng.choice(len(JOBS), len(release), p=[jobs.part for jobs in JOBS])
    runtime = np.array([jobs.median_s for jobs in JOBS])[which] * rng.lognormal(0.0, 0.6, len(release))
    wants = np.array([jobs.wants for jobs in JOBS], np.float64)[which]
    of_gpu = np.array([jobs.gpu for jobs in JOBS])[which]
    for gpu in (False, True):
        room = sum(one.cores for one in machines.nodes if ("gpu" in one.features) == gpu) * span_s
        mine = of_gpu == gpu
        # CPU and GPU jobs each to the same load: the mix gives their number, not their length.
        runtime[mine] *= settings.load * room / float((runtime * wants)[mine].sum())
    shapes = [Shape(0, (Variant(cores=jobs.wants, features=("gpu",) if jobs.gpu else ("cpu",)),), 1) for jobs in JOBS]
    # Twenty times their length: a deadline marks them as urgent, it does not press.
    deadline = np.where(rng.random(len(release)) < urgent, release + 20.0 * runtime, np.inf)
    return Workload.of_columns(
        "joulie",
        release_s=release,
        runtime_s=runtime,
        shapes=shapes,
        shape=which.astype(np.int32),
        functions=(Function("job", compute_bound=0.8),),
        deadline_s=deadline,
        one_each=True,
    )


def _arrivals(rng: np.random.Generator, count: int, span_s: float, per_s: float) -> Floats:
    """Thinned draws under a daily wave of ± 40 %; one job in ten comes in a burst."""
    grid = np.linspace(0.0, span_s, 20_001)
    rate = 1.0 + 0.4 * np.sin(2 * np.pi * (grid / DAY_S - 0.25))
    # The integral of the rate; drawing evenly over it gives arrivals at that rate.
    reached = np.concatenate([[0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1]))])
    bursts = max(1, round(0.1 * count / 125))
    sizes = rng.integers(50, 201, bursts) if count > 1000 else np.full(bursts, 5)
    # One in ten at most, whatever the sizes of bursts.
    together = np.repeat(rng.uniform(0.0, span_s, bursts), sizes)[: count // 10]
    spread = np.interp(rng.random(count - len(together)) * reached[-1], reached, grid)
    return np.sort(np.concatenate([spread, together]))


@dataclass(frozen=True, slots=True)
class Result:
    """One policy in one setting."""

    energy_j: float
    p95_s: float
    seconds: float


def replay(machines: Cluster, jobs: Workload, policy: str, seed: int) -> Result:
    """Run it; the response of a job is from its release to its end."""
    run = simulate(jobs, machines, policy, seed=seed)
    response = run.end_s_by_task() - jobs.release_s
    return Result(run.total_j, float(np.percentile(response, 95)), run.makespan_s)


def run(settings: object, progress: Progress) -> Findings:
    """Both settings; sleep is left out in the runs named so."""
    assert isinstance(settings, JoulieSettings)
    large = cluster(LARGE, settings, settings.scale)
    mixed = cluster(MIXED, settings)
    # As many jobs for each core as in the large setting.
    cores = sum(one.cores for one in mixed.nodes) / sum(one.cores for one in cluster(LARGE, settings).nodes)
    plans = (
        ("scheduling", large, workload(large, settings, settings.jobs_per_s * settings.scale, 0.0), 6.4),
        ("caps", mixed, workload(mixed, settings, settings.jobs_per_s * cores, settings.performance), 20.0),
    )
    sheets, figures, results = [], [], {}
    for i, (name, machines, jobs, published) in enumerate(plans):
        rival = "joulie-caps" if name == "caps" else "joulie"
        # The caps experiment is about caps, the other one about scheduling alone.
        chosen = [one for one in settings.policies if one != ("joulie" if name == "caps" else "joulie-caps")]
        found: dict[str, Result] = {}
        for k, policy in enumerate((*chosen, "wattflow, no sleep")):
            progress((i + k / (len(chosen) + 1)) / 2, f"{name}: {policy}, {len(jobs)} jobs")
            ours = policy.endswith("no sleep")
            where = machines.without_sleep() if ours else machines
            found[policy] = replay(where, jobs, "wattflow" if ours else policy, settings.seed)
        sheets.append(_sheet(name, len(machines.nodes), len(jobs), found, rival, published))
        figures += _figures(name, found, rival)
        results[name] = {key: {"energy_j": one.energy_j, "p95_s": one.p95_s} for key, one in found.items()}
    notes = (
        "Sizes and lengths of jobs and the load are assumed; machines, curves and mix are those of Joulie's reports.",
        "Sleep states are assumed (5 % of peak, a minute to wake); the row without sleep is what placement alone does.",
        "Its 20 to 29 % come from caps and scheduling together on 41 nodes; it reports 6.4 % from scheduling alone.",
    )
    return Findings(tuple(sheets), tuple(figures), results, notes)


def saving(found: Mapping[str, Result], policy: str) -> float:
    """Percent less energy than most-allocated."""
    before = found["most-allocated"].energy_j
    return 100.0 * (before - found[policy].energy_j) / before


def _sheet(name: str, nodes: int, jobs: int, found: Mapping[str, Result], rival: str, published: float) -> Sheet:
    rows = []
    for policy, one in found.items():
        told = f"{published:g}" if policy == rival else ""
        cells = (f"{kwh(one.energy_j):.1f}", f"{saving(found, policy):.1f}", told, f"{one.p95_s:.0f}")
        rows.append((policy, *cells))
    columns = ("policy", "energy kWh", "saving %", "published %", "p95 response s")
    return Sheet(f"{name}: {nodes} nodes, {jobs} jobs", columns, tuple(rows))


def _figures(name: str, found: Mapping[str, Result], rival: str) -> list[Figure]:
    ours, theirs = saving(found, "wattflow"), saving(found, rival)
    plain = saving(found, "wattflow, no sleep")
    p95, most = found["wattflow"].p95_s, found[rival].p95_s
    # Where it saves nothing, neither do we have to.
    goal = 2 * max(0.0, theirs)
    return [
        Figure(f"joulie_{name}_its_saving", theirs, "%", "none", True),
        Figure(f"joulie_{name}_our_saving", ours, "%", f">={goal:.3g}", ours >= goal),
        Figure(f"joulie_{name}_our_saving_without_sleep", plain, "%", f">={goal:.3g}", plain >= goal),
        Figure(f"joulie_{name}_our_p95_over_its", p95 / most, "times", "<=1", p95 <= most),
    ]
