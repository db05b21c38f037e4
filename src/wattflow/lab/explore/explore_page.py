"""An exploration as one self-contained page: what explains the differences, then the differences."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from wattflow.files.whole import write_text
from wattflow.frames.frame_run import STAGES
from wattflow.lab.explore.exploration import Exploration, Row, known
from wattflow.lab.explore.point import BINS, LEVELS, PERCENTILES
from wattflow.lab.explore.stats import SEEDS, Effect, Variance, effects, variance
from wattflow.lab.show.page import asset, legend
from wattflow.lab.show.svg import Line, Scale, heat_map, line_chart, lines_legend, stacked_bars
from wattflow.model.run import ACCOUNTS

if TYPE_CHECKING:
    from rich.table import Table


FIGURES = {
    "slowdown_p50": "median slowdown",
    "slowdown_p99": "p99 slowdown",
    "slowdown_p99.9": "p99.9 slowdown",
    "slowdown_mean": "mean slowdown",
    "energy_j_per_task": "energy per task",
    "makespan_s": "makespan",
}
"""Figures of the effects and of the variance; all are better when less."""

MOST_LINES, MOST_CHARTS = 24, 6
TAIL = 1e-5
_STYLE = """
.key { display: inline-block; width: 26px; height: 8px; margin-right: 6px; vertical-align: 1px }
.key line, .line { fill: none; stroke-width: 1.8 }
.line:hover { stroke-width: 3.4 }
.heat td { background: color-mix(in srgb, var(--lost) var(--heat, 0%), var(--card)) }
.c-client, .c-frame { fill: var(--g0); background: var(--g0) } .c-broker { fill: var(--g3); background: var(--g3) }
.c-placer, .c-policy { fill: var(--g1); background: var(--g1) } .c-host { fill: var(--idle); background: var(--idle) }
.c-workload { fill: var(--g2); background: var(--g2) } .c-cluster { fill: var(--g6); background: var(--g6) }
.c-interactions { fill: var(--g3); background: var(--g3) } .c-seeds { fill: var(--idle); background: var(--idle) }
details { margin: 12px 0 } summary { cursor: pointer; color: var(--accent) }
.say { font-size: 17px; border-left: 4px solid var(--accent); padding-left: 12px }
"""


def write_exploration(path: str | os.PathLike[str], found: Exploration) -> None:
    """Write the page; the file appears whole or not at all."""
    write_text(path, exploration_report(found))


def exploration_report(found: Exploration) -> str:
    """Return the page as text."""
    title = escape(found.design.name)
    parts = [f"<h1>{title}</h1>", _summary(found)]
    if found.rows:
        parts += [_variance(found), _effects(found), _slowdowns(found), _percentiles(found), _utilisation(found)]
        parts += [_energy(found), _waits(found), _heat_maps(found)]
    parts.append(_footer(found))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{asset("report.css")}{_STYLE}</style></head>'
        f"<body><main>{chr(10).join(parts)}</main></body></html>\n"
    )


def levels(rows: Sequence[Row], axis: str) -> list[str]:
    """Labels of an axis in order of appearance."""
    return list(dict.fromkeys(str(row[axis]) for row in rows))


def _summary(found: Exploration) -> str:
    rows = found.rows
    counted = " × ".join(
        f"{len(levels(rows, one))} {one if len(levels(rows, one)) == 1 else many}"
        for one, many in (
            ("frame", "frames"),
            ("policy", "policies"),
            ("cluster", "clusters"),
            ("workload", "workloads"),
            ("seed", "seeds"),
        )
    )
    tasks = sum(known(rows, "tasks"))
    facts = [counted, f"{len(rows)} of {len(found.design.points)} points", f"{tasks:,.0f} tasks", "all simulated"]
    notes = [f"left out, cannot work: {text}" for text in found.design.skipped]
    notes += [f"failed: {where}: {why}" for where, why in found.failed]
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    about = f"<p>{escape(found.design.about)}</p>" if found.design.about else ""
    return f'<p class="facts">{" · ".join(facts)}</p>{about}' + (f'<ul class="small">{listed}</ul>' if listed else "")


def _variance(found: Exploration) -> str:
    divided = [v for figure in FIGURES if (v := variance(found.rows, figure)) is not None]
    if not divided:
        return "<h2>What explains the differences</h2><p>Nothing varies, or too few points are there.</p>"
    parts = ("frame", "policy", "workload", "cluster", "interactions", SEEDS)
    bars = []
    for each in divided:
        single = {name: each.share(name) for name in parts}
        single["interactions"] = sum(share.share for share in each.shares if len(share.factors) > 1)
        bars.append((FIGURES[each.figure], [100 * single[name] for name in parts]))
    return (
        "<h2>What explains the differences</h2>"
        "<p>Shares of the variance of each figure's logarithm: what a factor moves by itself, what factors move"
        " together, and what changes from seed to seed. The design is a full product, so the parts add up to 100 %.</p>"
        + claim(found.rows)
        + legend(parts)
        + f"<figure>{stacked_bars(bars, parts, '%')}</figure>"
        + _variance_table(divided)
    )


def claim(rows: Sequence[Row], figure: str = "slowdown_p99") -> str:
    """Frames against policies, in one sentence: the test of ExDe's claim."""
    each = variance(rows, figure)
    # Without both factors there is nothing to weigh against each other.
    if each is None or each.within is None or ("frame",) not in each.within or ("policy",) not in each.within:
        return ""
    texts = {name: _share_text(each, (name,)) for name in ("frame", "policy")}
    both = _share_text(each, ("frame", "policy"))
    return (
        f'<p class="say">Of what differs in {FIGURES[figure]} on one and the same workload, the frame explains'
        f" <b>{texts['frame']}</b>, the policy <b>{texts['policy']}</b>, the two together a further {both}; the rest"
        " depends on the workload or the seed.</p>"
    )


def _share_text(each: Variance, factors: tuple[str, ...]) -> str:
    share = (each.within or {}).get(factors, 0.0)
    interval = each.intervals.get(factors)
    between = f" ({100 * interval[0]:.0f}–{100 * interval[1]:.0f} %)" if interval else ""
    return f"{100 * share:.1f} %{between}"


def _variance_table(divided: Sequence[Variance]) -> str:
    factors = dict.fromkeys(share.factors for each in divided for share in each.shares)
    head = "".join(f"<th>{escape(FIGURES[each.figure])}</th>" for each in divided)
    body = []
    for key in factors:
        cells = ""
        for each in divided:
            inside = f"<small>{_share_text(each, key)}</small>" if each.within and key in each.within else ""
            cells += f"<td>{100 * each.share(*key):.1f} %{inside}</td>"
        body.append(f"<tr><th>{' × '.join(key)}</th>{cells}</tr>")
    left_out = dict.fromkeys(load for each in divided for load in each.left_out)
    note = f" Left out for lack of points: {escape(', '.join(left_out))}." if left_out else ""
    return (
        f'<div class="wide"><table><thead><tr><th>factor</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
        '</div><p class="small">Large: of all variance. Small: of what is left without the workload&#8217;s own part,'
        f" with a 95 % bootstrap interval over workloads where there are three or more.{note}</p>"
    )


def _effects(found: Exploration) -> str:
    table = _effects_table(found, found.rows)
    if not table:
        return ""
    return (
        "<h2>Each mechanism with everything else equal</h2>"
        "<p>Change of each figure from pairs of points that differ in this one thing only: geometric mean of the ratios"
        " with a 95 % t interval over workloads (over seeds where there is one workload). Green is less, red is more,"
        f" grey is within the interval.</p>{table}{_effects_by_frame(found)}"
    )


def _effects_by_frame(found: Exploration) -> str:
    """Return the same inside each frame that has axes of its own: a mechanism may help one frame and not another."""
    designs = levels(found.rows, "design")
    tables = []
    for design in designs if len(designs) > 1 else []:
        rows = [row for row in found.rows if row["design"] == design]
        if len(levels(rows, "frame")) > 1:
            tables.append(f"<h3>{escape(design)}</h3>{_effects_table(found, rows, inside=True)}")
    return f"<details><summary>The same within each frame</summary>{''.join(tables)}</details>" if tables else ""


def _effects_table(found: Exploration, rows: Sequence[Row], *, inside: bool = False) -> str:
    by_figure = {figure: effects(found.design, rows, figure) for figure in FIGURES}
    cells = {(f, e.axis, e.before, e.after): e for f, each in by_figure.items() for e in each}
    keys = dict.fromkeys((e.axis, e.before, e.after) for each in by_figure.values() for e in each)
    if not keys:
        return ""
    head = "".join(f"<th>{escape(label)}</th>" for label in FIGURES.values())
    body = []
    for axis, before, after in keys:
        if inside and axis in ("frame", "policy"):
            continue
        row = "".join(_effect_cell(cells.get((figure, axis, before, after))) for figure in FIGURES)
        pairs = max(e.pairs for f in FIGURES if (e := cells.get((f, axis, before, after))) is not None)
        body.append(
            f"<tr><th>{escape(after)}</th><td>{escape(before)}</td><td>{escape(axis)}</td><td>{pairs}</td>{row}</tr>"
        )
    if not body:
        return ""
    return (
        '<div class="wide"><table><thead><tr><th>with</th><th>instead of</th><th>axis</th><th>pairs</th>'
        f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _effect_cell(effect: Effect | None) -> str:
    if effect is None:
        return "<td>–</td>"
    if effect.low is None or effect.high is None:
        return f"<td>{percent(effect.change)}<small class='same'>one block</small></td>"
    # Only an interval that leaves 0 out is coloured.
    kind = "good" if effect.high < 0 else "bad" if effect.low > 0 else "same"
    return (
        f'<td class="{kind}">{percent(effect.change)}<small>{percent(effect.low)} … {percent(effect.high)}</small></td>'
    )


def percent(change: float) -> str:
    """Return a change as people read it: percent, or times where it is large."""
    if change >= 9:
        return f"×{1 + change:,.3g}"
    if change <= -0.9:
        # The least float above 0: a change of −100 % would divide by 0.
        return f"÷{1 / max(1e-300, 1 + change):,.3g}"
    return f"{100 * change:+.1f} %" if abs(change) >= 5e-4 else "0 %"


def _slowdowns(found: Exploration) -> str:
    frames = levels(found.rows, "frame")[:MOST_LINES]
    charts = []
    for policy in levels(found.rows, "policy")[:MOST_CHARTS]:
        lines = []
        for frame in frames:
            rows = [r for r in found.rows if r["frame"] == frame and r["policy"] == policy and r["slower_over"]]
            if rows:
                lines.append((frame, LEVELS.tolist(), np.mean([row["slower_over"] for row in rows], axis=0).tolist()))
        charts.append(_cdf_pair(lines, policy))
    return (
        "<h2>Slowdown</h2><p>Share of tasks by slowdown (response over ideal time), every workload weighing the same;"
        f" on the right the tail, both axes logarithmic.{_cut(found, frames)}</p>"
        + lines_legend(frames)
        + f'<div class="pair">{"".join(charts)}</div>'
    )


def _cut(found: Exploration, frames: Sequence[str]) -> str:
    left = len(levels(found.rows, "frame")) - len(frames)
    return f" {left} further frames are in the tables and the parquet only." if left else ""


def _cdf_pair(lines: list[tuple[str, list[float], list[float]]], policy: str) -> str:
    most = max((x for _, xs, ys in lines for x, y in zip(xs, ys) if y >= TAIL), default=1.0)
    # A power of ten at the end, and at least one decade.
    x = Scale(1.0, max(10.0, 10.0 ** math.ceil(math.log10(most) - 1e-9)), log=True)
    below = [(name, xs, [1.0 - y for y in ys]) for name, xs, ys in lines]
    low = min([0.9, *(ys[0] for _, _, ys in below)])
    cdf = line_chart(below, x, Scale(math.floor(low * 10) / 10, 1.0), ("slowdown", "share of tasks at most so slow"))
    tail = line_chart(lines, x, Scale(TAIL, 1.0, log=True), ("slowdown", "share of tasks slower"))
    name = escape(policy)
    return (
        f"<figure><figcaption>{name}</figcaption>{cdf}</figure>"
        f"<figure><figcaption>{name}: the tail</figcaption>{tail}</figure>"
    )


def geometric(values: Sequence[float]) -> float | None:
    """Geometric mean; None without values or with one that is not above 0."""
    if not values or min(values) <= 0:
        return None
    # Exactly rounded sums, so that the order of rows does not matter.
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _percentiles(found: Exploration) -> str:
    names = [*(f"slowdown_p{p:g}" for p in PERCENTILES), "slowdown_mean", "energy_j_per_task", "utilisation", "peak_w"]
    labels = [*(f"p{p:g}" for p in PERCENTILES), "mean", "J per task", "CPU utilisation", "peak W"]
    head = "".join(f"<th>{label}</th>" for label in labels)
    body = []
    for policy in levels(found.rows, "policy"):
        for frame in levels(found.rows, "frame"):
            rows = [row for row in found.rows if row["frame"] == frame and row["policy"] == policy]
            cells = "".join(f"<td>{_number(geometric(known(rows, name)))}</td>" for name in names)
            body.append(f"<tr><th>{escape(frame)}</th><td>{escape(policy)}</td>{cells}</tr>")
    return (
        "<h3>Percentiles of the slowdown</h3><p>Geometric means over workloads, clusters and seeds.</p>"
        f'<div class="wide"><table><thead><tr><th>frame</th><th>policy</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _utilisation(found: Exploration) -> str:
    frames = levels(found.rows, "frame")[:MOST_LINES]
    # The first point's: one line for each frame in a chart, not one for each seed.
    policy, seed = found.rows[0]["policy"], found.rows[0]["seed"]
    middle = [(k + 0.5) / BINS for k in range(BINS)]
    charts = []
    places = list(dict.fromkeys((row["workload"], row["cluster"]) for row in found.rows))
    for workload, cluster in places[:MOST_CHARTS]:
        lines = []
        for row in found.rows:
            here = (row["workload"], row["cluster"], row["policy"], row["seed"]) == (workload, cluster, policy, seed)
            if here and row["frame"] in frames and row["utilisation_over"]:
                end = row["makespan_s"]
                lines.append((row["frame"], [m * end for m in middle], row["utilisation_over"]))
        # In the order of the legend, with an empty line where a frame has no such point: colours go by number.
        ordered: list[Line] = [next((line for line in lines if line[0] == frame), (frame, [], [])) for frame in frames]
        end = max((line[1][-1] for line in ordered if line[1]), default=1.0)
        chart = line_chart(ordered, Scale(0.0, end), Scale(0.0, 1.0), ("time, s", "busy share of the cores"))
        charts.append(f"<figure><figcaption>{escape(f'{workload} on {cluster}')}</figcaption>{chart}</figure>")
    more = f" The first {MOST_CHARTS} of {len(places)} workloads are drawn." if len(places) > MOST_CHARTS else ""
    return (
        f"<h2>CPU utilisation over time</h2><p>Policy {escape(str(policy))}, seed {seed}; means over 1/{BINS} of each"
        f" run.{more}</p>{lines_legend(frames)}" + f'<div class="pair">{"".join(charts)}</div>'
    )


def _bars(found: Exploration, columns: Sequence[str], parts: Sequence[str], unit: str, scale: Scaled) -> str:
    out = []
    for policy in levels(found.rows, "policy")[:MOST_CHARTS]:
        bars = []
        for frame in levels(found.rows, "frame"):
            rows = [row for row in found.rows if row["frame"] == frame and row["policy"] == policy]
            if rows:
                bars.append((frame, [math.fsum(scale(row, c) for row in rows) / len(rows) for c in columns]))
        drawing = stacked_bars(bars, parts, unit, 225.0)
        out.append(f"<figure><figcaption>{escape(policy)}</figcaption>{drawing}</figure>")
    return "".join(out)


Scaled = Callable[[Row, str], float]


def _per_task(row: Row, column: str) -> float:
    return float(row[column] or 0.0) / max(1.0, float(row["tasks"]))


def _energy(found: Exploration) -> str:
    bars = _bars(found, [f"energy_{account}_j" for account in ACCOUNTS], ACCOUNTS, "J per task", _per_task)
    watts = "; ".join(levels(found.rows, "watts"))
    return (
        "<h2>Where the joules went</h2><p>Joules per task by account, mean over workloads, clusters and seeds. A run"
        f" that ends later idles longer. All are simulated; the watts of the profiles are {escape(watts)}.</p>"
        f"{legend(ACCOUNTS)}{bars}"
    )


def _waits(found: Exploration) -> str:
    parts = (*STAGES, "run")
    bars = _bars(found, [*(f"wait_{s}_s" for s in STAGES), "run_s"], parts, "s", lambda row, c: row[c] or 0.0)
    return (
        "<h2>Where the time went</h2><p>Mean seconds of a task by where it waited: client, broker, placer,"
        f" in messages, in a host's queue, for data; and running.</p>{legend(parts)}{bars}"
    )


def _heat_maps(found: Exploration) -> str:
    rows, frames = found.rows, levels(found.rows, "frame")
    parts = ["<h2>Heat maps</h2><p>Each column is coloured on its own, by the logarithm: the paler, the less.</p>"]
    for figure in ("slowdown_p99", "energy_j_per_task"):
        for axis in ("workload", "policy"):
            columns = levels(rows, axis)
            if axis == "policy" and len(columns) == 1:
                continue
            cells = {
                (frame, column): geometric(
                    known([r for r in rows if r["frame"] == frame and str(r[axis]) == column], figure)
                )
                for frame in frames
                for column in columns
            }
            parts.append(f"<h3>{FIGURES[figure]} by frame and {axis}</h3>" + heat_map(frames, columns, cells, "frame"))
    return "".join(parts)


def _footer(found: Exploration) -> str:
    from wattflow import __version__
    from wattflow.lab.run.work import code_hash

    notes = [
        "Slowdown is response time over the runtime on the fastest host.",
        "Geometric means are used for figures that span decades; the parquet has every point.",
    ]
    listed = "".join(f"<li>{note}</li>" for note in notes)
    facts = f"wattflow {__version__} · code {code_hash()} · {escape(found.parquet.name)}"
    return f'<footer><ul class="small">{listed}</ul><p class="small">{facts}</p></footer>'


SHOWN = ("slowdown_p50", "slowdown_p99", "slowdown_p99.9", "energy_j_per_task", "utilisation")


def summary_tables(found: Exploration) -> list[Table]:
    """Frames and policies by figure, effects on the tail and on energy, shares of the variance."""
    if not found.rows:
        return []
    return [table for table in (_figures(found), _effect_rows(found), _shares(found)) if table.row_count]


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=number > 1)
    return table


def _figures(found: Exploration) -> Table:
    labels = ("p50", "p99", "p99.9", "J per task", "utilisation")
    table = _table(f"{found.design.name}: geometric means", "frame", "policy", *labels)
    for policy in levels(found.rows, "policy"):
        for frame in levels(found.rows, "frame"):
            rows = [row for row in found.rows if row["frame"] == frame and row["policy"] == policy]
            means = [geometric(known(rows, name)) for name in SHOWN]
            table.add_row(frame, policy, *("–" if mean is None else f"{mean:,.4g}" for mean in means))
    return table


def _effect_rows(found: Exploration) -> Table:
    table = _table(
        "with everything else equal (95 % interval)", "with", "instead of", "pairs", "p99", "energy per task"
    )
    tail, energy = (effects(found.design, found.rows, f) for f in ("slowdown_p99", "energy_j_per_task"))
    joules = {(e.axis, e.before, e.after): e for e in energy}
    for effect in tail:
        other = joules.get((effect.axis, effect.before, effect.after))
        cells = []
        for each in (effect, other):
            between = (
                ""
                if each is None or each.low is None or each.high is None
                else (f" ({percent(each.low)} … {percent(each.high)})")
            )
            cells.append("–" if each is None else percent(each.change) + between)
        table.add_row(effect.after, effect.before, str(effect.pairs), *cells)
    return table


def _shares(found: Exploration) -> Table:
    divided = [v for figure in FIGURES if (v := variance(found.rows, figure)) is not None]
    table = _table("share of the variance", "factor", "", *(FIGURES[each.figure] for each in divided))
    for factors in dict.fromkeys(share.factors for each in divided for share in each.shares):
        table.add_row(" × ".join(factors), "", *(f"{100 * each.share(*factors):.1f} %" for each in divided))
    return table
