"""The flagship beside every other policy: energy under a bound on waiting (`make bench-policy`).

    python benchmarks/policy.py [--seeds 5] [--first-seed 0] [--workers 2] [--clusters …] [--out FOLDER]

Streams of workflows (Poisson arrivals) at three loads on three clusters. A policy keeps the bound in a scenario if
its mean and p95 response of workflows and its makespan, means over the seeds, are at most 1.02 × those of `kubernetes`
with all nodes on. Of the policies that keep it and do not know the future, the one with the fewest joules is the
opponent of that scenario. Numbers of our policy were chosen on seeds from 1000 on.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.generate import Arrivals, Recipe
from wattflow.generate.laws import Law
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import bounds
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import simulate

LOADS = (0.3, 0.6, 0.8)
FAMILIES = ("montage", "map-reduce", "layered", "mixed")
CLUSTERS = ("mixed", "edge-cloud", "ichnos")
WORKFLOWS, TASKS, MEAN_S, DEADLINE = 60, 50, 60.0, 4.0
BOUND = 1.02
GOAL_PCT = 20.0
OURS, BASELINE, PUNCTUAL = "wattflow", "kubernetes", "eft-sleep"
WAITS = (0.0, 0.1, 0.3, 1.0, 3.0, math.inf)
"""Values of the dial that the picture shows."""
NOT_SIMULATED = {"nsga2"}
"""Searches with thousands of simulations: shown on one scenario, not judged."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stream of one family at one load on one cluster."""

    cluster: str
    family: str
    load: float

    @property
    def name(self) -> str:
        return f"{self.cluster}_{self.family}_{self.load:g}".replace("-", "_")


@dataclass(frozen=True, slots=True)
class Result:
    """One run: joules, seconds, and which workflows missed their deadline."""

    scenario: Scenario
    policy: str
    seed: int
    energy_j: float
    mean_s: float
    p95_s: float
    makespan_s: float
    missed: tuple[int, ...]
    bound_j: float


@cache
def cluster_of(name: str) -> Cluster:
    """A preset, read once per process; ``-awake`` takes its sleep states away."""
    return load_cluster(name.removesuffix("-awake"))


def capacity(cluster: Cluster) -> float:
    """Seconds of work per second that the owned cores do."""
    return sum(node.cores * node.speed for node in cluster.nodes if node.serverless is None)


@cache
def workload_of(scenario: Scenario, seed: int) -> Workload:
    """Arrivals so that work arrives at ``load`` × what the owned cores do."""
    probe = Recipe(scenario.family, TASKS, 20, Law("lognormal", MEAN_S, 1.0)).draw(7)
    cores = np.array([shape.variants[0].cores for shape in probe.shapes])[probe.shape]
    work = float((probe.runtime_s * cores).sum()) / 20
    rate = scenario.load * capacity(cluster_of(scenario.cluster)) / work
    recipe = Recipe(
        scenario.family, TASKS, WORKFLOWS, Law("lognormal", MEAN_S, 1.0), arrivals=Arrivals("poisson", rate),
        slack=DEADLINE,
    )  # fmt: skip
    return recipe.draw(seed)


def policy_of(name: str) -> Policy:
    """A registered policy, ``wattflow`` with a value of its dial as in ``wattflow:wait=0.3``."""
    base, _, dial = name.partition(":")
    params = {key: float(value) for key, value in (item.split("=") for item in dial.split(",") if item)}
    return registry.load(base, **params)


def measure(job: tuple[Scenario, str, int]) -> Result:
    """Simulate one scenario, policy and seed."""
    scenario, name, seed = job
    workload, cluster = workload_of(scenario, seed), cluster_of(scenario.cluster)
    run = simulate(workload, cluster, policy_of(name), seed=seed)
    end_s = np.zeros(len(workload.workflow_names))
    np.maximum.at(end_s, workload.workflow, run.end_s_by_task())
    due_s = np.full(len(end_s), np.inf)
    np.minimum.at(due_s, workload.workflow, workload.deadline_s)
    response_s = end_s - workload.workflow_submit_s
    return Result(
        scenario, name, seed, run.total_j, float(response_s.mean()), float(np.quantile(response_s, 0.95)),
        run.makespan_s, tuple(np.flatnonzero(end_s > due_s + 1e-6).tolist()),
        bounds.energy_bound_j(workload, cluster) if name == BASELINE else math.nan,
    )  # fmt: skip


Table = dict[tuple[Scenario, str], list[Result]]


def run_all(jobs: list[tuple[Scenario, str, int]], workers: int) -> Table:
    """All runs, several processes at once; prints how far it is."""
    found: Table = {}
    started = time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        for done, result in enumerate(pool.map(measure, jobs, chunksize=20), 1):
            found.setdefault((result.scenario, result.policy), []).append(result)
            if done % max(1, len(jobs) // 20) == 0:
                print(f"{done} of {len(jobs)} runs, {time.monotonic() - started:.0f} s", flush=True)
    return found


def mean(results: list[Result], name: str) -> float:
    """Mean of a figure over the seeds."""
    return float(np.mean([getattr(result, name) for result in results]))


def ratios(table: Table, scenario: Scenario, policy: str) -> tuple[float, float, float]:
    """Mean response, p95 response and makespan over those of the baseline."""
    ours, base = table[scenario, policy], table[scenario, BASELINE]
    mean_s, p95_s, makespan_s = (mean(ours, f) / mean(base, f) for f in ("mean_s", "p95_s", "makespan_s"))
    return mean_s, p95_s, makespan_s


def opponents(table: Table, scenario: Scenario) -> list[str]:
    """Other policies that keep the bound and do not know the future, the most frugal first."""
    names = [name for (place, name) in table if place == scenario and name.partition(":")[0] != OURS]
    able = [n for n in names if not policy_of(n).knows_future and max(ratios(table, scenario, n)) <= BOUND]
    return sorted(able, key=lambda name: mean(table[scenario, name], "energy_j"))


def saving(table: Table, scenario: Scenario, ours: str, other: str) -> tuple[float, float, float]:
    """Per cent of the other's joules saved, and the ends of a 95 % interval over seeds (paired, of the log ratio)."""
    logs = [
        math.log(a.energy_j / b.energy_j)
        for a, b in zip(table[scenario, ours], table[scenario, other], strict=True)
        if a.seed == b.seed
    ]
    centre, spread = float(np.mean(logs)), float(np.std(logs, ddof=1)) if len(logs) > 1 else math.nan
    half = STUDENT.get(len(logs), 1.96) * spread / math.sqrt(len(logs))
    low, middle, high = (100.0 * (1.0 - math.exp(x)) for x in (centre + half, centre, centre - half))
    return middle, low, high


STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % points of Student's t by the number of seeds."""


def newly_missed(table: Table, scenario: Scenario, policy: str) -> int:
    """Deadlines missed that `eft-sleep` meets, over all seeds."""
    pairs = zip(table[scenario, policy], table[scenario, PUNCTUAL], strict=True)
    return sum(len(set(ours.missed) - set(theirs.missed)) for ours, theirs in pairs)


def report(table: Table, scenarios: list[Scenario]) -> list[str]:
    """A line per scenario, and the figures."""
    logs, kept, missed, short_gap = [], 0, 0, []
    print(f"\n{'scenario':28s} {'opponent':20s} {'saved %':>22s}  response  p95   makespan  late  possible %")
    for scenario in scenarios:
        best = opponents(table, scenario)[0]
        middle, low, high = saving(table, scenario, OURS, best)
        kept += max(ratios(table, scenario, OURS)) <= BOUND
        late = newly_missed(table, scenario, OURS)
        missed += late
        logs.append(math.log(mean(table[scenario, OURS], "energy_j") / mean(table[scenario, best], "energy_j")))
        bound_j = mean(table[scenario, BASELINE], "bound_j")
        possible = 100.0 * (1.0 - bound_j / mean(table[scenario, best], "energy_j"))
        if possible < GOAL_PCT:
            short_gap.append(scenario.name)
        mean_r, p95_r, span_r = ratios(table, scenario, OURS)
        print(
            f"{scenario.name:28s} {best:20s} {middle:6.1f} ({low:5.1f} … {high:5.1f})  "
            f"{mean_r:7.3f} {p95_r:6.3f} {span_r:7.3f} {late:6d} {possible:8.1f}"
        )
    total = 100.0 * (1.0 - math.exp(float(np.mean(logs))))
    count = len(scenarios)
    lines = [
        f"figure policy_energy_below_best_opponent {total:.1f} % goal ≥{GOAL_PCT:g} {verdict(total >= GOAL_PCT)}",
        f"figure policy_scenarios_within_bound {kept} of {count} goal {count} {verdict(kept == count)}",
        f"figure policy_deadlines_newly_missed {missed} workflows goal 0 {verdict(missed == 0)}",
    ]
    if short_gap:
        print(f"the lower bound leaves less than {GOAL_PCT:g} % in: {', '.join(short_gap)}")
    return lines + against_hpe_sleep(table, scenarios)


def against_hpe_sleep(table: Table, scenarios: list[Scenario]) -> list[str]:
    """Energy against `hpe-sleep`, which may take longer, cluster by cluster, quiet and busy."""
    lines = []
    for cluster in dict.fromkeys(scenario.cluster for scenario in scenarios):
        for word, loads in (("quiet", LOADS[:1]), ("busy", LOADS[1:])):
            some = [s for s in scenarios if s.cluster == cluster and s.load in loads]
            found = [
                np.log([r.energy_j for r in table[s, OURS]]) - np.log([r.energy_j for r in table[s, "hpe-sleep"]])
                for s in some
            ]
            over_seeds = np.mean(found, axis=0)
            half = STUDENT.get(len(over_seeds), 1.96) * over_seeds.std(ddof=1) / math.sqrt(len(over_seeds))
            saved, least = (100.0 * (1.0 - math.exp(x)) for x in (over_seeds.mean(), over_seeds.mean() + half))
            slower = np.mean([mean(table[s, OURS], "mean_s") / mean(table[s, "hpe-sleep"], "mean_s") for s in some])
            name = f"policy_{cluster}_{word}_below_hpe_sleep".replace("-", "_")
            print(f"{name}: at least {least:.1f} % (95 %), response {slower:.2f} × hpe-sleep's")
            lines.append(f"figure {name} {saved:.1f} % goal >0 {verdict(least > 0)}")
    return lines


def log_energy(table: Table, scenario: Scenario, policy: str) -> np.ndarray:
    """Logarithms of the joules, by seed."""
    return np.log([result.energy_j for result in table[scenario, policy]])


def verdict(good: bool) -> str:
    return "ok" if good else "short"


def relative(table: Table, scenarios: list[Scenario], policy: str, figure: str) -> float:
    """Geometric mean over the scenarios of a figure over the baseline's."""
    logs = [math.log(mean(table[s, policy], figure) / mean(table[s, BASELINE], figure)) for s in scenarios]
    return math.exp(float(np.mean(logs)))


def draw(table: Table, scenarios: list[Scenario], path: Path) -> None:
    """Energy against response of every policy, geometric means over the scenarios, and the front of our dial."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(name for (_, name) in table))
    place = {
        name: (relative(table, scenarios, name, "mean_s"), relative(table, scenarios, name, "energy_j"))
        for name in names
    }
    front = [name for name in names if name.startswith(f"{OURS}:wait=")]
    xs, ys = zip(*(place[name] for name in [OURS, *front]), strict=True)
    axes.plot(xs, ys, marker="o", label=f"{OURS}, by its dial wait")
    for name in names:
        text = name.removeprefix(f"{OURS}:")
        axes.annotate(text, place[name], fontsize=7, xytext=(3, 3), textcoords="offset points")
        if name not in front and name != OURS:
            axes.plot(*place[name], marker="^" if policy_of(name).knows_future else "x", color="0.4")
    axes.axvline(BOUND, linestyle=":", color="0.6")
    axes.set(xscale="log", xlabel=f"mean response / {BASELINE}'s", ylabel=f"energy / {BASELINE}'s")
    axes.grid(color="0.92")
    axes.legend()
    figure.savefig(path, dpi=130)


def scenarios_of(clusters: list[str]) -> list[Scenario]:
    return [Scenario(cluster, family, load) for cluster in clusters for family in FAMILIES for load in LOADS]


def jobs_of(scenarios: list[Scenario], policies: list[str], seeds: range) -> Iterator[tuple[Scenario, str, int]]:
    for scenario in scenarios:
        for seed in seeds:
            for policy in policies:
                yield scenario, policy, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    parser.add_argument("--policies", default="", help="only these opponents (the figures then say less)")
    parser.add_argument("--out", type=Path, default=Path("out/policy"))
    options = parser.parse_args()
    scenarios = scenarios_of(options.clusters.split(","))
    dial = [f"{OURS}:wait={wait:g}" for wait in WAITS if wait > 0]
    known = [name for name in registry.names() if name not in NOT_SIMULATED]
    asked = options.policies.split(",") if options.policies else known
    policies = [name for name in known if name in {*asked, OURS, BASELINE, PUNCTUAL, "hpe-sleep"}] + dial
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    table = run_all(list(jobs_of(scenarios, policies, seeds)), options.workers)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) for results in table.values() for result in results]
    (options.out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    lines = report(table, scenarios)
    draw(table, scenarios, options.out / "front.png")
    print(f"nsga2 knows the future and searches for minutes: shown in docs, not judged. Results in {options.out}\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
