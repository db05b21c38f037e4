"""How far from the best possible: every policy's joules beside a lower and an upper bound at its own makespan.

The lower bound is the linear relaxation (`plan.relaxation`), the upper one the best schedule that annealing found and
the simulator ran (`plan.annealing`), or a policy's own where that takes less; for small workloads the exact optimum of
the model lies between (`plan.exact`). Both know the whole workload and true runtimes; a policy that does not cannot be
expected to reach them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from wattflow.lab.show.result_tables import Row, new_table
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import annealing, exact, relaxation

if TYPE_CHECKING:
    from rich.table import Table

Progress = Callable[[float, str], None]
TASK_EVALUATIONS = 9_000_000
"""Tasks × evaluations of one walk: 150,000 on 60 tasks; larger workloads get fewer."""
LEAST_EVALUATIONS = 1_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on energy within a makespan.

    Attributes:
        lower_j: No schedule takes less.
        upper_j: This one was found and simulated, by annealing or by a policy beside it; inf where none ends in time.
        exact_j: The optimum of the model, where it was asked for and proven.
        evaluations_per_s: Speed of the walk.
        solved: False where the solver ran out of time and a weaker lower bound stands in.
    """

    makespan_s: float
    lower_j: float
    upper_j: float
    exact_j: float | None
    evaluations: int
    evaluations_per_s: float
    solved: bool


@dataclass(frozen=True, slots=True)
class Headroom:
    """One policy on one workload beside its bounds."""

    workload: str
    policy: str
    energy_j: float
    bounds: Bounds

    @property
    def above_lower(self) -> float:
        """Joules over the lower bound, less 1."""
        return _over(self.energy_j, self.bounds.lower_j)

    @property
    def above_upper(self) -> float:
        """Joules over the best found, less 1."""
        return _over(self.energy_j, self.bounds.upper_j)


def _over(joules: float, least: float) -> float:
    return joules / least - 1.0 if 0 < least < math.inf else math.nan


@dataclass(frozen=True, slots=True)
class Search:
    """How hard to look: seed and schedules of a walk (None: by size), and whether to solve small ones exactly."""

    seed: int = 0
    evaluations: int | None = None
    exactly: bool = False


def bounds_at(workload: Workload, cluster: Cluster, makespan_s: float, search: Search | None = None) -> Bounds:
    """Return both bounds on the joules of schedules that end within a makespan."""
    search = search or Search()
    count = search.evaluations or evaluations_for(len(workload))
    low = relaxation.least_energy(workload, cluster, makespan_s)
    high = annealing.anneal(workload, cluster, makespan_s, evaluations=count, seed=search.seed)
    middle = None
    if search.exactly and len(workload) <= exact.MOST_TASKS:
        found = exact.least_energy(workload, cluster, makespan_s, hint=high.schedule)
        middle = found.energy_j if found.proven else None
    return Bounds(makespan_s, low.energy_j, high.energy_j, middle, high.evaluations, high.per_s, low.solved)


def evaluations_for(tasks: int) -> int:
    """As many as take about as long as the usual number on 60 tasks."""
    return max(LEAST_EVALUATIONS, min(annealing.EVALUATIONS, TASK_EVALUATIONS // max(1, tasks)))


def headroom(
    workload: Workload,
    cluster: Cluster,
    figures: Sequence[tuple[str, float, float]],
    search: Search | None = None,
    progress: Progress | None = None,
) -> Iterator[Headroom]:
    """Policies given as (name, joules, makespan) beside the bounds at their makespans."""
    known: dict[float, Bounds] = {}
    for number, (policy, energy_j, makespan_s) in enumerate(figures):
        if progress is not None:
            progress(number / len(figures), f"bounds at the makespan of {policy}")
        if makespan_s not in known:
            found = bounds_at(workload, cluster, makespan_s, search)
            # A policy that ends in time is a schedule, too: the best found is never above it.
            in_time = (joules for _, joules, took_s in figures if joules > 0 and took_s <= makespan_s)
            known[makespan_s] = replace(found, upper_j=min([found.upper_j, *in_time]))
        yield Headroom(workload.name, policy, energy_j, known[makespan_s])


def table(title: str, rows: Sequence[Headroom]) -> Table:
    """Policies, the nearest to the lower bound first."""
    made = new_table(title)
    made.add_column("policy", no_wrap=True)
    for head in ("makespan", "energy", "lower bound", "above it", "best found", "above it"):
        made.add_column(head, justify="right", no_wrap=True)
    # Names break ties, so that the table is the same each time.
    for row in sorted(rows, key=lambda row: (row.above_lower, row.policy)):
        made.add_row(
            row.policy,
            f"{row.bounds.makespan_s:,.1f} s",
            kilojoules(row.energy_j),
            kilojoules(row.bounds.lower_j),
            percent(row.above_lower),
            kilojoules(row.bounds.upper_j),
            percent(row.above_upper),
        )
    return made


def kilojoules(joules: float) -> str:
    """``12.3 kJ``; a dash for none."""
    return f"{joules / 1000:,.1f} kJ" if math.isfinite(joules) else "–"


def percent(share: float) -> str:
    """``+12.3 %``; a dash for none."""
    return f"{100 * share:+.1f} %".replace("-", "−") if math.isfinite(share) else "–"


def as_rows(rows: Sequence[Headroom]) -> list[Row]:
    """For programs; None where there is no such figure."""
    found: list[Row] = []
    for row in rows:
        figures = {"energy_j": row.energy_j, "above_lower": row.above_lower, "above_upper": row.above_upper}
        every = {**figures, **asdict(row.bounds)}
        # JSON knows neither inf nor NaN.
        known = {key: None if value is None or not math.isfinite(value) else value for key, value in every.items()}
        found.append({"workload": row.workload, "policy": row.policy, **known})
    return found


EXPLANATION = (
    "lower bound: linear relaxation, no schedule of that makespan takes less; best found: annealing, "
    "simulated, or a policy of this table that ends in time. Bounds know the whole workload before it starts."
)
