"""A comparison as one self-contained page: no network, no library, opens from a mail attachment."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from html import escape
from importlib import resources

from wattflow.files.whole import write_text
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.figures.metrics import HEADLINE, METRICS, STAGES, node_provenance
from wattflow.lab.show.svg import Dot, scatter, stacked_bars
from wattflow.lab.show.tables import short_label, show, show_change
from wattflow.lab.show.timeline import BINS, GROUPS, MOST_BARS, MOST_ROWS, timeline
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS
from wattflow.model.units import J_PER_KWH

MOST_TIMELINES = 120
MOST_BARS_IN_ALL = 45_000

_ABOUT_SCATTER = """<p>Each dot is a policy, at its means over seeds; less is better on both axes. The stairs are the
Pareto front: no policy beats its members in both. Lines through these are 95 % intervals of the difference to the
baseline (paired by seed), cut off at the frame. Point at a dot for its name and numbers.</p>"""
_ABOUT_FIGURES = """<p>Change in percent is (before − after) / before against <b>{baseline}</b>: positive is less.
● marks the Pareto front. Green is better, red is worse, grey is within the interval.</p>"""


def write_report(path: str | os.PathLike[str], comparison: Comparison, title: str = "wattflow comparison") -> None:
    """Write the page; the file appears whole or not at all."""
    write_text(path, report(comparison, title))


def report(comparison: Comparison, title: str = "wattflow comparison") -> str:
    """The page as text."""
    pictures, notes = _timelines(comparison)
    parts = [
        f"<h1>{escape(title)}</h1>",
        _summary(comparison),
        "<h2>Energy and makespan</h2>",
        _ABOUT_SCATTER,
        f'<div class="pair">{"".join(_scatter(comparison, workload) for workload in comparison.workloads)}</div>',
    ]
    if pictures:
        parts.append(_timeline_section(comparison, notes))
    parts.append("<h2>Figures</h2>")
    parts.append(_ABOUT_FIGURES.format(baseline=escape(comparison.baseline)))
    parts += [_table(comparison, workload) for workload in comparison.workloads]
    parts += ["<h2>Where the joules went</h2>", legend(ACCOUNTS), *_account_bars(comparison), _provenance(comparison)]
    parts += ["<h2>Where the time went</h2>", "<p>Mean response time of a task, by stage.</p>", legend(STAGES)]
    parts += _wait_bars(comparison)
    parts.append(_footer(comparison))
    data = json.dumps(pictures, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{asset("report.css")}</style></head><body><main>'
        + "\n".join(parts)
        + f'</main><script type="application/json" id="runs">{data}</script>'
        + f"<script>{asset('report.js')}</script></body></html>\n"
    )


def asset(name: str) -> str:
    """The style sheet or the script of a report."""
    return (resources.files("wattflow") / "data" / "report" / name).read_text(encoding="utf-8")


def _summary(comparison: Comparison) -> str:
    cluster, seeds = comparison.cluster, len(comparison.seeds)
    facts = [
        _counted(len(comparison.workloads), "workload", "workloads"),
        _counted(len(comparison.policies), "policy", "policies"),
        _counted(seeds, "seed", "seeds"),
        f"cluster <b>{escape(cluster.name)}</b>: {len(cluster.nodes)} nodes, {cluster.total_cores} cores",
        f"baseline <b>{escape(comparison.baseline)}</b>",
        "all runs are <b>simulated</b>",
    ]
    about = f"<p>{escape(cluster.about)}</p>" if cluster.about else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return f'<p class="facts">{" · ".join(facts)}</p>{about}' + (f"<ul>{notes}</ul>" if notes else "")


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
    dots = [Dot(d.name, d.x / x_size, d.y / y_size, d.x_half / x_size, d.y_half / y_size, d.marked) for d in dots]
    drawing = scatter(dots, f"makespan, {x_unit}", f"energy, {y_unit}")
    return f"<figure><figcaption>{escape(workload)}</figcaption>{drawing}</figure>"


def _time_unit(dots: Sequence[Dot]) -> tuple[float, str]:
    longest = max((dot.x for dot in dots), default=0.0)
    return (3600.0, "h") if longest >= 7200 else (60.0, "min") if longest >= 600 else (1.0, "s")


def _energy_unit(most_j: float) -> tuple[float, str]:
    return (J_PER_KWH, "kWh") if most_j >= 1e8 else (1000.0, "kJ")


def _paired_half(comparison: Comparison, workload: str, policy: str, metric: str) -> float:
    """Half width of the difference to the baseline, paired by seed: how far a dot may move against the baseline's."""
    before = comparison.summary(workload, comparison.baseline, metric).mean or 0.0
    return (comparison.summary(workload, policy, metric).reduction_half_width or 0.0) * before


def _timelines(comparison: Comparison) -> tuple[list[dict[str, object]], list[str]]:
    """Pictures of the kept runs: all of them while they fit, else the baseline, the fronts, then the rest in order."""
    keys = sorted(comparison.runs, key=lambda key: _importance(comparison, key))
    pictures: list[dict[str, object]] = []
    bars = reduced = 0
    for workload, policy in keys[:MOST_TIMELINES]:
        run = comparison.runs[workload, policy]
        fits = len(run.attempts) <= MOST_BARS and bars + len(run.attempts) <= MOST_BARS_IN_ALL
        bars += len(run.attempts) if fits else 0
        reduced += not fits
        pictures.append({"workload": workload, "policy": policy, **timeline(run, MOST_BARS if fits else 0)})
    notes = [
        f"The power curve shows means over 1/{BINS} of the run, so short peaks look lower than the peak in the table."
    ]
    if reduced:
        notes.append(f"{reduced} runs have too many attempts to draw one by one; their rows show the busy share of each"
                     " node's hardware threads instead.")  # fmt: skip
    if len(keys) > MOST_TIMELINES:
        notes.append(f"{len(keys) - MOST_TIMELINES} of {len(keys)} timelines are left out to keep the page small.")
    nodes = len(comparison.cluster.nodes)
    if nodes > MOST_ROWS:
        notes.append(f"The {nodes} nodes are drawn as {MOST_ROWS} rows of neighbours.")
    if nodes > GROUPS:
        notes.append(f"Colours stand for {GROUPS} groups of neighbouring nodes.")
    if any(picture["rebuilt"] for picture in pictures):
        notes.append("Power was rebuilt from attempts with every node taken to be on: sleep and wake do not show.")
    return pictures, notes


def _importance(comparison: Comparison, key: tuple[str, str]) -> tuple[int, int, int]:
    workload, policy = key
    kind = 0 if policy == comparison.baseline else 1 if policy in comparison.front(workload) else 2
    return kind, comparison.workloads.index(workload), comparison.policies.index(policy)


def _timeline_section(comparison: Comparison, notes: Sequence[str]) -> str:
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f"<h2>Timelines</h2><p>First seed ({comparison.seeds[0]}). Each band is a node, each bar an attempt (pale: cold"
        " start, wake, data; red edge: failed). Below it, the stacked power of these nodes on the same time axis.</p>"
        '<p class="choose"><label>workload <select id="workload"></select></label>'
        '<label>above <select id="above"></select></label><label>below <select id="below"></select></label></p>'
        f'<div id="timelines"></div><div id="tip" hidden></div><ul class="small">{remarks}</ul>'
    )


def _table(comparison: Comparison, workload: str) -> str:
    policies = comparison.policies
    shown = [m for m in HEADLINE if any(comparison.summary(workload, p, m).mean is not None for p in policies)]
    head = "".join(f'<th title="{escape(METRICS[m].label)}">{escape(short_label(m))}</th>' for m in shown)
    front = set(comparison.front(workload))
    body = []
    for policy in policies:
        cells = "".join(_cell(comparison, workload, policy, metric) for metric in shown)
        mark = " ●" if policy in front else ""
        kind = ' class="baseline"' if policy == comparison.baseline else ""
        body.append(f"<tr{kind}><th>{escape(policy)}{mark}</th>{cells}</tr>")
    return (
        f'<h3>{escape(workload)}</h3><div class="wide"><table><thead><tr><th>policy</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(comparison: Comparison, workload: str, policy: str, metric: str) -> str:
    each = comparison.summary(workload, policy, metric)
    value = escape(show(metric, each.mean))
    if policy == comparison.baseline or each.reduction is None:
        return f"<td>{value}</td>"
    better, width = METRICS[metric].less_is_better, each.reduction_half_width or 0.0
    kind = "same"
    if better is not None and abs(each.reduction) > max(width, 0.0005):
        kind = "good" if (each.reduction > 0) == better else "bad"
    return f'<td>{value}<small class="{kind}">{escape(show_change(each))}</small></td>'


def legend(parts: Sequence[str]) -> str:
    """Colours of the classes ``c-<part>``."""
    keys = "".join(f'<span><i class="c-{part}"></i>{part.replace("_", " ")}</span>' for part in parts)
    return f'<p class="legend">{keys}</p>'


def _bars(comparison: Comparison, metrics: Sequence[str], parts: Sequence[str], scale: tuple[float, str]) -> list[str]:
    out = []
    for workload in comparison.workloads:
        rows = []
        for policy in comparison.policies:
            values = [comparison.summary(workload, policy, metric).mean or 0.0 for metric in metrics]
            rows.append((policy, [value / scale[0] for value in values]))
        out.append(f"<figure><figcaption>{escape(workload)}</figcaption>{stacked_bars(rows, parts, scale[1])}</figure>")
    return out


def _account_bars(comparison: Comparison) -> list[str]:
    most = max((point.values["energy_j"] or 0.0 for point in comparison.points), default=0.0)
    return _bars(comparison, [f"energy_{account}_j" for account in ACCOUNTS], ACCOUNTS, _energy_unit(most))


def _wait_bars(comparison: Comparison) -> list[str]:
    return _bars(comparison, [f"wait_{stage}_s" for stage in STAGES], STAGES, (1.0, "s"))


def _provenance(comparison: Comparison) -> str:
    """How well each node's watts are known; joules of different kinds are shown side by side, not as one."""
    kinds: dict[str, list[str]] = {}
    for node in comparison.cluster.nodes:
        kinds.setdefault(node_provenance(node) or "unknown", []).append(node.name)
    rows = []
    for kind in (*Provenance, "unknown"):
        if kind not in kinds:
            continue
        names = kinds[kind]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        joules = "–" if kind == "unknown" else ", ".join(
            f"{escape(w)}: {show('energy_j', comparison.summary(w, comparison.baseline, f'energy_{kind}_j').mean)}"
            for w in comparison.workloads
        )  # fmt: skip
        rows.append(f"<tr><th>{kind}</th><td>{escape(shown)}</td><td>{joules}</td></tr>")
    sources = sorted({node.power.source for node in comparison.cluster.nodes if node.power and node.power.source})
    listed = "".join(f"<li>{escape(source)}</li>" for source in sources[:12])
    return (
        "<h3>How the watts are known</h3><p>The weakest source of a node and its devices names the node. Simulated"
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
