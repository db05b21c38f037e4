"""The literature's rivals in the tables of kind ``learned``: joules and waiting of each beside ours, same scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from wattflow.lab.experiments.outcome import Figure, Sheet
from wattflow.learn import evaluate, paired, portfolio
from wattflow.learn.evaluate import OURS, PORTFOLIO, Place, Row
from wattflow.learn.paired import Paired

Table = Mapping[tuple[Place, str], Row]


def present(table: Table, there: Sequence[Place], names: Sequence[str]) -> list[str]:
    """Those that were judged in every scenario."""
    return [name for name in names if all((place, name) in table for place in there)]


def against(table: Table, there: Sequence[Place], ours: str, theirs: str) -> Paired:
    """Paired log-ratios of joules, by application, scenario and seed."""
    logs: dict[str, list[list[float]]] = {}
    for place in there:
        pairs = zip(table[place, ours].results, table[place, theirs].results, strict=True)
        logs.setdefault(place.application, []).append([math.log(a.energy_j / b.energy_j) for a, b in pairs])
    return paired.compare(logs)


def within(table: Table, place: Place, name: str) -> bool:
    """Whether the bound on waiting is kept, and no deadline newly missed."""
    slower = evaluate.slower(table[place, name], table[place, portfolio.BASELINE])
    return slower <= portfolio.BOUND and not evaluate.newly_missed(table[place, name], table[place, portfolio.PUNCTUAL])


def sheet(table: Table, there: Sequence[Place], names: Sequence[str]) -> Sheet:
    """Each of them, the portfolio and ours against the portfolio, and how long people wait."""
    rows = []
    for name in (*names, PORTFOLIO, OURS):
        joules = "–" if name == PORTFOLIO else against(table, there, name, PORTFOLIO).text
        ours = "–" if name == OURS else against(table, there, OURS, name).text
        slower = [evaluate.slower(table[place, name], table[place, portfolio.BASELINE]) for place in there]
        kept = sum(within(table, place, name) for place in there)
        missed = sum(evaluate.newly_missed(table[p, name], table[p, portfolio.PUNCTUAL]) for p in there)
        rows.append((name, joules, ours, f"{kept} of {len(there)}", f"{np.median(slower):.3f}", str(missed)))
    columns = (
        "policy", "joules against the portfolio, % (95 %)", "ours against it, % (95 %)", "bound and deadlines kept",
        "median of the worst ratio", "deadlines newly missed",
    )  # fmt: skip
    return Sheet("Beside others that learn", columns, tuple(rows))


def figures(table: Table, there: Sequence[Place], names: Sequence[str]) -> tuple[Figure, ...]:
    """Ours against each; and in how many more scenarios we keep the bound."""
    made: list[Figure] = []
    for name in names:
        label = f"learned_against_{name}".replace("-", "_")
        one = against(table, there, OURS, name)
        made.append(Figure(label, one.percent, "%", "<0", one.percent < 0.0))
        more = sum(within(table, p, OURS) - within(table, p, name) for p in there)
        made.append(Figure(f"{label}_more_within_bound", more, f"of_{len(there)}", "≥0", more >= 0))
    return tuple(made)
