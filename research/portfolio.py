"""The opponent: a portfolio of tuned heuristics, each setting written as it is typed (`wattflow.policy.spec`).

`wattflow` over its dial, with either queue, and over all its dials at once (settings spread evenly,
`dial_space`); orders by workflow × placement × sleep time-out; energy-HEFT and DEWTS over
slack × sleep. `measure` judges one setting on one stream, `tuned` reads the shipped table of such measurements and
gives the best settings for a load: fewest joules among those that keep the bound (mean and p95 response of workflows
and makespan at most 1.02 × `kubernetes` with all nodes on) and miss no deadline that `eft:sleep=120` meets.

Made by ``python -m research.tuning``; every setting is given the same streams, seeds and estimates.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from research import dial_space
from research.shipped import DATA
from wattflow.model.errors import InvalidInput
from wattflow.plan.measured import BASELINE, BOUND, PUNCTUAL, Result, mean, measure, slower, tail_of
from wattflow.policy import registry
from wattflow.policy.base import Policy

TABLE = DATA / "portfolio.csv.gz"
_SLEEPS = (0, 30, 60, 120, 300)


def settings() -> tuple[str, ...]:
    """Every setting of the portfolio."""
    dial = [
        f"{base}:wait={wait:g}:second={second:g}:idle={idle:g}"
        for base in ("wattflow", "wattflow:order=path")
        for wait, second, idle in product((0.0, 0.1, 0.3), (2.0, 5.0, 20.0), (1.0, 2.0, 4.0))
    ]
    dial += [f"wattflow:late={late:g}:merit={merit:g}" for late, merit in product((50, 200, 800), (1, 3, 6))]
    dial += [typed(dials) for dials in dial_space.spread()]
    dial += [typed(dials) for dials in dial_space.further()]
    dial += [f"wattflow:idle={idle:g}:margin={margin:g}" for idle, margin in product((2, 4), (0.0, 0.1, 0.2))]
    orders = [f"eft:order={order}:sleep={sleep}" for order, sleep in product(("work", "path"), _SLEEPS)]
    orders += [
        f"priced-energy:order={order}:second={second}:sleep={sleep}"
        for order, second, sleep in product(("work", "path"), (0, 20, 100), _SLEEPS)
    ]
    planned = [
        f"{planner}:deadline=0:slack={slack:g}:sleep={sleep}"
        for planner, slack, sleep in product(("eheft", "dewts"), (0.0, 0.1, 0.3, 1.0), (30, 120))
    ]
    plain = [f"{name}:sleep={sleep}" for name, sleep in product(("heft", "eft", "least-energy", "hpe"), (0, 30, 120))]
    return (*dial, *orders, *planned, *plain)


def typed(dials: Mapping[str, float]) -> str:
    """A setting of the flagship as it is typed."""
    return ":".join(["wattflow", *(f"{name}={value:.4g}" for name, value in dials.items())])


@dataclass(frozen=True, slots=True)
class Judged:
    """One setting on one scenario (application, cluster, load), means over the seeds.

    Attributes:
        energy: Joules over those of the baseline.
        slower: The largest of mean response, p95 response and makespan over the baseline's.
        missed: Deadlines missed that `eft:sleep=120` meets, over all seeds.
    """

    setting: str
    application: str
    cluster: str
    load: float
    energy: float
    slower: float
    missed: int

    @property
    def keeps(self) -> bool:
        """Whether the bound is kept and nobody is late."""
        return self.slower <= BOUND and self.missed == 0


@dataclass(frozen=True, slots=True)
class Tuned:
    """A setting as it did on the training set at one load.

    Attributes:
        energy: Geometric mean of joules over the baseline's.
        kept: Share of the scenarios in which the bound is kept.
        slower: The largest of the three ratios in any scenario.
    """

    setting: str
    energy: float
    kept: float
    slower: float

    def policy(self) -> Policy:
        """The policy itself."""
        return registry.load(self.setting)


def judged(setting: str, where: tuple[str, str, float], ours: Sequence[Result], *others: Sequence[Result]) -> Judged:
    """Ours beside the baseline's and the punctual policy's results on the same seeds."""
    baseline, punctual = others
    mine, base = mean(ours), mean(baseline)
    missed = sum(len(a.missed - b.missed) for a, b in zip(ours, punctual, strict=True))
    return Judged(setting, *where, mine.energy_j / base.energy_j, slower(mine, base), missed)


def tuned(load: float, held_out: Collection[str] = (), rows: Iterable[Judged] | None = None) -> tuple[Tuned, ...]:
    """All settings for a load, the best first, by what is known without the held-out applications.

    Settings that keep the bound in the most scenarios come first, of equally many the one with the fewest joules; a
    hundredth of the scenarios more is worth no more than a per cent of joules. The nearest load of the table counts.
    """
    known = [row for row in (shipped() if rows is None else rows) if row.application not in held_out]
    if not known:
        raise InvalidInput("held_out", "leaves no application to tune on")
    nearest = min({row.load for row in known}, key=lambda value: abs(value - load))
    by_setting: dict[str, list[Judged]] = {}
    for row in known:
        if row.load == nearest:
            by_setting.setdefault(row.setting, []).append(row)
    found = [_summary(setting, some) for setting, some in by_setting.items()]
    return tuple(sorted(found, key=lambda t: (math.log(t.energy) - t.kept, t.setting)))


def _summary(setting: str, rows: Sequence[Judged]) -> Tuned:
    energy = math.exp(float(np.mean([math.log(row.energy) for row in rows])))
    return Tuned(setting, energy, float(np.mean([row.keeps for row in rows])), max(row.slower for row in rows))


@cache
def _text() -> str:
    return gzip.decompress(TABLE.read_bytes()).decode()


def about() -> str:
    """How the shipped table was made."""
    return _text().splitlines()[0].removeprefix("# ")


@cache
def shipped() -> tuple[Judged, ...]:
    """The table that comes with the package."""
    lines = (line for line in _text().splitlines() if not line.startswith("#"))
    return tuple(
        Judged(
            row["setting"], row["application"], row["cluster"], float(row["load"]), float(row["energy"]),
            float(row["slower"]), int(row["missed"]),
        )
        for row in csv.DictReader(lines)
    )  # fmt: skip


__all__ = [
    "BASELINE", "BOUND", "PUNCTUAL", "Judged", "Result", "Tuned",
    "about", "judged", "mean", "measure", "settings", "shipped", "tail_of", "tuned",
]  # fmt: skip
