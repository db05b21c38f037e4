"""An exploration as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattflow.lab.explore.explore_page import FIGURES, geometric, levels, percent
from wattflow.lab.explore.stats import effects, variance
from wattflow.lab.explore.store import known

if TYPE_CHECKING:
    from rich.table import Table

    from wattflow.lab.explore.exploration import Exploration

SHOWN = ("slowdown_p50", "slowdown_p99", "slowdown_p99.9", "energy_j_per_task", "utilisation")


def summary_tables(found: Exploration) -> list[Table]:
    """Frames and policies by figure, effects on the tail and on energy, shares of the variance."""
    if not found.rows:
        return []
    return [table for table in (_figures(found), _effects(found), _shares(found)) if table.row_count]


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


def _effects(found: Exploration) -> Table:
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
