"""Over several workloads, and over several clusters: one row for each policy or cluster, and what a bound costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.study import Cost, Slo, costs
from wattflow.lab.show.answer import FLAGSHIP, ROWS, change, leader, less_by
from wattflow.lab.show.result_tables import amount, new_table, show
from wattflow.model.units import human_time

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {
    "energy": "energy_j",
    "response": "workflow_response_mean_s",
    "p95": "workflow_response_p95_s",
    "makespan": "makespan_s",
}


def workloads_table(comparison: Comparison, rows: int | None = ROWS) -> Table:
    """Compare policies over all workloads: geometric means of after / before, with intervals."""
    found = {policy: change(comparison, policy, "energy_j") for policy in comparison.policies}
    ranked = sorted(
        (policy for policy in comparison.policies if policy != comparison.baseline),
        key=lambda policy: (each.ratio if (each := found[policy]) else float("inf"), policy),
    )
    # The flagship stays in, wherever it ranks.
    kept = ranked if rows is None else [p for i, p in enumerate(ranked) if i < rows - 1 or p == FLAGSHIP]
    title = f"over {len(comparison.workloads)} workloads, less than {comparison.baseline} by"
    table = _table(title, ("policy", *_COLUMNS))
    for policy in kept:
        changes = [change(comparison, policy, metric) for metric in _COLUMNS.values()]
        table.add_row(policy[:18], *(less_by(1.0 - c.ratio, c.half) if c else "–" for c in changes))
    over = "workloads" if over_workloads(comparison) else "seeds"
    table.caption, table.caption_justify = f"geometric means; ± is a 95 % interval over {over}", "left"
    return table


def over_workloads(comparison: Comparison) -> bool:
    """Tell whether nothing differs between seeds, so that only workloads can give an interval."""
    metrics = ("makespan_s", "energy_j")
    return len(comparison.seeds) == 1 or all(each.deterministic for each in comparison.summaries(metrics))


def clusters_table(comparisons: Sequence[Comparison]) -> Table:
    """Return each cluster under the baseline and under the best: sums over workloads, responses as means."""
    table = _table("clusters", ("cluster", "policy", "energy", "response", "makespan", "cost", "CO₂"))
    for comparison in comparisons:
        # Once where the best is the baseline itself.
        for policy in dict.fromkeys((comparison.baseline, leader(comparison) or comparison.baseline)):
            energy, span, cost, carbon = (
                _total(comparison, policy, metric)
                for metric in ("energy_j", "makespan_s", "electricity_cost", "carbon_g")
            )
            response = _total(comparison, policy, "workflow_response_mean_s")
            table.add_row(
                comparison.cluster.name[:18],
                policy[:18],
                "–" if energy is None else amount(energy / 3600.0, "Wh"),
                "–" if response is None else human_time(response / len(comparison.workloads)),
                "–" if span is None else human_time(span),
                show("electricity_cost", cost),
                "–" if carbon is None else amount(carbon, "g"),
            )
    return table


def slo_lines(comparison: Comparison, slo: Slo) -> list[str]:
    """Describe the cost of the bound in energy, a line for each workload."""
    bound = f"{slo.name} ≤ {show(slo.metric, slo.most)}"
    found = costs(comparison, slo)
    if not found:
        return [f"{bound}: energy or {slo.name} is unknown, so its cost is too"]
    return [f"{bound}, {each.workload}: {_words(comparison, slo, each)}" for each in found]


def _words(comparison: Comparison, slo: Slo, cost: Cost) -> str:
    def joules(policy: str) -> str:
        energy = comparison.summary(cost.workload, policy, "energy_j").mean
        return "–" if energy is None else amount(energy / 3600.0, "Wh")

    def value(policy: str) -> str:
        return show(slo.metric, comparison.summary(cost.workload, policy, slo.metric).mean)

    if not cost.keeps:
        return f"no policy keeps it; the nearest is {cost.nearest} with {value(cost.nearest)}"
    best = cost.keeps[0]
    kept = f"kept by {len(cost.keeps)} of {len(comparison.policies)}, with the least energy by {best} ({joules(best)})"
    if best == cost.free:
        return f"{kept}; it costs nothing"
    extra = "an unknown part" if cost.extra is None else f"{100 * cost.extra:.1f} % more energy"
    return f"{kept}; it costs {extra} than {cost.free} ({joules(cost.free)}, {value(cost.free)})"


def _total(comparison: Comparison, policy: str, metric: str) -> float | None:
    values = [comparison.summary(workload, policy, metric).mean for workload in comparison.workloads]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _table(title: str, columns: Sequence[str]) -> Table:
    table = new_table(title, narrow=True)
    for place, column in enumerate(columns):
        text = place == 0 or column == "policy"
        table.add_column(column, justify="left" if text else "right", no_wrap=True, max_width=18 if text else None)
    return table
