"""Learning curves: what training wrote into its CSV files, as a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from wattflow.policy import weights


def shipped() -> list[Path]:
    """Curves of the shipped weights."""
    return sorted(weights.shipped().parent.glob("*.csv"))


def read(path: Path) -> dict[str, list[float]]:
    """Columns of a curve."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [float(row[name]) for row in rows] for name in (rows[0] if rows else ())}


def draw(path: Path, sources: Sequence[Path] | None = None) -> None:
    """Gain over the flagship and joules against it on the scenarios kept for choosing, over minutes of training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for source in shipped() if sources is None else sources:
        curve = read(source)
        if not curve:
            continue
        minutes = [seconds / 60.0 for seconds in curve["seconds"]]
        left.plot(minutes, [100.0 * value for value in curve["gain"]], label=source.stem)
        right.plot(minutes, [100.0 * value for value in curve["energy"]], label=source.stem)
    for axes, title in ((left, "reward beyond the flagship's, %"), (right, "joules against the flagship, %")):
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set(xlabel="minutes of training", title=title)
    left.legend()
    figure.savefig(path, dpi=120)
