"""The sweep of energy-aware HEFT: planners × slack × sleep time-outs, each plan made once and run under every time-out.

A time-out changes nothing that a planner knows, and a run takes a hundredth of the time of its plan, so time-outs are
all but free. Beside fixed ones there is the break-even time of each class of nodes: as long as it must be asleep to pay
for falling asleep and waking.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from wattflow.learn.scenarios import Scenario
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import node_offers, sleeps
from wattflow.plan.measured import Result, result_of
from wattflow.policy import registry
from wattflow.policy.base import Policy, Prepare
from wattflow.sim.repeated import Repeated

PLANNERS = ("eheft", "dewts")
SLACKS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Of a workflow's span beyond its planned end, deadlines left out of account."""
EVEN = math.nan
"""Stands for the break-even time of each class."""
SLEEPS = (0.0, 15.0, 30.0, 60.0, 120.0, 300.0, EVEN)
"""Idle seconds before a node sleeps."""


def plans() -> tuple[str, ...]:
    """Every planner with every slack, and with each workflow's deadline as its limit."""
    limits = (*(f"deadline=0:slack={slack:g}" for slack in SLACKS), "deadline=1:slack=0")
    return tuple(f"{planner}:{limit}" for planner, limit in product(PLANNERS, limits))


def settings() -> tuple[str, ...]:
    """All settings; those of one plan follow each other."""
    return tuple(f"{plan}:sleep={_told(sleep)}" for plan, sleep in product(plans(), SLEEPS))


def _told(sleep_s: float) -> str:
    return "even" if math.isnan(sleep_s) else f"{sleep_s:g}"


def break_even_s(cluster: Cluster) -> np.ndarray:
    """For each node the shortest sleep that pays for itself; inf where none does."""
    return np.array([_even_s(node) for node in cluster.nodes])


def _even_s(node: Any) -> float:
    above_w = node_offers.idle_w(node) - sleeps.still_w(node)
    return max(sleeps.worth_s(node), sleeps.cycle_j(node) / above_w) if above_w > 0 else math.inf


def _asleep_after(sleep_s: float) -> Prepare:
    def prepare(state: Any, cluster: Cluster) -> None:
        sleeps = state.classes.sleepable == 1
        after = np.full(len(sleeps), sleep_s)
        if math.isnan(sleep_s):
            after[state.nodes.cls] = break_even_s(cluster)
        state.classes.sleep_after_s[sleeps] = after[sleeps]

    return prepare


def with_sleep(policy: Policy, sleep_s: float) -> Policy:
    """A planner whose idle nodes sleep after so many seconds, or at break-even."""
    return replace(policy, name=f"{policy.name}:sleep={_told(sleep_s)}", prepare=_asleep_after(sleep_s))


def results(scenario: Scenario, drawn: Sequence[Workload]) -> Iterator[tuple[str, tuple[Result, ...]]]:
    """Each setting with its results by seed; ``drawn`` has the workloads of the seeds 0, 1, …"""
    for text in plans():
        planner = registry.load(text)
        by_seed = [_under_every_sleep(planner, scenario, workload, seed) for seed, workload in enumerate(drawn)]
        for sleep, found in zip(SLEEPS, zip(*by_seed, strict=True), strict=True):
            yield with_sleep(planner, sleep).name, found


def _under_every_sleep(planner: Policy, scenario: Scenario, workload: Workload, seed: int) -> list[Result]:
    first, *others = (with_sleep(planner, sleep) for sleep in SLEEPS)
    simulation = Repeated(workload, scenario.cluster, first, seed=seed, options=scenario.options)
    found = [result_of(simulation.run())]
    return found + [result_of(simulation.again(other)) for other in others]
