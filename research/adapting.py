"""Does fine-tuning pay? Weights in use beside weights fine-tuned on the first half of a stream, on its second half.

Each case is a shift: an application that the weights were never trained on (those of its fold are in use), on a cluster
that they were never trained on, every second time with half of its kinds of nodes drawing 30 % more. The first half of
the stream is the record: its older two thirds are trained on, its last third is the shadow test, as live. The second
half is replayed in blocks under both weights, with other draws of errors. Reported are the candidate as it is, and what
a server would have got: the candidate where the test promoted it, else what it had.
"""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from research import shipped
from wattflow.learn import evolve, recorded, scenarios
from wattflow.learn.evolve import EvolutionSettings, FineTuner, Verdict
from wattflow.learn.trial import Judge
from wattflow.model.cluster import Cluster
from wattflow.policy import weights

Floats = NDArray[np.float64]
WORKFLOWS = 80
"""Of a stream; half of them are the record."""
BLOCKS = 6
"""Of each half."""
FIRST_CLUSTER = 400
"""Clusters that nothing was trained or set by: steps of fine-tuning were chosen on those from 200 to 319."""


def drifted(cluster: Cluster, share: float = 0.3) -> Cluster:
    """Let every second kind of node draw so much more; profiles are taken to be refitted, so policies know."""
    kinds = sorted({str(node.class_key) for node in cluster.nodes})
    nodes = []
    for node in cluster.nodes:
        power = node.power
        if power is not None and kinds.index(str(node.class_key)) % 2 == 0:
            power = replace(power, watts=tuple(w * (1.0 + share) for w in power.watts))
        nodes.append(replace(node, power=power))
    return replace(cluster, nodes=tuple(nodes))


@dataclass(frozen=True, slots=True)
class Case:
    """One shift by numbers."""

    application: str
    load: float
    cluster: int
    drifted: bool
    seed: int = 0

    @property
    def fold(self) -> int:
        return next(fold for fold, names in enumerate(scenarios.FOLDS) if self.application in names)

    def halves(self) -> tuple[list[recorded.Recorded], list[recorded.Recorded]]:
        """Blocks of the record, and of what came after."""
        cluster = scenarios.random_cluster(np.random.default_rng([self.cluster, 71]), f"shift-{self.cluster}")
        cluster = drifted(cluster) if self.drifted else cluster
        stream = replace(scenarios.stream_of(self.application, self.load, 1), workflows=WORKFLOWS)
        workload = scenarios.Scenario(self.application, cluster, stream).draw(self.seed)
        flows = np.argsort(workload.workflow_submit_s, kind="stable")
        half = len(flows) // 2
        first, second = (
            recorded.blocks(self.application, recorded.only(workload, some), cluster, BLOCKS)
            for some in (flows[:half], flows[half:])
        )
        return first, second


@dataclass(frozen=True, slots=True)
class Adapted:
    """What came of a case: the shadow test's verdict on the record, and the truth on the second half."""

    case: Case
    shadow: Verdict
    truth: Verdict

    @property
    def served(self) -> float:
        """Share of joules (logarithm) that a server would have saved."""
        return self.truth.saved if self.shadow.promoted else 0.0


def cases(count: int) -> list[Case]:
    """Applications and loads in turn."""
    return [
        Case(
            scenarios.APPLICATIONS[i % len(scenarios.APPLICATIONS)],
            scenarios.LOADS[(i + i // len(scenarios.APPLICATIONS)) % len(scenarios.LOADS)],
            FIRST_CLUSTER + i,
            i % 2 == 1,
        )
        for i in range(count)
    ]


def adapted(case: Case, seconds: float, settings: EvolutionSettings = evolve.USUAL) -> Adapted:
    """Fine-tune and test."""
    present = weights.load(shipped.weights_of(case.fold))[0]
    first, second = case.halves()
    recent, held = evolve.parted(first)
    tuner = FineTuner(present, recent, settings=settings)
    candidate = tuner.run(seconds)
    later = [Judge(one, 500 + seed) for one in second for seed in range(2)]
    return Adapted(case, evolve.shadow(present, candidate, held), evolve.shadow(present, candidate, later))


def _job(given: tuple[Case, float]) -> Adapted:
    return adapted(*given)


def all_adapted(some: Sequence[Case], seconds: float, workers: int = 1) -> list[Adapted]:
    """Every case, over processes."""
    jobs = [(case, seconds) for case in some]
    if workers == 1:
        return [_job(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_job, jobs))


def read(text: str) -> list[Adapted]:
    """What was stored as JSON."""
    return [Adapted(Case(**one["case"]), Verdict(**one["shadow"]), Verdict(**one["truth"])) for one in json.loads(text)]


def interval(values: Sequence[float], draws: int = 4000) -> tuple[float, float, float]:
    """Mean and the 95 % interval of a bootstrap over cases."""
    found = np.asarray(values, np.float64)
    rng = np.random.default_rng(7)
    means = found[rng.integers(0, len(found), (draws, len(found)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(found.mean()), float(low), float(high)


def percent(logarithm: float) -> float:
    """Change of joules in per cent for a saving (logarithm)."""
    return 100.0 * math.expm1(-logarithm)
