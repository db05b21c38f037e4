"""Rules of the rehearsal compared on the same simulations (``python -m research.bench_rehearsal_rules --workers 16``).

Training streams (seeds from 21,000 on, used for nothing else): any application, half on presets, half on clusters drawn
at random, with the settings and the weights of the fold that holds the application out. After 1, 2, 4 and 8 arrivals
every setting is simulated on every rehearsed stream, and on the stream itself from beginning to end. Then each rule
chooses at each point, and what its choices cost on the stream itself is printed: joules against the portfolio's
setting, how often bound and deadlines are kept, deadlines newly missed, and the portfolio's score (a hundredth of the
streams kept is worth a per cent of joules) beside the first rule's, with its standard error over the streams. A stream
takes about 12 s of a core. Simulated joules.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from research import evaluate, tuning
from wattflow.learn import scenarios, streams
from wattflow.learn.scenarios import Scenario
from wattflow.model.workload import Workload
from wattflow.plan import measured, rehearsal
from wattflow.plan.measured import BASELINE, BOUND, PUNCTUAL, Result
from wattflow.policy import arrivals
from wattflow.sim import SimOptions
from wattflow.sim.repeated import Repeated

Floats = NDArray[np.float64]
FIRST, POINTS, STREAMS, TASKS = 20_000, (1, 2, 4, 8), 6, 600
ENERGY, MEAN, P95, MAKESPAN, MISSED = range(5)


@dataclass(frozen=True, slots=True)
class Collected:
    """One stream: rows of `numbers` under the baseline, under the portfolio, under every setting from beginning to end,
    and for each point (streams, 1 + settings), the baseline first. The portfolio's own setting is ``usual``, those of
    the network begin at ``network``, the safe ones are ``safe``."""

    fold: int
    baseline: Floats
    portfolio: Floats
    fixed: Floats
    points: dict[int, Floats]
    usual: int
    network: int
    safe: frozenset[int]


def numbers(ours: Result, punctual: Result) -> list[float]:
    """What is kept of a run."""
    return [ours.energy_j, ours.mean_s, ours.p95_s, ours.makespan_s, float(len(ours.missed - punctual.missed))]


def scenario_of(number: int, tasks: int) -> tuple[Scenario, int]:
    """The training stream of a number, and its seed."""
    rng = np.random.default_rng([number, 78])
    application, load = str(rng.choice(np.array(streams.APPLICATIONS))), float(rng.choice(streams.LOADS))
    seed = tuning.FIRST_SEED + number
    preset = rng.random() < 0.5
    name = str(rng.choice(np.array(tuning.PRESETS))) if preset else f"{tuning.RANDOM}{seed}"
    stream = scenarios.stream_of(application, load, tasks)
    return Scenario(name, tuning.cluster_of(name), stream, tuning.RUNTIME_ERROR, tuning.POWER_ERROR), seed


def collect(job: tuple[int, int, float]) -> Collected | None:
    """Everything that rules are compared by, on one stream; None after the end."""
    number, tasks, end = job
    if time.time() > end:
        return None
    scenario, seed = scenario_of(number, tasks)
    application, load, cluster = scenario.stream.application, scenario.stream.load, scenario.cluster
    fold = next(i for i, names in enumerate(streams.FOLDS) if application in names)
    name = f"fold-{fold}"
    base = replace(evaluate.our_rehearsal(fold, load), tailor=None, tailor_next=None)
    usual = rehearsal.reference(load, name)
    plain = rehearsal.distinct([*rehearsal.settings(name), usual], base.params)
    tries = [*plain, *rehearsal.leaning(usual, name)]
    own = next(i for i, one in enumerate(plain) if {**base.params, **one} == {**base.params, **usual})

    def judged(workload: Workload, seed: int, options: SimOptions) -> Floats:
        trial = Repeated(workload, cluster, base, seed=seed, options=options)
        usual_, punctual = (
            measured.measure(trial.workload, cluster, policy, seed, options) for policy in (BASELINE, PUNCTUAL)
        )
        each = [measured.result_of(trial.again(base.with_params(**dials))) for dials in tries]
        return np.array([numbers(one, punctual) for one in (usual_, *each)])

    workload = scenario.draw(seed)
    fixed = judged(workload, seed, scenario.options)
    punctual, theirs = (
        measured.measure(workload, cluster, policy, seed, scenario.options)
        for policy in (PUNCTUAL, evaluate.opponent(load, fold))
    )
    noise = np.random.default_rng([seed, 11]).normal(0.0, scenario.runtime_error, len(workload))  # as simulated
    known = workload.with_estimates(workload.estimate_s * np.exp(noise))
    arrived = [one for _, one in arrivals.workflows(known)]
    points = {}
    for point in POINTS:
        some = rehearsal.recent(arrived[:point])
        if point > len(arrived) or sum(map(len, some)) < rehearsal.LEAST:
            continue
        parts = [rehearsal.small(rehearsal.filled(one, 1.0)) for one in some]
        points[point] = np.array(
            [
                judged(rehearsal.stream_of(parts, cluster, load, s), s, SimOptions(runtime_error=rehearsal.SPREAD))
                for s in range(STREAMS)
            ]
        )
    safe = frozenset(range(len(rehearsal.settings(name)) - 4, len(rehearsal.settings(name)))) - {own}
    return Collected(fold, fixed[0], np.array(numbers(theirs, punctual)), fixed[1:], points, own, len(plain), safe)


@dataclass(frozen=True, slots=True)
class Rule:
    """How to choose: standard deviations added to the mean, what fines are multiplied by, how many standard errors
    better than the portfolio's setting, and how many joules above it (logarithm); which settings."""

    name: str
    risk: float = rehearsal.RISK
    price: float = 1.0
    errors: float | None = None
    most: float = math.inf
    network: bool = True
    safe: bool = True
    patience: float = rehearsal.PATIENCE


RULES = (
    Rule("in use"),
    Rule("the flagship's settings alone", network=False),
    Rule("the flagship's alone, by their mean", network=False, risk=0.0),
    Rule("by their mean", risk=0.0),
    Rule("without the safe settings", safe=False),
    Rule("mean + 0.25 standard deviations", risk=0.25),
    Rule("fines x 1.25", price=1.25),
    Rule("portfolio's unless better by 1 error", errors=1.0),
    Rule("at most 10 % more joules than its", most=0.1),
    *(Rule(f"fined from {start:g} on", patience=start) for start in (0.92, 0.94, 0.98, 1.0)),
)


def costs(table: Floats, rule: Rule) -> tuple[Floats, Floats]:
    """Streams × settings: what each costs, and the logarithm of its joules."""
    ratio = table[:, 1:] / np.maximum(1e-9, table[:, :1])
    over = np.maximum(
        np.maximum(ratio[..., MEAN], ratio[..., P95]) - rule.patience, ratio[..., MAKESPAN] - rehearsal.ON_TIME
    )
    fines = np.vectorize(rehearsal.fine)(over)
    energy = np.log(ratio[..., ENERGY])
    return energy + rule.price * np.maximum(table[:, 1:, MISSED] > 0, fines), energy


def choice(one: Collected, table: Floats, rule: Rule) -> int:
    """The setting that a rule takes."""
    cost, energy = costs(table, rule)
    total = cost.mean(0) + rule.risk * cost.std(0)
    total[energy.mean(0) > energy.mean(0)[one.usual] + rule.most] = math.inf
    if not rule.network:
        total[one.network :] = math.inf
    if not rule.safe:
        total[list(one.safe)] = math.inf
    best = int(np.argmin(total))
    more = cost[:, best] - cost[:, one.usual]
    if rule.errors is not None and more.mean() + rule.errors * more.std(ddof=1) / math.sqrt(len(more)) >= 0.0:
        return one.usual
    return best


def outcomes(one: Collected, chosen: Sequence[Floats]) -> list[tuple[float, bool, float]]:
    """Joules against the portfolio's (logarithm), whether all is kept, and deadlines missed, of each choice."""
    found = []
    for ours in chosen:
        kept = bool((ours[MEAN:MISSED] <= BOUND * one.baseline[MEAN:MISSED]).all()) and ours[MISSED] == 0
        found.append((math.log(ours[ENERGY] / one.portfolio[ENERGY]), kept, float(ours[MISSED])))
    return found


def report(found: Sequence[Collected]) -> None:
    """A line for the portfolio and one for each rule."""
    print(f"{len(found)} streams\n{'rule':40s} {'joules':>8s} {'kept':>7s} {'missed':>7s}  score")
    first: list[float] = []

    def line(name: str, each: list[list[tuple[float, bool, float]]]) -> None:
        energy, kept, missed = np.array([row for rows in each for row in rows]).T
        scores = [100.0 * float(np.mean([e - k for e, k, _ in rows])) for rows in each]
        first[:] = first or scores
        more = np.subtract(scores, first)
        score = f"{more.mean():+.2f} ± {more.std() / math.sqrt(len(more)):.2f}"
        joules = 100.0 * math.expm1(energy.mean())
        print(f"{name:40s} {joules:+7.2f}% {100 * kept.mean():6.1f}% {missed.sum():7.0f}  {score}")

    for rule in RULES:
        chosen = [[one.fixed[choice(one, table, rule)] for table in one.points.values()] for one in found]
        line(rule.name, [outcomes(one, some) for one, some in zip(found, chosen, strict=True)])
    line("the portfolio's setting", [outcomes(one, [one.portfolio] * len(one.points)) for one in found])


def main(arguments: Sequence[str] | None = None) -> None:
    """Collect for so long, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="no stream is begun later")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=TASKS)
    given = parser.parse_args(arguments)
    collect((FIRST - 1, 30, math.inf))  # compiles once for all processes
    end = time.time() + 60.0 * given.minutes
    jobs = [(number, given.tasks, end) for number in range(FIRST, FIRST + given.streams)]
    with ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        ready = (one.result() for one in as_completed([pool.submit(collect, job) for job in jobs]))
        found = [one for one in ready if one is not None and one.points]
    report(found)


if __name__ == "__main__":
    main()
