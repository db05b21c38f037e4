"""Tables and figures of kind ``learned``: each of ours beside each opponent, and whether it makes anybody wait."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from research import evaluate, paired, portfolio
from research.evaluate import AUTOSCALED, FLAGSHIP, OURS, PORTFOLIO, SWEEP, Place
from research.paired import Paired
from research.papers.findings import Figure, Sheet
from research.rival_tables import Table, compare, keeps

GATES = {0.3: 35.0, 0.6: 20.0, 0.8: 12.0}
"""Per cent of joules below `kubernetes` with all nodes on, by load."""
AGAINST = {PORTFOLIO: 3.0, SWEEP: 5.0, FLAGSHIP: 0.0, AUTOSCALED: 0.0}
Compared = Mapping[str, Paired]
Family = Mapping[str, tuple[float, float]]
"""By "ours against theirs": both p-values, corrected for all such pairs."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One of ours against each opponent, where they can be compared.

    Attributes:
        all: In all scenarios.
        both: Where both keep bound and deadlines.
        unseen: On random clusters, on which nothing was chosen.
    """

    all: Compared
    both: Compared
    unseen: Compared


def beside(table: Table, there: Sequence[Place], mine: str, names: Sequence[str]) -> Beside:
    """One of ours against all."""
    kept = [place for place in there if keeps(table, place, mine)]
    unseen = [place for place in there if place.cluster.startswith("random-")]
    both = {name: [place for place in kept if keeps(table, place, name)] for name in names}
    return Beside(
        {name: compare(table, there, name, mine) for name in names},
        {name: compare(table, some, name, mine) for name, some in both.items() if some},
        {name: compare(table, unseen, name, mine) for name in names if unseen},
    )


def corrected(all_of_ours: Mapping[str, Beside]) -> Family:
    """Holm over one family: each of ours against each opponent."""
    each = {f"{mine} {name}": one for mine, some in all_of_ours.items() for name, one in some.all.items()}
    scenarios = paired.holm({pair: one.p for pair, one in each.items()})
    applications = paired.holm({pair: one.p_applications for pair, one in each.items()})
    return {pair: (scenarios[pair], applications[pair]) for pair in each}


def figures(mine: str, table: Table, there: Sequence[Place], found: Beside, family: Family) -> list[Figure]:
    """Every bar for one of ours, those that are missed included."""
    made: list[Figure] = []
    for load in sorted({place.load for place in there}):
        one = compare(table, [place for place in there if place.load == load], portfolio.BASELINE, mine)
        gate = min(GATES.items(), key=lambda item: abs(item[0] - load))[1]
        good = one.percent <= -gate and one.high < 0
        made.append(Figure(f"{mine}_below_kubernetes_load_{load:g}", one.percent, "%", f"≤-{gate:g}", good))
    for name, gate in AGAINST.items():
        if name not in found.all:
            continue
        parts = {"": found.all, "_both_within_bound": found.both, "_random_clusters": found.unseen}
        for word, where in parts.items():
            if name in where:
                one = where[name]
                good = one.percent <= -gate and one.high < 0
                label = f"{mine}_against_{name}{word}".replace("-", "_")
                made.append(Figure(label, one.percent, "%", f"≤-{gate:g}", good))
                made.append(Figure(f"{label}_high_end", one.high, "%", "<0", one.high < 0))
        p = family[f"{mine} {name}"][1]
        label = f"{mine}_against_{name}_p_over_applications".replace("-", "_")
        made.append(Figure(label, p, "Holm", "<0.05", p < 0.05))
    return made + waiting(mine, table, there)


def waiting(mine: str, table: Table, there: Sequence[Place]) -> list[Figure]:
    """Bound, deadlines and the worst scenario of one of ours."""
    count, made = len(there), []
    within = sum(keeps(table, place, mine) for place in there)
    theirs = sum(keeps(table, place, PORTFOLIO) for place in there)
    missed = sum(evaluate.newly_missed(table[p, mine], table[p, portfolio.PUNCTUAL]) for p in there)
    made.append(Figure(f"{mine}_scenarios_within_bound", within, f"of_{count}", str(count), within == count))
    made.append(Figure(f"{mine}_scenarios_within_bound_beyond_portfolio", within - theirs, "", "≥0", within >= theirs))
    made.append(Figure(f"{mine}_deadlines_newly_missed", missed, "workflows", "0", missed == 0))
    worst = max(worst_of(table, place, mine) for place in there)
    made.append(Figure(f"{mine}_worst_scenario_against_portfolio", worst, "%", "≤2", worst <= 2.0))
    able = [worst_of(table, place, mine) for place in there if keeps(table, place, PORTFOLIO)]
    if able:  # elsewhere the portfolio saves joules by letting people wait
        label = f"{mine}_worst_scenario_where_portfolio_keeps_bound"
        made.append(Figure(label, max(able), "%", "≤2", max(able) <= 2.0))
    return made


def seeds(table: Table, there: Sequence[Place]) -> list[Figure]:
    """How much training seeds differ: each against the portfolio, on all scenarios."""
    names = sorted({name for _, name in table if name.startswith(f"{OURS}-")})
    names = [name for name in names if all((place, name) in table for place in there)]
    each = [compare(table, there, PORTFOLIO, name) for name in names]
    made = [Figure("learned_training_seeds", len(names), "of_5", "5", len(names) >= 5)]
    if each:
        best, poorest = min(each, key=lambda one: one.percent), max(each, key=lambda one: one.percent)
        gate = AGAINST[PORTFOLIO]
        for word, one in (("best", best), ("poorest", poorest)):
            label = f"learned_against_portfolio_{word}_training_seed"
            made.append(Figure(label, one.percent, "%", f"≤-{gate:g}", one.percent <= -gate and one.high < 0))
    return made


def network_off(table: Table, there: Sequence[Place]) -> list[Figure]:
    """In how many scenarios the row `learned` is the portfolio's own, its dials having switched the network off."""
    same = sum(table[place, OURS].results == table[place, PORTFOLIO].results for place in there)
    return [Figure("learned_scenarios_that_are_the_portfolio", same, f"of_{len(there)}", "none", True)]


def worst_of(table: Table, place: Place, mine: str) -> float:
    """Joules above the portfolio's in one scenario, in per cent."""
    ours, theirs = (portfolio.mean(table[place, name].results).energy_j for name in (mine, PORTFOLIO))
    return 100.0 * (ours / theirs - 1.0)


def against(mine: str, found: Beside, family: Family) -> Sheet:
    """Ours beside each opponent."""
    rows = []
    for name, one in found.all.items():
        scenarios, applications = family[f"{mine} {name}"]
        others = (where[name].text if name in where else "–" for where in (found.both, found.unseen))
        rows.append(
            (
                name, f"{one.percent:+.1f} {paired.told(one.crossed)}", paired.told(one.nested), *others,
                f"{one.wins}/{one.ties}/{one.losses}", f"{applications:.2g}", f"{scenarios:.2g}",
            )
        )  # fmt: skip
    columns = (
        "opponent", "joules, % (95 %, applications × clusters)", "(95 %, application → scenario → seed)",
        "where both keep the bound", "random clusters only", "win/tie/loss", "p over applications (Holm)",
        "p over scenarios (Holm)",
    )  # fmt: skip
    return Sheet(f"{mine} against", columns, tuple(rows))


def by_cluster(mine: str, table: Table, there: Sequence[Place]) -> Sheet:
    """Against the portfolio, cluster by cluster and load by load."""
    loads = sorted({place.load for place in there})
    rows = []
    for cluster in dict.fromkeys(place.cluster for place in there):
        cells = []
        for load in loads:
            some = [p for p in there if p.cluster == cluster and p.load == load]
            logs = [math.log(1.0 + worst_of(table, place, mine) / 100.0) for place in some]
            cells.append(f"{paired.percent(float(np.mean(logs))):+.1f}")
        rows.append((cluster, *cells))
    return Sheet(
        f"Joules of {mine} against the portfolio, %", ("cluster", *(f"load {load:g}" for load in loads)), tuple(rows)
    )


def bounds_kept(table: Table, there: Sequence[Place], names: Sequence[str]) -> Sheet:
    """How many scenarios each policy keeps the bound in, and whom it makes late."""
    rows = []
    for name in names:
        slower = [evaluate.slower(table[p, name], table[p, portfolio.BASELINE]) for p in there]
        missed = sum(evaluate.newly_missed(table[p, name], table[p, portfolio.PUNCTUAL]) for p in there)
        within = sum(value <= portfolio.BOUND for value in slower)
        rows.append((name, f"{within} of {len(there)}", f"{np.median(slower):.3f}", f"{max(slower):.2f}", str(missed)))
    columns = ("policy", "scenarios within the bound", "median of the worst ratio", "largest", "deadlines newly missed")
    return Sheet("Waiting, beside kubernetes with all nodes on", columns, tuple(rows))
