"""A comparison as one self-contained page: no network, no library, opens from a mail attachment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape

from wattflow.files.whole import write_text
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.figures.metrics import HEADLINE, METRICS, STAGES, node_provenance
from wattflow.lab.show.answer import leader, sentence
from wattflow.lab.show.page import MOST_BYTES, EmbeddedRun, Section, document, embedded, figure, legend
from wattflow.lab.show.result_tables import short_label, show, show_change
from wattflow.lab.show.svg import Dot, scatter, stacked_bars
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS
from wattflow.model.units import J_PER_KWH

MOST_TIMELINES = 120

_ABOUT_SCATTER = """<p>Each dot is a policy, at its means over seeds; less is better on both axes. The stairs are the
Pareto front: no policy beats its members in both. Lines through these are 95 % intervals of the difference to the
baseline (paired by seed), cut off at the frame. A triangle stands for a dot further out, its value beside its name.
Point at a dot for its name and numbers; dots of equal policies lie on one another.</p>"""
_ABOUT_FIGURES = """<p>Change in percent is (before − after) / before against <b>{baseline}</b>: positive is less.
● marks the Pareto front. Green is better, red is worse, grey is within the interval.
A click on a head sorts; the box filters by name.</p>"""
_ABOUT_WAITS = "<p>Mean response time of a task, by stage.</p>"


def write_report(path: str | os.PathLike[str], comparison: Comparison, title: str = "wattflow comparison") -> None:
    """Write the page; the file appears whole or not at all."""
    write_text(path, report(comparison, title))


def report(comparison: Comparison, title: str = "wattflow comparison") -> str:
    """Return the page as text: the answer, two timelines side by side, then everything behind them."""
    runs, notes = _timelines(comparison)
    # The first line is the answer; money and carbon follow below.
    answer, _, yearly = sentence(comparison).partition("\n")
    head = (
        f'<h1>{escape(title)}</h1><p class="answer">{escape(answer)}</p>'
        f"{f'<p>{escape(yearly)}</p>' if yearly else ''}{_summary(comparison)}"
    )
    tables = "".join(_table(comparison, workload) for workload in comparison.workloads)
    scatters = "".join(_scatter(comparison, workload) for workload in comparison.workloads)
    sections = [Section("timelines-side", "Timelines", _timeline_body(comparison, notes))] if runs else []
    sections += [
        Section("trade-off", "Energy and makespan", f'{_ABOUT_SCATTER}<div class="pair">{scatters}</div>'),
        Section("figures", "Figures", _ABOUT_FIGURES.format(baseline=escape(comparison.baseline)) + tables),
        Section("joules", "Where the joules went", legend(ACCOUNTS) + _account_bars(comparison)),
        Section("watts", "How the watts are known", _provenance(comparison)),
        Section("time", "Where the time went", _ABOUT_WAITS + legend(STAGES) + _wait_bars(comparison)),
    ]
    return document(title, head, sections, _footer(comparison), runs)


def _summary(comparison: Comparison) -> str:
    cluster, seeds = comparison.cluster, len(comparison.seeds)
    facts = [
        _counted(len(comparison.workloads), "workload", "workloads"),
        _counted(len(comparison.policies), "policy", "policies"),
        _counted(seeds, "seed", "seeds"),
        f"cluster <b>{escape(cluster.name)}</b>: {len(cluster.nodes)} nodes, {cluster.total_cores} cores",
        f"baseline <b>{escape(comparison.baseline)}</b>",
        _what_is_real(comparison),
    ]
    about = f"<p>{escape(cluster.about)}</p>" if cluster.about else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return f'<p class="facts">{" · ".join(facts)}</p>{about}' + (f"<ul>{notes}</ul>" if notes else "")


def _what_is_real(comparison: Comparison) -> str:
    real = [policy for (_, policy), run in comparison.runs.items() if not run.simulated]
    if not real:
        return "all runs are <b>simulated</b>"
    return f"<b>{escape(', '.join(real))}</b> is real, all others are <b>simulated</b>"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _scatter(comparison: Comparison, workload: str) -> str:
    dots = []
    for policy in comparison.policies:
        span, energy = (comparison.summary(workload, policy, metric) for metric in ("makespan_s", "energy_j"))
        if span.mean is not None and energy.mean is not None:
            wide, tall = (_paired_half(comparison, workload, policy, metric) for metric in ("makespan_s", "energy_j"))
            marked = policy == comparison.baseline
            dots.append(Dot(policy, span.mean, energy.mean, wide, tall, marked))
    (x_size, x_unit), (y_size, y_unit) = _time_unit(dots), _energy_unit(max((dot.y for dot in dots), default=0.0))
    rows = [
        {
            "policy": d.name,
            "makespan_s": d.x,
            "energy_j": d.y,
            "makespan_half_width_s": d.x_half,
            "energy_half_width_j": d.y_half,
        }
        for d in dots
    ]
    dots = [Dot(d.name, d.x / x_size, d.y / y_size, d.x_half / x_size, d.y_half / y_size, d.marked) for d in dots]
    drawing = scatter(dots, f"makespan, {x_unit}", f"energy, {y_unit}", leader(comparison))
    return figure(f"{workload}: energy and makespan", drawing, rows)


def _time_unit(dots: Sequence[Dot]) -> tuple[float, str]:
    longest = max((dot.x for dot in dots), default=0.0)
    return (3600.0, "h") if longest >= 7200 else (60.0, "min") if longest >= 600 else (1.0, "s")


def _energy_unit(most_j: float) -> tuple[float, str]:
    return (J_PER_KWH, "kWh") if most_j >= J_PER_KWH else (3600.0, "Wh")


def _paired_half(comparison: Comparison, workload: str, policy: str, metric: str) -> float:
    """Half width of the difference to the baseline, paired by seed: how far a dot may move against the baseline's."""
    before = comparison.summary(workload, comparison.baseline, metric).mean or 0.0
    # The width is a share of the baseline's mean: back to its unit.
    return (comparison.summary(workload, policy, metric).reduction_half_width or 0.0) * before


def _timelines(comparison: Comparison) -> tuple[list[EmbeddedRun], list[str]]:
    """Kept runs: all of them while they fit, else the baseline, the fronts, then the rest in order."""
    # Baseline and front first: what is left out is what is looked at least.
    keys = sorted(comparison.runs, key=lambda key: _importance(comparison, key))
    runs: list[EmbeddedRun] = []
    size = 0
    for workload, policy in keys[:MOST_TIMELINES]:
        run = embedded(workload, policy, comparison.runs[workload, policy])
        # The first one in any case: a page without a timeline helps nobody.
        if size + len(run.text) <= MOST_BYTES or not runs:
            runs.append(run)
            size += len(run.text)
    left_out = len(keys) - len(runs)
    return runs, [f"{left_out} of {len(keys)} timelines are left out to keep the page small."] if left_out else []


def _importance(comparison: Comparison, key: tuple[str, str]) -> tuple[int, int, int]:
    workload, policy = key
    kind = 0 if policy == comparison.baseline else 1 if policy in comparison.front(workload) else 2
    return kind, comparison.workloads.index(workload), comparison.policies.index(policy)


def _timeline_body(comparison: Comparison, notes: Sequence[str]) -> str:
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    right = escape(leader(comparison) or comparison.baseline)
    return (
        f"<p>First seed ({comparison.seeds[0]}), one time axis. Each band is a node, each bar an attempt (pale: cold"
        " start, wake, data; red end: failed); hatched: the node is asleep. Below, the stacked power of these nodes,"
        " idle as a band of its own. Drag to pan, Ctrl and wheel zoom; keys work too.</p>"
        f'<div id="timelines" data-left="{escape(comparison.baseline)}" data-right="{right}"></div>'
        f'<ul class="small">{remarks}</ul>'
    )


def _table(comparison: Comparison, workload: str) -> str:
    policies = comparison.policies
    shown = [m for m in HEADLINE if any(comparison.summary(workload, p, m).mean is not None for p in policies)]
    head = "".join(
        f'<th title="{escape(METRICS[m].label)}" data-key="{m}">{escape(short_label(m))}</th>' for m in shown
    )
    front = set(comparison.front(workload))
    body = []
    for policy in policies:
        cells = "".join(_cell(comparison, workload, policy, metric) for metric in shown)
        mark = " ●" if policy in front else ""
        kind = ' class="baseline"' if policy == comparison.baseline else ""
        body.append(f'<tr{kind}><th data-v="{escape(policy)}">{escape(policy)}{mark}</th>{cells}</tr>')
    return (
        f'<h3>{escape(workload)}</h3><div class="wide"><table class="sort" data-name="{escape(workload)}"><thead><tr>'
        f'<th data-key="policy">policy</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _cell(comparison: Comparison, workload: str, policy: str, metric: str) -> str:
    each = comparison.summary(workload, policy, metric)
    value = escape(show(metric, each.mean))
    # The number itself, for sorting; ten digits are more than any figure has.
    raw = "" if each.mean is None else f' data-v="{each.mean:.10g}"'
    if policy == comparison.baseline or each.reduction is None:
        return f"<td{raw}>{value}</td>"
    better, width = METRICS[metric].less_is_better, each.reduction_half_width or 0.0
    kind = "same"
    # Within the interval it is grey, whichever way it points.
    if better is not None and abs(each.reduction) > max(width, 0.0005):
        kind = "good" if (each.reduction > 0) == better else "bad"
    return f'<td{raw}>{value}<small class="{kind}">{escape(show_change(each))}</small></td>'


def _bars(comparison: Comparison, named: Mapping[str, str], what: str, scale: tuple[float, str]) -> str:
    """Stacked bars of the metrics in ``named`` (metric to part), a figure for each workload."""
    out = []
    for workload in comparison.workloads:
        bars, rows = [], []
        for policy in comparison.policies:
            values = {metric: comparison.summary(workload, policy, metric).mean or 0.0 for metric in named}
            bars.append((policy, [value / scale[0] for value in values.values()]))
            rows.append({"policy": policy, **values})
        out.append(figure(f"{workload}: {what}", stacked_bars(bars, list(named.values()), scale[1]), rows))
    return "".join(out)


def _account_bars(comparison: Comparison) -> str:
    most = max((point.values["energy_j"] or 0.0 for point in comparison.points), default=0.0)
    named = {f"energy_{account}_j": account for account in ACCOUNTS}
    return _bars(comparison, named, "energy by account", _energy_unit(most))


def _wait_bars(comparison: Comparison) -> str:
    return _bars(comparison, {f"wait_{stage}_s": stage for stage in STAGES}, "response by stage", (1.0, "s"))


def _provenance(comparison: Comparison) -> str:
    """Return how well each node's watts are known; joules of different kinds are shown side by side, not as one."""
    kinds: dict[str, list[str]] = {}
    for node in comparison.cluster.nodes:
        kinds.setdefault(node_provenance(node) or "unknown", []).append(node.name)
    rows = []
    # In the order of how well they are known.
    for kind in (*Provenance, "unknown"):
        if kind not in kinds:
            continue
        names = kinds[kind]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        joules = (
            "–"
            if kind == "unknown"
            else ", ".join(
                f"{escape(w)}: {show('energy_j', comparison.summary(w, comparison.baseline, f'energy_{kind}_j').mean)}"
                for w in comparison.workloads
            )
        )
        rows.append(f"<tr><th>{kind}</th><td>{escape(shown)}</td><td>{joules}</td></tr>")
    sources = sorted({node.power.source for node in comparison.cluster.nodes if node.power and node.power.source})
    listed = "".join(f"<li>{escape(source)}</li>" for source in sources[:12])
    return (
        "<p>The weakest source of a node and its devices names the node. Simulated"
        " joules are never better than the profile they come from.</p>"
        '<div class="wide"><table class="text"><thead><tr><th>power profile</th><th>nodes</th>'
        f"<th>energy under {escape(comparison.baseline)}</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<ul class="small">{listed}</ul>'
    )


def _footer(comparison: Comparison) -> str:
    from wattflow import __version__

    steady = (
        all(s.deterministic for s in comparison.summaries(("makespan_s", "energy_j"))) and len(comparison.seeds) > 1
    )
    notes = [
        "Slowdown is response time over ideal time: the best variant on an idle, warm node with its data at hand.",
        "Stretch is the run stage over ideal time, without waiting.",
        "Time to decide is measured on the machine that ran the comparison and differs from run to run.",
    ]
    if steady:
        notes.append("Every seed gave the same run: nothing here is random, so the intervals are 0.")
    listed = "".join(f"<li>{note}</li>" for note in notes)
    settings = escape(json.dumps(comparison.about, default=str))
    return f'<footer><ul class="small">{listed}</ul><p class="small">wattflow {__version__} · {settings}</p></footer>'
