"""Learning curves: what training wrote into its CSV files, as a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from research import shipped

if TYPE_CHECKING:
    from matplotlib.lines import Line2D


def curves() -> list[Path]:
    """Curves of the shipped weights."""
    return sorted(shipped.LEARNED.glob("*.csv"))


def read(path: Path) -> dict[str, list[float]]:
    """Columns of a curve."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [float(row[name]) for row in rows] for name in (rows[0] if rows else ())}


def group(source: Path) -> str:
    """What a curve is one of: the fold it holds out, or all applications."""
    return source.stem.split("-seed-")[0]


def draw(path: Path, sources: Sequence[Path] | None = None) -> None:
    """Gain over the reference and joules against it on the scenarios kept for choosing, over minutes of training.

    The reference is what a run began with: the portfolio's setting for a fold, the flagship for all applications.

    One colour and one line of the legend for each fold, below the plots; thin lines are its seeds.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines: dict[str, Line2D] = {}
    counts: dict[str, int] = {}
    for source in curves() if sources is None else sources:
        curve = read(source)
        if not curve:
            continue
        name = group(source)
        style = {"color": lines[name].get_color()} if name in lines else {"color": f"C{len(lines)}"}
        minutes = [seconds / 60.0 for seconds in curve["seconds"]]
        for axes, column in ((left, "gain"), (right, "energy")):
            values = [100.0 * value for value in curve[column]]
            (line,) = axes.plot(minutes, values, linewidth=1.2, alpha=0.8, marker=".", markersize=4, **style)
        lines.setdefault(name, line)
        counts[name] = counts.get(name, 0) + 1
    for axes, title in ((left, "reward beyond the reference's, %"), (right, "joules against the reference, %")):
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set(xlabel="minutes of training", title=title)
    if lines:
        labels = [f"{name} ({counts[name]} seed{'s' if counts[name] > 1 else ''})" for name in lines]
        handles = list(lines.values())
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small", frameon=False)
    figure.savefig(path, dpi=120)
