"""The flagship beside every other policy: energy under a bound on waiting (`make bench-policy`).

    python benchmarks/policy.py [--seeds 5] [--first-seed 0] [--workers 2] [--clusters …] [--out FOLDER]

Streams of workflows (Poisson arrivals) at three loads on three clusters. A policy keeps the bound in a scenario if
its mean and p95 response of workflows and its makespan, means over the seeds, are at most 1.02 × those of `kubernetes`
with all nodes on. Of the policies that keep it and do not know the future, the one with the fewest joules is the
opponent of that scenario. Numbers of our policy were chosen on seeds from 1000 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

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
