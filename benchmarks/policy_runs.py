"""Runs of `make bench-policy`: scenarios, one measured run, and a file of results that a later call goes on with."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

import wattflow
from research import judge
from wattflow.clusters import load_cluster
from wattflow.generate import Arrivals, Recipe
from wattflow.generate.laws import Law
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import relaxation
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

WORKFLOWS, TASKS, MEAN_S, DEADLINE = 60, 50, 60.0, 4.0
GROUND = Path(__file__).parent / "ground"
UNTUNED = tuple(sorted(path.stem for path in GROUND.glob("*.toml")))
"""Clusters that nobody tuned on."""
RUNTIME_ERROR = 0.2
"""Spread of estimates round the truth."""
AWAKE = "-awake"
"""Behind a cluster's name: without its sleep states."""
PACKAGES = ("model", "generate", "clusters", "data", "kernel", "engine", "policy", "sim", "plan", "lab/compare")
TRIAL = 2
"""Seeds that every policy runs. An opponent that breaks the bound on each of them is out for that scenario."""

TOGETHER = 12
"""Policies that a process runs on one drawn stream before it gives its results back."""


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


Table = dict[tuple[Scenario, str], list[Result]]
"""Results by scenario and policy, in the order of the seeds."""
Batch = tuple[Scenario, int, tuple[str, ...]]
"""One drawn stream and the policies that it is simulated under: they share its set-up."""


@cache
def cluster_of(name: str) -> Cluster:
    """A preset, read once per process; ``-awake`` takes its sleep states away."""
    name_or_file = name.removesuffix(AWAKE)
    found = load_cluster(str(GROUND / f"{name_or_file}.toml") if name_or_file in UNTUNED else name_or_file)
    return found.without_sleep() if name.endswith(AWAKE) else found


def capacity(cluster: Cluster) -> float:
    """Seconds of work per second that the owned cores do."""
    return sum(node.cores * node.speed for node in cluster.nodes if node.serverless is None)


@lru_cache(2)
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


@cache
def policy_of(name: str) -> Policy:
    """A registered policy, ``wattflow`` with a value of its dial as in ``wattflow:wait=0.3``."""
    return registry.load(name)


def measure(scenario: Scenario, policy: str, seed: int, bound: bool = False) -> Result:
    """Simulate one scenario, policy and seed; with the lower bound on its joules where asked for."""
    workload, cluster = workload_of(scenario, seed), cluster_of(scenario.cluster)
    found = outcome(scenario, policy, seed, horizon_s(scenario, seed))
    return Result(
        scenario, policy, seed, found.energy_j, found.mean_s, found.p95_s,
        found.end_s - float(workload.release_s.min()), tuple(np.flatnonzero(found.late).tolist()),
        relaxation.energy_bound_j(workload, cluster) if bound else math.nan,
    )  # fmt: skip


def outcome(scenario: Scenario, policy: str, seed: int, end_s: float | None) -> judge.Outcome:
    """One run with joules to the reference's last end, or to a later one of its own; ties are drawn by the seed."""
    workload = workload_of(scenario, seed)
    known = workload if end_s is None else judge.followed(workload, 2.0 * end_s)
    cluster, rule = judge.shuffled(cluster_of(scenario.cluster), seed), judge.drawn_ties(policy_of(policy))
    options = SimOptions(record_power=end_s is not None, runtime_error=RUNTIME_ERROR)
    run = simulate(known, cluster, rule, seed=seed, options=options)
    return judge.outcome_of(run, len(workload.workflow_names), end_s)


@lru_cache(2)
def horizon_s(scenario: Scenario, seed: int) -> float:
    """The last end under the reference."""
    return outcome(scenario, judge.REFERENCE, seed, None).end_s


def measure_batch(batch: Batch, baseline: str) -> list[Result]:
    """All policies on one drawn stream; the baseline's result holds the lower bound."""
    scenario, seed, policies = batch
    return [measure(scenario, name, seed, name == baseline) for name in policies]


def compile_policy(name: str) -> None:
    """One short run: its code is compiled and kept."""
    workload = Recipe("map-reduce", 8, 1, Law("lognormal", MEAN_S, 1.0)).draw(1)
    simulate(workload, cluster_of("mixed"), policy_of(name), seed=1)


class Book:
    """Results that are known, in memory and in a file of lines; those of other sources are set aside."""

    def __init__(self, path: Path, baseline: str, workers: int) -> None:
        self.path, self.baseline, self.workers = path, baseline, workers
        self.known: dict[tuple[Scenario, str, int], Result] = {}
        self.stamp = sources()
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            row = json.loads(line)
            if row.pop("stamp") == self.stamp:
                self._keep(Result(Scenario(**row.pop("scenario")), missed=tuple(row.pop("missed")), **row))

    def _keep(self, result: Result) -> None:
        self.known[result.scenario, result.policy, result.seed] = result

    def run(self, batches: Iterable[Batch], title: str) -> None:
        """Measure what is not known yet, several streams at once, and say how far it is."""
        missing = list(self._missing(batches))
        total, done = sum(len(batch[2]) for batch in missing), 0
        print(f"{title}: {total} runs to go, {len(self.known)} known", flush=True)
        if not missing:
            return
        started = said = time.monotonic()
        with ProcessPoolExecutor(self.workers) as pool, self.path.open("a", encoding="utf-8") as file:
            self._compile(pool, missing)
            for future in as_completed([pool.submit(measure_batch, batch, self.baseline) for batch in missing]):
                for result in future.result():
                    self._keep(result)
                    file.write(json.dumps(asdict(result) | {"stamp": self.stamp}) + "\n")
                    done += 1
                file.flush()
                if time.monotonic() - said > 20:
                    said = time.monotonic()
                    print(f"  {done} of {total} runs, {said - started:.0f} s", flush=True)

    def _compile(self, pool: ProcessPoolExecutor, missing: Sequence[Batch]) -> None:
        """Compile what the runs need, once each: what all share first, then every policy in some process."""
        names = dict.fromkeys(name.partition(":")[0] for batch in missing for name in batch[2])
        pool.submit(compile_policy, self.baseline).result()
        list(pool.map(compile_policy, names))

    def _missing(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """What is not known, a few policies at a time: little is lost where a call is cut off."""
        for scenario, seed, policies in batches:
            left = [name for name in policies if (scenario, name, seed) not in self.known]
            for first in range(0, len(left), TOGETHER):
                yield scenario, seed, tuple(left[first : first + TOGETHER])

    def table(self, scenarios: Sequence[Scenario], seeds: range) -> Table:
        """What is known of these scenarios and seeds."""
        found: Table = {}
        for scenario, policy, seed in sorted(self.known, key=lambda key: key[2]):
            if scenario in scenarios and seed in seeds:
                found.setdefault((scenario, policy), []).append(self.known[scenario, policy, seed])
        return found


def deciding(*more: Path) -> str:
    """A hash of the code that results depend on, whatever its comments, docstrings and layout, and of the data beside
    it; ``more``: further files."""
    root = Path(wattflow.__file__).parent
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted([*(root / package).rglob("*.py"), *(root / package).rglob("*.toml")]):
            digest.update(_meaning(path))
    for path in more:
        digest.update(_meaning(path))
    return digest.hexdigest()[:16]


def _meaning(path: Path) -> bytes:
    if path.suffix != ".py":
        return path.read_bytes()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Docstrings, those of attributes too, say nothing to a machine.
            texts = [one for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
            node.body = [one for one in body if one not in texts]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def sources() -> str:
    """A hash of everything that results depend on: code and data of the packages that draw, decide and simulate."""
    root = Path(wattflow.__file__).parent
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted([*(root / package).rglob("*.py"), *(root / package).rglob("*.toml")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
