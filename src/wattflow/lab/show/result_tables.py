"""A comparison or a run as rows: for the terminal, JSON, CSV or parquet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wattflow.files.whole import whole_file, write_text
from wattflow.lab.compare.results import Beside, Results, Summary
from wattflow.lab.figures.metrics import AT_LEAST, HEADLINE, METRICS, Values
from wattflow.model.errors import InvalidInput, unknown_name
from wattflow.model.units import human_energy, human_time

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("table", "json", "csv", "parquet")
Row = dict[str, object]


def new_table(title: str, *, narrow: bool = False) -> Table:
    """Return an empty table as all of ours look; ``narrow`` ones leave less room between columns."""
    from rich import box
    from rich.table import Table

    padding = (0, 1, 0, 0) if narrow else (0, 1)
    return Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding
    )


def metric_names(text: str) -> tuple[str, ...]:
    """``headline``, ``all``, or names with commas between."""
    if text == "headline":
        return HEADLINE
    if text == "all":
        return tuple(METRICS)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in METRICS:
            raise unknown_name("figure", name, METRICS)
    if not names:
        raise InvalidInput("--metrics", "names no figure")
    return names


def comparison_rows(comparison: Results, metrics: Iterable[str] = tuple(METRICS)) -> list[Row]:
    """Make one row per workload, policy and figure. Reductions are in percent, positive where less."""
    return [
        {
            "cluster": comparison.cluster.name,
            "workload": each.workload,
            "policy": each.policy,
            "metric": each.metric,
            "unit": METRICS[each.metric].unit,
            "mean": each.mean,
            "half_width_95": each.half_width,
            "baseline": comparison.baseline,
            "reduction_pct": _percent(each.reduction),
            "reduction_half_width_95_pct": _percent(each.reduction_half_width),
            "seeds": each.seeds,
            "deterministic": each.deterministic,
        }
        for each in comparison.summaries(metrics)
    ]


def run_rows(values: Values, names: Iterable[str] = tuple(METRICS)) -> list[Row]:
    """Return one row per figure of a single run."""
    return [
        {"metric": name, "label": METRICS[name].label, "value": values[name], "unit": METRICS[name].unit}
        for name in names
    ]


def as_text(rows: Sequence[Row], form: str, about: Mapping[str, object] | None = None) -> str:
    """Return rows as JSON (an object with ``about`` and ``rows``) or CSV. Unknown is null, or an empty cell."""
    if form == "json":
        # NaN is no JSON; unknown is null.
        return json.dumps({**(about or {}), "rows": rows}, indent=1, default=str, allow_nan=False) + "\n"
    out = io.StringIO()
    if rows:
        # Not "\r\n": files are compared by their bytes.
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def write_rows(path: str | os.PathLike[str], rows: Sequence[Row], form: str, about: Mapping[str, object]) -> None:
    """Write the rows as json, csv or parquet; the file appears whole or not at all."""
    if form != "parquet":
        write_text(path, as_text(rows, form, about))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows))
    note = json.dumps(dict(about), default=str).encode()
    with whole_file(path) as draft, draft.open("wb") as file:
        pq.write_table(table.replace_schema_metadata({b"wattflow": note}), file)


def comparison_about(comparison: Results) -> dict[str, object]:
    """Describe the rows for a reader: version, cluster, baseline, seeds, notes."""
    from wattflow import __version__

    return {
        "wattflow": __version__,
        "cluster": comparison.cluster.name,
        "baseline": comparison.baseline,
        "seeds": list(comparison.seeds),
        "simulated": True,
        **comparison.about,
        "notes": list(comparison.notes),
    }


def comparison_tables(comparison: Results, metrics: Sequence[str] = HEADLINE) -> list[Table]:
    """Return one table per workload: figures down and policies across while they fit, else policies down."""
    few = len(comparison.policies) <= 4
    make = _figures_down if few else _policies_down
    return [make(comparison, workload, metrics) for workload in comparison.workloads]


def run_table(values: Values, title: str, names: Iterable[str] = tuple(METRICS)) -> Table:
    """Return the figures of one run; unknown ones are a dash."""
    table = new_table(title)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name in names:
        table.add_row(METRICS[name].label, show(name, values[name]))
    return table


def show(metric: str, value: float | None) -> str:
    """Return a figure for a reader, unit included."""
    if value is None:
        return "–"
    unit = METRICS[metric].unit
    if metric == "edp_js":
        return f"{value / 1e6:,.4g} MJ·s"
    if unit == "J":
        return amount(value / 3600.0, "Wh")
    if unit == "s":
        return human_time(value) if value >= 0.1 or value == 0 else f"{value:.2g} s"
    if metric.endswith("utilisation"):
        return f"{100 * value:.1f} %"
    number = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.3g}"
    return f"{number} {unit}".rstrip()


_STEPS = {"Wh": ("Wh", "kWh", "MWh", "GWh"), "g": ("g", "kg", "t", "kt"), "W": ("W", "kW", "MW", "GW")}


def amount(value: float, unit: str) -> str:
    """Return a number with the unit that fits its size."""
    steps = _STEPS[unit]
    place = 0
    while abs(value) >= 1000.0 and place < len(steps) - 1:
        value, place = value / 1000.0, place + 1
    return f"{value:.3g} {steps[place]}"


def show_change(each: Summary) -> str:
    """Show a reduction and its interval, as ``−4.2 ±0.3 %``; positive is less than the baseline, ``× 54`` far more."""
    if each.reduction is None:
        return "–"
    if each.reduction < -1.0:
        return f"× {1.0 - each.reduction:.3g}"
    text = f"{100 * each.reduction:+.1f}".replace("-", "−")
    # A change that is shown as 0 has no sign.
    if text[1:] == "0.0":
        text = "0.0"
    if each.reduction_half_width:
        text += f" ±{100 * each.reduction_half_width:.1f}"
    return f"{text} %"


def _figures_down(comparison: Results, workload: str, metrics: Sequence[str]) -> Table:
    table = new_table(title_of(comparison, workload))
    table.add_column("figure")
    for policy in comparison.policies:
        table.add_column(policy, justify="right")
        if policy != comparison.baseline:
            table.add_column("less by", justify="right")
    for metric in metrics:
        means = [comparison.summary(workload, policy, metric).mean for policy in comparison.policies]
        if metric == AT_LEAST and not any(mean is not None for mean in means):
            continue  # the total itself is known
        cells = [METRICS[metric].label]
        for policy in comparison.policies:
            each = comparison.summary(workload, policy, metric)
            cells.append(show(metric, each.mean))
            if policy != comparison.baseline:
                cells.append(_coloured(each))
        table.add_row(*cells)
    return table


_SHORT = {
    AT_LEAST: "energy ≥", "mean_w": "mean W", "peak_w": "peak W", "edp_js": "EDP", "utilisation": "util.",
    "slowdown_p50": "slowdown p50", "slowdown_p95": "p95", "slowdown_p99": "p99", "stretch_mean": "stretch",
    "carbon_g": "carbon", "decision_us": "decision", "cost": "cost",
}  # fmt: skip


def short_label(metric: str) -> str:
    """Return a label for the head of a narrow column."""
    return _SHORT.get(metric, METRICS[metric].label)


def _policies_down(comparison: Results, workload: str, metrics: Sequence[str]) -> Table:
    table = new_table(title_of(comparison, workload))
    table.add_column("policy", no_wrap=True)
    known = [
        m for m in metrics if any(comparison.summary(workload, p, m).mean is not None for p in comparison.policies)
    ]
    for metric in known:
        table.add_column(short_label(metric), justify="right")
        if metric in _WITH_CHANGE:
            table.add_column("less by", justify="right", no_wrap=True)
    front = set(comparison.front(workload))
    for policy in sorted(comparison.policies, key=lambda p: _rank(comparison, workload, p)):
        cells = [f"{policy} ●" if policy in front else policy]
        for metric in known:
            each = comparison.summary(workload, policy, metric)
            cells.append(show(metric, each.mean))
            if metric in _WITH_CHANGE:
                cells.append("" if policy == comparison.baseline else _coloured(each))
        table.add_row(*cells, style="bold" if policy == comparison.baseline else None)
    return table


_WITH_CHANGE = ("makespan_s", "energy_j")


def _rank(comparison: Results, workload: str, policy: str) -> tuple[bool, float, str]:
    energy = comparison.summary(workload, policy, "energy_j").mean
    span = comparison.summary(workload, policy, "makespan_s").mean
    value = energy if energy is not None else span
    # The baseline first, then the fewest joules; without joules the shortest.
    return policy != comparison.baseline, value if value is not None else float("inf"), policy


def title_of(comparison: Results, workload: str) -> str:
    """Name a workload, its cluster and how many seeds were run."""
    seeds = len(comparison.seeds)
    return f"{workload} on {comparison.cluster.name}, {seeds} seed{'s' if seeds > 1 else ''}"


def explanation(comparison: Results, front: bool = True) -> str:
    """Explain how to read the tables; ``front`` where they mark the Pareto front."""
    lines = [f"less by: (before − after) / before against {comparison.baseline}; ± is a 95 % interval over seeds"]
    if front and len(comparison.policies) > 4:
        lines.append("● no policy beats it in both makespan and energy")
    if len(comparison.seeds) > 1 and all(s.deterministic for s in comparison.summaries(("makespan_s", "energy_j"))):
        lines.append("every seed gave the same run: nothing here is random, so intervals are 0")
    return "\n".join(lines)


def _coloured(each: Summary) -> str:
    text, better = show_change(each), METRICS[each.metric].less_is_better
    share, width = each.reduction or 0.0, each.reduction_half_width or 0.0
    # Within the interval, or below a twentieth of a per cent, it is no change.
    if better is None or abs(share) <= max(width, 0.0005):
        return text
    return f"[green]{text}[/]" if (share > 0) == better else f"[red]{text}[/]"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def beside_table(lines: Sequence[Beside], title: str) -> Table:
    """Return a real run and its simulations for a reader."""
    table = new_table(title)
    for name in ("", "policy", "makespan", "error", "energy", "error", "of it tasks"):
        table.add_column(name, justify="left" if name in ("", "policy") else "right")
    for line in lines:
        errors = [f"{100 * e:+.1f} %" if line.simulated else "" for e in (line.makespan_error, line.energy_error)]
        table.add_row(
            "simulated" if line.simulated else "real",
            line.policy,
            human_time(line.makespan_s),
            errors[0],
            human_energy(line.energy_j),
            errors[1],
            human_energy(line.run_j),
        )
    return table
