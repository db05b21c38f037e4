"""The literature's rivals in the tables of kind ``learned``: joules and waiting of each beside ours, same scenarios."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from research import evaluate, paired, portfolio
from research.evaluate import OURS, PORTFOLIO, SHIELDED, Place, Plan, Row
from research.paired import Paired, Sample
from research.papers.findings import Figure, Sheet
from wattflow.model.errors import MissingExtra

Table = Mapping[tuple[Place, str], Row]
RULE = "distilled"
NAMES = ("actor-critic-selector", "rlscheduler-kernel", "dqn-placement", RULE)
"""Those that may be judged beside the learned policy."""
_log = logging.getLogger(__name__)


def present(table: Table, there: Sequence[Place]) -> list[str]:
    """Those that were judged in every scenario."""
    return [name for name in NAMES if all((place, name) in table for place in there)]


def compare(table: Table, there: Sequence[Place], other: str, ours: str = OURS) -> Paired:
    """Paired log-ratios of joules, by application, cluster and seed."""
    samples = []
    for place in there:
        pairs = zip(table[place, ours].results, table[place, other].results, strict=True)
        logs = tuple(math.log(a.energy_j / b.energy_j) for a, b in pairs)
        samples.append(Sample(place.application, place.cluster, logs))
    return paired.compare(samples)


def keeps(table: Table, place: Place, name: str) -> bool:
    """Whether a policy keeps the bound on waiting in a scenario, and misses no deadline that `eft:sleep=120` meets."""
    within = evaluate.slower(table[place, name], table[place, portfolio.BASELINE]) <= portfolio.BOUND
    return within and not evaluate.newly_missed(table[place, name], table[place, portfolio.PUNCTUAL])


def available() -> bool:
    """Whether they can be judged: not without the environment's extra."""
    try:
        import research.rivals.judging  # noqa: F401
    except MissingExtra as error:
        _log.warning("rivals are not judged: %s", error)
        return False
    return True


def judged(place: Place, plan: Plan) -> list[Row]:
    """All that learn, in one scenario."""
    from research.rivals import judging

    return judging.judge(place, plan)


def sheet(table: Table, there: Sequence[Place], names: Sequence[str]) -> Sheet:
    """Each of them, the portfolio and ours against the portfolio, and how long people wait."""
    rows = []
    ours_too = [name for name in (PORTFOLIO, OURS, SHIELDED) if (there[0], name) in table]
    for name in (*names, *ours_too):
        joules = "–" if name == PORTFOLIO else compare(table, there, PORTFOLIO, name).text
        ours = "–" if name == OURS else compare(table, there, name).text
        slower = [evaluate.slower(table[place, name], table[place, portfolio.BASELINE]) for place in there]
        kept = sum(keeps(table, place, name) for place in there)
        missed = sum(evaluate.newly_missed(table[p, name], table[p, portfolio.PUNCTUAL]) for p in there)
        rows.append((name, joules, ours, f"{kept} of {len(there)}", f"{np.median(slower):.3f}", str(missed)))
    columns = (
        "policy", "joules against the portfolio, % (95 %)", "ours against it, % (95 %)", "bound and deadlines kept",
        "median of the worst ratio", "deadlines newly missed",
    )  # fmt: skip
    return Sheet("Beside others that learn", columns, tuple(rows))


def figures(table: Table, there: Sequence[Place], names: Sequence[str]) -> tuple[Figure, ...]:
    """Ours against each, each against the portfolio, and in how many more scenarios we keep the bound.

    The distilled rule is ours too: it has no goal.
    """
    made: list[Figure] = []
    for name in names:
        label, rule = name.replace("-", "_"), name == RULE
        ours, theirs = compare(table, there, name), compare(table, there, PORTFOLIO, name)
        more = sum(keeps(table, p, OURS) - keeps(table, p, name) for p in there)
        made += [
            Figure(f"learned_against_{label}", ours.percent, "%", "none" if rule else "<0", rule or ours.percent < 0.0),
            Figure(f"{label}_against_portfolio", theirs.percent, "%", "none", True),
            Figure(
                f"learned_within_bound_beyond_{label}", more, f"of_{len(there)}", "none" if rule else "≥0",
                rule or more >= 0,
            ),
        ]  # fmt: skip
    return tuple(made)
