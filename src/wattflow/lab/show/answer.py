"""The answer first: the policy that keeps the bound on waiting with the fewest joules, then a table of what matters.

Changes over several workloads are geometric means of the ratios, by seed, with a 95 % interval over seeds, or over
the workloads where every seed gives the same. Money and carbon are what the saved watts come to in a year at this
rate: at what a kWh of the baseline's run costs and emits (so the sentence and the columns have one price and one
factor), else at assumed ones, and the sentence says which. A saving within noise is not scaled to a year.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattflow.lab.compare.results import Results
from wattflow.lab.figures.metrics import METRICS
from wattflow.lab.figures.statistics import mean_interval
from wattflow.lab.show.result_tables import amount, new_table, show, title_of
from wattflow.model.errors import WattflowError
from wattflow.model.units import J_PER_KWH

if TYPE_CHECKING:
    from rich.table import Table

FLAGSHIP = "wattflow"
MATTERS = (
    "energy_j",
    "workflow_response_mean_s",
    "workflow_response_p95_s",
    "makespan_s",
    "deadlines_missed",
    "electricity_cost",
    "carbon_g",
)
"""Figures of the short table."""
WAITS = ("workflow_response_mean_s", "workflow_response_p95_s")
BOUND = 1.02
"""Nobody waits if these are at most so many times the baseline's on every workload."""
SLEEP_ALONE = "sleep=600"
"""The baseline with nodes off after ten idle minutes, as cluster autoscalers do: what sleep alone saves."""
ROWS = 8
"""Policies of the short table, baseline and flagship among them."""
ASSUMED_PRICE, ASSUMED_G = 0.20, 300.0
"""Money and grams of CO₂ per kWh where the cluster names none: round figures of a European grid."""
HOURS_A_YEAR = 8766.0
_NAME_WIDTH = 15
"""Of the policies' column; the table then fits 80 columns."""
_HEADS = {
    "energy_j": "energy",
    "workflow_response_mean_s": "response",
    "workflow_response_p95_s": "p95",
    "makespan_s": "makespan",
    "deadlines_missed": "late",
    "electricity_cost": "cost",
    "carbon_g": "CO₂",
}


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """After over before, and the half width of its interval; None where a value is unknown or 0."""

    ratio: float
    half: float | None


def change(comparison: Results, policy: str, metric: str) -> RelativeChange | None:
    """Geometric mean over workloads of after / before, averaged over seeds.

    The interval is over seeds; where seeds make no difference and there are several workloads, it is over those.
    """
    by_seed: list[float] = []
    logs: list[float] = []
    for place in range(len(comparison.seeds)):
        logs = []
        for workload in comparison.workloads:
            before = comparison.values(workload, comparison.baseline, metric)[place]
            after = comparison.values(workload, policy, metric)[place]
            # A ratio to 0 has no logarithm, and a part that is unknown leaves the whole unknown.
            if before is None or after is None or before <= 0 or after <= 0:
                return None
            logs.append(math.log(after / before))
        by_seed.append(math.exp(sum(logs) / len(logs)))
    # Every seed gave the same: only workloads can say how sure it is.
    if len(logs) > 1 and max(by_seed) == min(by_seed):
        mean, half = mean_interval(logs)
        # A symmetric interval of the logarithm; sinh is half its width as a ratio.
        return RelativeChange(math.exp(mean), None if half is None else math.exp(mean) * math.sinh(half))
    return RelativeChange(*mean_interval(by_seed))


def leader(comparison: Results) -> str | None:
    """Return the policy that keeps the bound on waiting with the fewest joules; where none does, just the fewest.

    None with the baseline alone. Policies that know the future lead only among themselves.
    """
    others = [policy for policy in comparison.policies if policy != comparison.baseline]
    # A planner that saw everything is not what others can be held to.
    ours = [policy for policy in others if not knows_future(policy)] or others
    able = [policy for policy in ours if keeps(comparison, policy)] or ours
    known = [(found.ratio, policy) for policy in able if (found := change(comparison, policy, "energy_j"))]
    # Names break ties, so that the same sentence comes out each time.
    return min(known)[1] if known else (able[0] if able else None)


def keeps(comparison: Results, policy: str) -> bool:
    """Tell whether nobody waits: mean and p95 response of workflows on each workload, and deadlines."""
    for workload in comparison.workloads:
        for metric, most in (*((name, BOUND) for name in WAITS), ("deadlines_missed", 1.0)):
            before = comparison.summary(workload, comparison.baseline, metric).mean
            after = comparison.summary(workload, policy, metric).mean
            # Means of floats: exactly the bound is kept.
            if before is not None and after is not None and after > most * before + 1e-9:
                return False
    return True


def sentence(comparison: Results) -> str:
    """Summarise the comparison in the two sentences that a manager reads first."""
    policy = leader(comparison)
    if policy is None:
        return f"Only {comparison.baseline} was run: name a second policy to compare it with."
    first = f"{policy} against {comparison.baseline}: {_changes(comparison, policy)}{_deadlines(comparison, policy)}."
    second = [_bound(comparison, policy), *_of_sleep(comparison)]
    if FLAGSHIP in comparison.policies and FLAGSHIP not in (policy, comparison.baseline):
        second.append(_of_flagship(comparison))
    energy = change(comparison, policy, "energy_j")
    # What may be nothing is not multiplied by a year.
    yearly = "" if energy is None or _is_noise(energy) else _yearly(comparison, policy)
    return f"{first}\n{' '.join(second)}{yearly}"


def _changes(comparison: Results, policy: str) -> str:
    energy = change(comparison, policy, "energy_j")
    parts = [_words(energy, "energy", "less", "more")] if energy else ["energy unknown"]
    names = ((WAITS[0], "mean response"), (WAITS[1], "p95"), ("makespan_s", "makespan"))
    found = [(name, one) for metric, name in names if (one := change(comparison, policy, metric))]
    parts += [_words(one, name, "shorter", "longer") for name, one in found if not _is_noise(one)]
    same = [name for name, one in found if _is_noise(one)]
    if same:
        parts.append(f"{' and '.join([', '.join(same[:-1]), same[-1]] if same[1:] else same)} the same within noise")
    return ", ".join(parts)


def _bound(comparison: Results, policy: str) -> str:
    """Explain why this policy leads."""
    among = sum(keeps(comparison, name) for name in comparison.policies if name != comparison.baseline)
    limit = f"{100 * (BOUND - 1):.0f} % of those under {comparison.baseline}"
    energy = change(comparison, policy, "energy_j")
    if energy is not None and energy.ratio > 1.0 and not _is_noise(energy):
        if among:
            return f"None of the {among} that keep responses within {limit} takes fewer joules."
        return f"No policy here takes fewer joules than {comparison.baseline}, or keeps every response within {limit}."
    if not keeps(comparison, policy):
        return f"It has the fewest joules, but somebody waits: no policy here keeps every response within {limit}."
    return f"Of the {among} that keep responses within {limit} it has the fewest joules."


def _of_sleep(comparison: Results) -> list[str]:
    """Compare with the savings of a sleep time-out alone, where that was run."""
    alone = f"{comparison.baseline}:{SLEEP_ALONE}"
    found = change(comparison, alone, "energy_j") if alone in comparison.policies else None
    return [f"Sleep alone ({alone}): {_words(found, 'energy', 'less', 'more')}."] if found else []


def _of_flagship(comparison: Results) -> str:
    """Explain why the flagship does not lead: somebody waits, or another takes fewer joules."""
    energy = change(comparison, FLAGSHIP, "energy_j")
    text = f"{FLAGSHIP}: {_words(energy, 'energy', 'less', 'more') if energy else 'energy unknown'}"
    waits = []
    for workload in comparison.workloads:
        for metric, name in zip(WAITS, ("mean", "p95"), strict=True):
            before = comparison.summary(workload, comparison.baseline, metric).mean
            after = comparison.summary(workload, FLAGSHIP, metric).mean
            if before and after and after > BOUND * before:
                waits.append((after / before - 1.0, f"{name} response on {workload}"))
    return f"{text}, but {100 * max(waits)[0]:.1f} % longer {max(waits)[1]}." if waits else f"{text}."


def _is_noise(found: RelativeChange) -> bool:
    # Below a twentieth of a per cent nobody would call it a change.
    return found.half is not None and abs(found.ratio - 1.0) <= max(found.half, 0.0005)


def _words(found: RelativeChange, what: str, below: str, above: str) -> str:
    if _is_noise(found):
        return f"{what} the same within noise"
    # Percentages above a hundred are hard to read.
    if found.ratio >= 2.0:
        return f"{what} × {found.ratio:.3g}"
    half = f" ±{100 * found.half:.1f}" if found.half else ""
    return f"{100 * abs(1.0 - found.ratio):.1f}{half} % {below if found.ratio < 1 else above} {what}"


def _deadlines(comparison: Results, policy: str) -> str:
    late = _sum(comparison, policy, "deadlines_missed")
    before = _sum(comparison, comparison.baseline, "deadlines_missed")
    if late is None or before is None:
        return ""
    tasks = _sum(comparison, policy, "tasks") or 0.0
    return (
        f", {100 * (1 - late / max(1.0, tasks)):.1f} % of deadlines met ({100 * (1 - before / max(1.0, tasks)):.1f} %)"
    )


def _sum(comparison: Results, policy: str, metric: str) -> float | None:
    values = [value for w in comparison.workloads for value in comparison.values(w, policy, metric)]
    return (
        None if any(value is None for value in values) else float(sum(value for value in values if value is not None))
    )


def _yearly(comparison: Results, policy: str) -> str:
    """Saved watts while the workload runs, times a year; money and grams by what the table's columns have per kWh."""
    base = comparison.baseline
    saved_j = _means(comparison, base, "energy_j") - _means(comparison, policy, "energy_j")
    span_s = _means(comparison, base, "makespan_s")
    if math.isnan(saved_j) or not span_s > 0:
        return ""
    kwh = saved_j / span_s * HOURS_A_YEAR * 3600.0 / J_PER_KWH
    used_kwh = _means(comparison, base, "energy_j") / J_PER_KWH
    # What a kWh of this very run cost: the sentence and the table's columns agree.
    price, gram = (_means(comparison, base, metric) / used_kwh for metric in ("electricity_cost", "carbon_g"))
    guess = [f"{ASSUMED_PRICE:.2f} a kWh"] * math.isnan(price) + [f"{ASSUMED_G:g} g CO₂ a kWh"] * math.isnan(gram)
    price, gram = (ASSUMED_PRICE if math.isnan(price) else price), (ASSUMED_G if math.isnan(gram) else gram)
    note = f" (assumed: {', '.join(guess)})" if guess else ""
    verb, money = "saves" if kwh >= 0 else "costs", f"{abs(kwh) * price:,.0f} {comparison.cluster.currency}"
    return (
        f"\nAt this rate it {verb} {amount(abs(kwh) * 1e3, 'Wh')}, {money} of electricity and "
        f"{amount(abs(kwh) * gram, 'g')} of CO₂ a year{note}."
    )


def _means(comparison: Results, policy: str, metric: str) -> float:
    """Return a figure's mean over seeds, summed over the workloads; NaN where one is unknown."""
    found = [comparison.summary(workload, policy, metric).mean for workload in comparison.workloads]
    return math.nan if None in found else math.fsum(value for value in found if value is not None)


def folded(comparison: Results, workload: str, metrics: Sequence[str] = MATTERS) -> list[list[str]]:
    """Group policies whose figures are the same on this workload, baseline's and flagship's first in theirs."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for policy in comparison.policies:
        key = tuple(tuple(comparison.values(workload, policy, metric)) for metric in metrics)
        groups.setdefault(key, []).append(policy)
    # Whoever is looked for by name stands first in its group.
    first = (comparison.baseline, FLAGSHIP)
    return [sorted(group, key=lambda name: (name not in first, group.index(name))) for group in groups.values()]


def short_table(comparison: Results, workload: str, rows: int | None = ROWS) -> Table:
    """Tabulate the figures that matter, least energy first; equal policies are one row. ``rows`` None shows all."""
    table = new_table(title_of(comparison, workload), narrow=True)
    known = [
        m for m in MATTERS if any(comparison.summary(workload, p, m).mean is not None for p in comparison.policies)
    ]
    table.add_column("policy", no_wrap=True, overflow="ellipsis", max_width=_NAME_WIDTH)
    for metric in known:
        table.add_column(_HEADS[metric], justify="right", no_wrap=True)
        if metric == "energy_j":
            table.add_column("less by", justify="right", no_wrap=True)
    groups = sorted(folded(comparison, workload), key=lambda group: _energy_rank(comparison, workload, group[0]))
    kept = _kept(comparison, groups, rows)
    for group in kept:
        table.add_row(
            *_cells(comparison, workload, group, known), style="bold" if comparison.baseline in group else None
        )
    notes = [f"{len(group)} policies = {group[0]} here: {', '.join(group[1:])}" for group in kept if len(group) > 1]
    if any(knows_future(policy) for group in kept for policy in group[:1]):
        notes.append("* knows the future: it sees the whole workload before the first arrival")
    hidden = sum(map(len, groups)) - sum(map(len, kept))
    if hidden:
        notes.append(f"{hidden} more with --full")
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def _kept(comparison: Results, groups: list[list[str]], rows: int | None) -> list[list[str]]:
    if rows is None or len(groups) <= rows:
        return groups
    wanted = [group for group in groups if comparison.baseline in group or FLAGSHIP in group]
    # What is looked for always stays; the others fill what is left of the rows.
    rest = [group for group in groups if group not in wanted][: rows - len(wanted)]
    return [group for group in groups if group in wanted or group in rest]


def _energy_rank(comparison: Results, workload: str, policy: str) -> tuple[float, str]:
    energy = comparison.summary(workload, policy, "energy_j").mean
    return (math.inf if energy is None else energy), policy


def _cells(comparison: Results, workload: str, group: list[str], known: Sequence[str]) -> list[str]:
    policy = group[0]
    mark = (" *" if knows_future(policy) else "") + (f" (={len(group)})" if len(group) > 1 else "")
    room = _NAME_WIDTH - len(mark)
    # Cut here, so that the mark behind the name is not cut off.
    cells = [f"{policy if len(policy) <= room else policy[: room - 1] + '…'}{mark}"]
    for metric in known:
        each = comparison.summary(workload, policy, metric)
        cells.append(_short(metric, each.mean))
        if metric == "energy_j":
            cells.append("" if policy == comparison.baseline else less_by(each.reduction, each.reduction_half_width))
    return cells


def _short(metric: str, value: float | None) -> str:
    if value is None:
        return "–"
    if METRICS[metric].unit == "J":
        return amount(value / 3600.0, "Wh")
    if METRICS[metric].unit == "g":
        return amount(value, "g")
    if metric == "electricity_cost":
        return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
    # Narrow columns: "1h 5m" loses its space.
    return show(metric, value).replace("m ", "m").replace("h ", "h")


def knows_future(policy: str) -> bool:
    """Tell whether a policy is given the whole workload before it starts: no online policy can be held to it."""
    from wattflow.policy import registry

    try:
        return registry.load(policy).knows_future
    except WattflowError:
        return False  # a policy of the caller's own, which the registry does not know


def less_by(reduction: float | None, half: float | None) -> str:
    """``31.2 ±0.8 %``, or ``× 54`` where it is more than twice the baseline."""
    if reduction is None:
        return "–"
    # More than twice the baseline: times, not per cent.
    if reduction < -1.0:
        return f"× {1.0 - reduction:.3g}"
    text = f"{100 * reduction:.1f}".replace("-", "−")
    # "−0.0" would look like a change.
    return f"{'0.0' if text == '−0.0' else text}{f' ±{100 * half:.1f}' if half else ''} %"
