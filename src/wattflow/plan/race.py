"""A race of candidates on streams like what has arrived: which of them saves joules, and makes nobody wait.

Streams are drawn again and again from the workflows that arrived and from the gaps between them, so the load is
measured, with the runtimes that were measured and the estimates that were given. Candidates are numbers of one policy
(`policy.portfolio`), each simulated on the same streams as the reference. Racing is by successive halving (`ROUNDS`):
all on two streams, the best ten on two more, the best five on four more. What is left has a paired interval for each of
its ratios to the reference, corrected for the number of candidates (Bonferroni): only the upper ends count, so the
reference stays where an interval overlaps 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining, measured
from wattflow.policy.base import Policy
from wattflow.policy.portfolio import REFERENCE, SOONEST, SPREAD, THRIFT
from wattflow.sim.repeated import Repeated

Dials = Mapping[str, float]
Floats = NDArray[np.float64]
ROUNDS = ((2, 10), (2, 5), (4, 5))
"""Streams of each round, and how many candidates are left after it."""
TASKS, FEWEST, MOST = 1000, 12, 40
"""Size of a stream: about so many tasks, in so many workflows."""
DOUBT = 0.05
"""Chance that the interval of any candidate is too narrow."""
PRICE = 12.5
"""Cost of waiting in a round, in logarithms of joules: 8 % longer is worse than any saving."""


def candidates() -> dict[str, Dials]:
    """Every candidate by name: plain rules × time-outs, pools × their reserves, the flagship's dials, the network."""
    found: dict[str, Dials] = {}
    for after_s in (30.0, 120.0, 600.0):
        found[f"spread, sleep {after_s:g} s"] = {"rule": SPREAD, "after_s": after_s}
        found[f"soonest, sleep {after_s:g} s"] = {"rule": SOONEST, "after_s": after_s}
        for tolerance in (0.1, 0.3, 1.0):
            dials = {"rule": THRIFT, "tolerance": tolerance, "after_s": after_s}
            found[f"thrift {tolerance:g}, sleep {after_s:g} s"] = dials
    for name, rule in (("soonest", SOONEST), ("thrift", THRIFT), ("spread", SPREAD)):
        for reserve, decay_s in ((0.3, 300.0), (0.3, 1800.0), (1.0, 300.0)):
            dials = {"rule": rule, "reserve": reserve, "decay_s": decay_s}
            found[f"{name}, pool {reserve:g} over {decay_s:g} s"] = dials
    for margin in (0.05, 0.3):
        for crowd in (0.25, 4.0):
            for idle in (2.0, 10.0):
                dials = {"margin": margin, "crowd": crowd, "idle": idle}
                found[f"flagship {margin:g}/{crowd:g}/{idle:g}"] = dials
    found["learned"] = {"lean": 1.0}
    return found


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that ran the whole race.

    Attributes:
        energy: Mean of log(joules / the reference's).
        energy_high, mean_high, p95_high: Upper ends of the intervals of that, and of the ratios of mean and p95
            response.
        missed: Deadlines missed that the reference met, in all streams.
    """

    name: str
    dials: Dials
    energy: float
    energy_high: float
    mean_high: float
    p95_high: float
    missed: int


def race(
    flows: Sequence[Workload], cluster: Cluster, base: Policy, tries: Mapping[str, Dials], seed: int = 0
) -> list[Tried]:
    """Race candidates on streams like these workflows; the survivors, the fewest joules first."""
    rows: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in tries}
    left = list(tries)
    number = 0
    for streams, stay in ROUNDS:
        for _ in range(streams):
            trial = Repeated(stream_of(flows, seed + number), cluster, base, seed=seed + number)
            usual = _outcome(trial, base, REFERENCE)
            for name in left:
                rows[name].append(beside(_outcome(trial, base, tries[name]), usual, idle_w(cluster)))
            number += 1
        left = sorted(left, key=lambda name: (_price(rows[name]), name))[:stay]
    sure = NormalDist().inv_cdf(1.0 - DOUBT / max(1, len(tries)))
    return sorted((_summed(name, tries[name], np.array(rows[name]), sure) for name in left), key=lambda t: t.energy)


def _outcome(trial: Repeated, base: Policy, dials: Dials) -> measured.Result:
    return measured.result_of(trial.again(base.with_params(**dials)))


def beside(ours: measured.Result, usual: measured.Result, idle: float) -> tuple[float, float, float, float]:
    """Logarithm of joules, ratios of mean and p95, newly missed deadlines; whoever ends first idles until the other."""
    span_s = max(ours.makespan_s, usual.makespan_s)
    own_j, usual_j = (one.energy_j + idle * (span_s - one.makespan_s) for one in (ours, usual))
    ratio = measured.ratios(ours, usual)
    missed = len(ours.missed - usual.missed)
    return math.log(max(1e-9, own_j) / max(1e-9, usual_j)), ratio["mean_s"], ratio["p95_s"], float(missed)


def _price(rows: Sequence[tuple[float, float, float, float]]) -> float:
    """One number by which a round is decided: joules, and what waiting costs."""
    energy, mean, p95, missed = np.mean(rows, axis=0).tolist()
    return float(energy + PRICE * max(0.0, mean - 1.0, p95 - 1.01) + missed)


def _summed(name: str, dials: Dials, rows: Floats, sure: float) -> Tried:
    middle, error = rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    high = (middle + sure * error).tolist()
    return Tried(name, dials, float(middle[0]), high[0], high[1], high[2], int(rows[:, 3].sum()))


def stream_of(flows: Sequence[Workload], seed: int) -> Workload:
    """Workflows and gaps drawn again from those that arrived; gaps are exponential where few are known."""
    rng = np.random.default_rng([seed, 0x4EB])
    count = int(np.clip(TASKS / np.mean([len(flow) for flow in flows]), FEWEST, MOST))
    chosen = [flows[i] for i in rng.integers(len(flows), size=count).tolist()]
    gaps = np.maximum(0.0, np.diff([float(flow.workflow_submit_s[0]) for flow in flows]))
    mean_s = max(1e-3, float(gaps.mean())) if len(gaps) else 1.0
    drawn = rng.choice(gaps, count) if len(gaps) >= FEWEST else rng.exponential(mean_s, count)
    return joining.together(chosen, np.concatenate([[0.0], np.cumsum(drawn)[:-1]]))


def idle_w(cluster: Cluster) -> float:
    """Idle watts of all nodes whose watts are known."""
    return sum(node.power.idle_w for node in cluster.nodes if node.power is not None)


__all__ = ["Tried", "candidates", "race", "stream_of"]
