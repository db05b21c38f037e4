"""The rehearsal with the distilled rule of twelve numbers in place of the network, on held-out applications.

    python -m research.bench_rehearsed_rule [--cpu-s 600] [--seed 7]

Scenarios of `python -m research learned` in random order until the processor time is over (some 25 s each); every one
with weights and rule that have not seen its application. Where the rule holds, the network may go.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from dataclasses import replace
from functools import partial

import numpy as np

from research import evaluate, portfolio, shipped
from research.evaluate import PORTFOLIO, REHEARSED, Place, Plan, Row
from wattflow.policy import learned, weights
from wattflow.policy.base import Policy

RULE = "rehearsed-rule"
CLUSTERS = ("mixed", "edge-cloud", "ichnos", "random-0", "random-1", "random-2")


def with_rule(fold: int, load: float) -> Policy:
    """The rehearsal of a fold that tries its rule where it would try its network."""
    theta = weights.load(shipped.rule_of(fold))[0]
    return replace(evaluate.our_rehearsal(fold, load), prepare=partial(learned.prepare, theta=theta))


def judged(place: Place, plan: Plan) -> dict[str, Row]:
    """Every policy in one scenario."""
    scenario = evaluate.scenario_of(place, plan)
    drawn = [scenario.draw(seed) for seed in range(plan.seeds)]
    asked: dict[str, str | Policy] = {
        portfolio.BASELINE: portfolio.BASELINE,
        portfolio.PUNCTUAL: portfolio.PUNCTUAL,
        PORTFOLIO: evaluate.opponent(place.load, place.fold),
        REHEARSED: evaluate.our_rehearsal(place.fold, place.load),
        RULE: with_rule(place.fold, place.load),
    }
    return {name: evaluate.row_of(place, scenario, drawn, name, policy) for name, policy in asked.items()}


def compared(found: list[dict[str, Row]], one: str, other: str) -> tuple[float, float]:
    """Mean log-ratio of joules, and its standard error."""
    ratios = [
        math.log(portfolio.mean(rows[one].results).energy_j / portfolio.mean(rows[other].results).energy_j)
        for rows in found
    ]
    error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
    return float(np.mean(ratios)), error


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-s", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    places = evaluate.places(evaluate.held_out(), CLUSTERS, (0.3, 0.6, 0.8))
    random.Random(given.seed).shuffle(places)
    found: list[dict[str, Row]] = []
    while len(found) < 2 or (time.process_time() < given.cpu_s and len(found) < len(places)):
        found.append(judged(places[len(found)], Plan()))
        ratio = compared(found[-1:], RULE, REHEARSED)[0]
        done = f"{places[len(found) - 1].name} after {time.process_time():.0f} s"
        print(f"{done}: rule against network {100 * math.expm1(ratio):+.2f} %", flush=True)  # a run may be cut short
    many = len(found)
    for name in (REHEARSED, RULE):
        mean, error = compared(found, name, PORTFOLIO)
        kept = sum(
            evaluate.slower(rows[name], rows[portfolio.BASELINE]) <= portfolio.BOUND
            and not evaluate.newly_missed(rows[name], rows[portfolio.PUNCTUAL])
            for rows in found
        )
        print(f"{name}: {100 * math.expm1(mean):+.1f} % of the portfolio's joules (± {100 * error:.1f})")
        print(f"figure {name}_kept {kept} of_{many} goal none ok")
    mean, error = compared(found, RULE, REHEARSED)
    value = 100 * math.expm1(mean)
    print(f"± {100 * error:.2f}")
    print(
        f"figure rehearsed_rule_against_network {value:.2f} %_of_{many} goal ≤0.5 {'ok' if value <= 0.5 else 'short'}"
    )


if __name__ == "__main__":
    main()
