"""The curriculum: what evolution strategies are trained on, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattflow.learn import scenarios
from wattflow.learn.scenarios import SLACKS, Scenario
from wattflow.model.cluster import Cluster

FOREVER = 1 << 30


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the plan.

    Attributes:
        until: The generation with which the stage is over.
        pool: Scenarios that are set up for it, as a share of the run's pool.
        tasks: Tasks of a stream, as a share of the run's.
        workflows: Most workflows of a stream; 0: as many as the tasks make.
        slacks: Deadlines, in critical paths.
        errors: Whether estimates and watts are wrong, by 0–30 %.
        hard: Share of trials on the quarter of the pool where the weights lose most (`research.hard_examples`).
        mutants: How many of the easiest scenarios make way for changed copies of the hardest, every tenth generation.
    """

    name: str
    until: int
    pool: float = 1.0
    tasks: float = 1.0
    workflows: int = 0
    slacks: tuple[float, ...] = SLACKS
    errors: bool = True
    hard: float = 0.0
    mutants: int = 0

    @property
    def kind(self) -> tuple[object, ...]:
        """What its scenarios depend on: stages that agree in it share them."""
        return self.pool, self.tasks, self.workflows, self.slacks, self.errors

    def shaped(self, scenario: Scenario, seed: int) -> Scenario:
        """A scenario as this stage wants it."""
        rng = np.random.default_rng([seed, 59])
        stream = scenario.stream
        if self.slacks != SLACKS:
            stream = replace(stream, slack=float(rng.choice(self.slacks)))
        if self.workflows:
            stream = replace(stream, workflows=min(stream.workflows, self.workflows))
        if not self.errors:
            scenario = replace(scenario, runtime_error=0.0, power_error=0.0)
        return scenario if stream is scenario.stream else replace(scenario, stream=stream)


STAGES = (
    # what is known is true, workflows few, deadlines tight
    Stage("deadlines", 12, pool=0.3, tasks=0.35, workflows=4, slacks=(1.5, 2.5), errors=False),
    # streams on any cluster, estimates and watts wrong
    Stage("streams", 30),
    # the same, and more of what goes wrong
    Stage("adversaries", FOREVER, hard=0.2, mutants=4),
)
"""The plan of a run from scratch. A run that goes on is in the stage of its generation."""


def stage_of(generation: int) -> Stage:
    """Where a run is."""
    return next(stage for stage in STAGES if generation < stage.until)


def mutant(scenario: Scenario, seed: int) -> Scenario:
    """A scenario changed a little: another load, another mix of its cluster's nodes, or deadlines and errors anew."""
    rng = np.random.default_rng([seed, 67])
    way = int(rng.integers(3))
    if way == 0:
        stream = replace(scenario.stream, load=float(np.clip(scenario.stream.load * rng.uniform(0.7, 1.4), 0.2, 0.9)))
        return replace(scenario, name=f"{scenario.name}-load", stream=stream)
    if way == 1:
        return replace(scenario, name=f"{scenario.name}-mix", cluster=remixed(scenario.cluster, rng))
    stream = replace(scenario.stream, slack=float(rng.choice(SLACKS)))
    runtime_error, power_error = rng.uniform(0.0, 0.3, 2).tolist()
    return replace(
        scenario, name=f"{scenario.name}-known", stream=stream, runtime_error=runtime_error, power_error=power_error
    )


def remixed(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """Mix the kinds of nodes of a cluster in other shares, about as many nodes."""
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    shares = rng.dirichlet(np.full(len(kinds), 1.0))
    nodes = [
        replace(kind, name=f"{kind.name}-{i}")
        for kind, share in zip(kinds, shares.tolist(), strict=True)
        for i in range(max(1, round(share * len(cluster.nodes))))
    ]
    return replace(cluster, name=f"{cluster.name}-mixed", nodes=tuple(nodes[: scenarios.MOST_NODES]))
